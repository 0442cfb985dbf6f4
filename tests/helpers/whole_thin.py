"""What a made-up model offers an emulator: all its pixels, and no numbers of columns."""

import numpy as np

from kappaflow.refinement.thin import ThinSlopes


class WholeThin:
    """Fluxes that bend as the pixels do because they are the pixels."""

    def __init__(self, predictor, coefficients):
        self.predictor, self.inside = predictor, np.zeros(coefficients, bool)

    def at(self, theta, field):
        return WholeWalked(self.predictor, theta)

    def slopes(self, theta, field):
        none = (np.zeros((len(theta), a.shape[1], 0)) for a in (theta, field))
        return ThinSlopes(*self.predictor.derivatives(theta, field), *none)

    def response(self, theta, field):
        return np.zeros((0, self.predictor(theta[None], field[None]).shape[1]))


class WholeWalked:
    def __init__(self, predictor, theta):
        self.predictor, self.theta, self.numbers = predictor, theta, np.zeros((len(theta), 0))

    def flux(self, field):
        flux, *self.slopes = self.predictor.derivatives(self.theta, field)
        return flux

    def pulled_flux(self, weight):
        self.of_theta, of_field = (np.einsum("bkp,bp->bk", slopes, weight) for slopes in self.slopes)
        return of_field

    def pulled_columns(self, weight):
        return self.of_theta, np.zeros((len(weight), self.slopes[1].shape[1]))
