"""What a made-up model offers an emulator: its own pixels, or some of them."""

import numpy as np


class WholeThin:
    """Fluxes that bend as the pixels do because they are pixels: one of `every` few."""

    def __init__(self, predictor, every=1):
        self.predictor, self.every = predictor, every

    def at(self, theta):
        return WholeFluxes(self, theta)


class WholeFluxes:
    def __init__(self, thin, theta):
        self.thin, self.theta = thin, theta

    def local(self, field):
        made = self.thin.predictor.derivatives(self.theta, field)
        flux, self.of_theta, of_field = (a[..., :: self.thin.every] for a in made)
        return flux, of_field

    def pulled(self, weight):
        return np.einsum("bkp,bp->bk", self.of_theta, weight)
