"""Networks on held-out spectra: the draws to judge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kappaflow.calibrate import check_draws
from kappaflow.errors import UserError
from kappaflow.evaluate.draws_file import Method, write_method
from kappaflow.inference import Posterior
from kappaflow.parameters import DRAWS
from kappaflow.progress import progress
from kappaflow.simulation import Shards
from kappaflow.spectra import Spectra, same_pixels

__all__ = ["HeldOut", "draw_all", "refuse_foreign"]

CHUNK = 128  # spectra drawn together


@dataclass(frozen=True)
class HeldOut:
    """Networks, pooled, on a held-out set of `kappaflow simulate`; what `kappaflow calibrate` is told about them."""

    models: Sequence[Path]
    data: Path
    n: int | None = None  # spectra; all by default
    draws: int = DRAWS  # per spectrum
    masks: bool = False
    keep: Path | None = None  # file for the draws

    @property
    def name(self) -> str:
        """What the method is called."""
        return self.models[0].stem if len(self.models) == 1 else f"ensemble of {len(self.models)}"

    def method(self, seed: int) -> Method:
        """Draw from the networks for the set, observed once from `seed`."""
        posterior, shards = Posterior.load(*self.models), Shards(self.data, masks=self.masks)
        refuse_foreign(posterior, shards)
        seen = shards.evaluation(self.n, seed)
        with progress("drawing", len(seen), unit="spectra") as advance:
            draws, log_prob = draw_all(posterior, seen, self.draws, seed, advance)
        box = posterior.box
        method = Method(
            self.name,
            check_draws(seen.truth, draws, prior=(np.asarray(box.low), np.asarray(box.high)), names=box.names),
            {"SNR": np.asarray(seen.snr, dtype=float)},
            log_prob,
            origin=f"{', '.join(map(str, self.models))} on {self.data}",
        )
        if self.keep is not None:
            write_method(self.keep, method)
        return method


def draw_all(
    posterior: Posterior, seen: Spectra, n: int, seed: int, advance: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Return `n` draws of every spectrum, (b, n, D), and the log density of the truths, (b,)."""
    draws = np.empty((len(seen), n, len(posterior.box)), dtype=np.float32)
    log_prob = np.empty(len(seen))
    for start in range(0, len(seen), CHUNK):
        rows = slice(start, start + CHUNK)
        some = seen[rows]
        # The address of a draw is (seed, member, row of the batch): another seed for every batch.
        draws[rows] = posterior.sample_spectra(some, n=n, seed=seed + start)
        log_prob[rows] = posterior.log_prob_spectra(some.truth, some)
        advance(len(some))
    return draws, log_prob


def refuse_foreign(posterior: Posterior, shards: Shards) -> None:
    """Refuse a set on other pixels, of other opacities, or drawn from the seed of the networks' own training set."""
    if not same_pixels(shards.wavelength, posterior.wavelength):
        raise UserError(
            f"{shards.path}: {len(shards.wavelength)} pixels, the networks {len(posterior.wavelength)}; simulate the "
            "held-out set with the preset the networks were trained on"
        )
    posterior.refuse_other_table(shards.card.opacity, shards.path)
    posterior.refuse_training_seed(shards.card.seed, shards.path)
