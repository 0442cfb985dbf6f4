"""The reading side: batches of observed spectra, with noise, masks and gain drawn as they are read.

Shards are mapped into memory, not read: the system's page cache holds what fits, and a set larger than memory streams
through it, while the shuffle runs over the whole set either way. All that is random about spectrum `i` in epoch `e` is
drawn at the address (seed, e, i): it does not depend on the batch it sits in, on threads, or on what was read before.
"""

from __future__ import annotations

import mmap
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path

import h5py
import numpy as np

from kappaflow.errors import UserError
from kappaflow.parameters import ParameterSet, parameter_set
from kappaflow.randomness import Stream, generator
from kappaflow.simulation.directory import check_directory, read_config, shard_path
from kappaflow.simulation.masks import MaskModel, read_masks
from kappaflow.simulation.noise import ErrorFamily, gain, with_structure
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.spectra import Box, Card, OpacityCard, Spectra, masked_median

__all__ = ["Shards"]

USER_MASKS = "masks.npy"  # what `kappaflow simulate --masks` leaves beside the shards
VALIDATION = 0.1  # share of the set
THREADS = min(4, os.cpu_count() or 1)  # that observe the parts of a batch: NumPy lets go of the interpreter lock
LEAST, MOST = 16, 512  # spectra worth a thread; spectra observed together, which bounds the memory in between
STORED = ("theta", "field", "amplitude", "combination", "snr")


class Shards:
    """A directory of shards as a set of spectra.

    Parameters
    ----------
    path : directory made by `kappaflow simulate`
    masks : False for every pixel good; True for the mask model (and the user's masks where the set was made with some);
        a folder for the mask model and the masks in it
    seed : of noise, masks and gain
    verify : check every byte first (otherwise sizes only)
    limit : use only the first `limit` training spectra

    Examples
    --------
    >>> import tempfile
    >>> from kappaflow.simulation import make_config, simulate_directory
    >>> where = tempfile.mkdtemp()
    >>> _ = simulate_directory(where, make_config(model="toy"), 256)
    >>> shards = Shards(where)
    >>> shards.train(epoch=0, index=0, size=64).flux.shape
    (64, 90)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        masks: bool | str | Path = False,
        seed: int = 0,
        verify: bool = False,
        limit: int | None = None,
    ) -> None:
        self.path = Path(path)
        self.config = read_config(path)
        self._seed = seed
        self._local = threading.local()  # a stream belongs to one thread
        if verify:
            _refuse_damage(self.path)
        self._open()
        self._errors = ErrorFamily(self.wavelength)
        self._masks = self._mask_model(masks)
        self._orders: dict[int, np.ndarray] = {}
        self._limit = limit
        if limit is not None and not 1 <= limit == len(self.split[0]):
            raise UserError(
                f"{path}: {limit} training spectra asked for; it has {len(self)}, a tenth kept for validation"
            )

    theta: np.ndarray
    field: np.ndarray
    amplitude: np.ndarray
    combination: np.ndarray
    snr: np.ndarray

    def __len__(self) -> int:
        return len(self.theta)

    def _open(self) -> None:
        """Load the small columns and map the flux of every shard."""
        columns: dict[str, list[np.ndarray]] = {name: [] for name in STORED}
        self._flux: list[np.ndarray] = []
        size = None
        for index in range(self.config["shards"]):
            path = shard_path(self.path, index)
            try:
                size = size or path.stat().st_size
                if path.stat().st_size != size:
                    raise UserError(f"{path}: {path.stat().st_size} bytes, the others {size}; {_REMEDY}")
                with h5py.File(path, "r") as file:
                    if file.attrs["digest"] != self.config["digest"] or file.attrs["index"] != index:
                        raise UserError(f"{path}: belongs to another set; {_REMEDY}")
                    for name in STORED:
                        columns[name].append(np.asarray(file[name]))
                    flux: h5py.Dataset = file["flux"]  # type: ignore[assignment]
                    place, shape = flux.id.get_offset(), flux.shape
                    if index == 0:
                        self.wavelength = np.asarray(file["wavelength"])
            except FileNotFoundError:
                raise UserError(f"{path}: missing; {_REMEDY}") from None
            except (OSError, KeyError) as error:
                raise UserError(f"{path}: unreadable ({error}); {_REMEDY}") from None
            self._flux.append(_mapped(path, place, shape))
        for name in STORED:
            setattr(self, name, np.concatenate(columns[name]))

    def _mask_model(self, masks: bool | str | Path) -> MaskModel | None:
        if masks is False:
            return None
        if masks is not True:
            return MaskModel(self.wavelength, read_masks(masks, self.wavelength))
        kept = self.path / USER_MASKS
        return MaskModel(self.wavelength, np.load(kept) if kept.exists() else None)

    @property
    def parameters(self) -> ParameterSet:
        """What theta, the species and their coefficients are."""
        return parameter_set(self.config["config"]["parameters"])

    @property
    def card(self) -> Card:
        """Digest, preset, pixels, sizes and opacities of the set."""
        told = self.config.get("opacity")
        return Card(
            digest=self.config["digest"],
            preset=self.config["config"]["preset"],
            wavelength=self.wavelength,
            n_train=len(self.split[0]),
            n_validation=len(self.split[1]),
            masked=self._masks is not None,
            box=Box.of(self.parameters),
            seed=self.config["seed"],
            parameters=self.parameters.name,
            opacity=None if told is None else OpacityCard(**told),
            dial=self._dial,
        )

    @property
    def _dial(self) -> tuple[float, float] | None:
        """Smallest and largest amplitude of the config where it is drawn: a network is then told each spectrum's."""
        stated = self.config["config"].get("amplitude")
        if np.ptp(self.amplitude) == 0 or not isinstance(stated, list | dict):
            return None
        low, high = stated if isinstance(stated, list) else (stated["low"], stated["high"])
        return float(low), float(high)

    @property
    def combinations(self) -> tuple[dict[str, str], ...]:
        """The line lists, species -> name, that an entry of `combination` points at."""
        return tuple(dict(pair.split("=", 1) for pair in choice) for choice in self.config["combinations"])

    @cached_property
    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Places of the training and of the validation spectra.

        A spectrum's side depends on its place alone: it never changes sides when the set grows.
        """
        held = Stream("split").at(0).random(len(self)) < VALIDATION
        return np.flatnonzero(~held)[: self._limit], np.flatnonzero(held)

    def flux(self, index: np.ndarray | slice) -> np.ndarray:
        """Noise-free flux of the spectra at `index`, (b, p), float32."""
        places = np.arange(len(self))[index]
        out = np.empty((len(places), len(self.wavelength)), dtype=np.float32)
        for row, place in enumerate(places.tolist()):
            out[row] = self._flux[place // SHARD_SIZE][place % SHARD_SIZE]
        return out

    def clean(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return noise-free flux and parameters of `count` training spectra (or of all), evenly over the set."""
        places = self.split[0]
        places = places[np.linspace(0, len(places) - 1, min(count, len(places))).astype(int)]
        return self.flux(places), self.theta[places]

    def train(self, epoch: int, index: int, size: int) -> Spectra:
        """Batch `index` of `epoch`: the whole training split shuffled, noise, masks and gain anew in every epoch."""
        order = self._orders.get(epoch)
        if order is None:
            training = self.split[0]
            order = training[generator("shuffle", self._seed, epoch).permutation(len(training))]
            self._orders = {epoch: order}
        return self._observe(order[index * size : (index + 1) * size], "train", epoch)

    def validation(self, start: int, stop: int) -> Spectra:
        """Return validation spectra `start:stop`, with noise, masks and gain that never change."""
        return self._observe(self.split[1][start:stop], "validation", 0)

    def evaluation(self, n: int | None = None, seed: int = 0, *, start: int = 0) -> Spectra:
        """Return `n` spectra of the set from the one at `start` (all by default), observed once, from `seed`."""
        stop = len(self) if n is None else start + n
        if not 0 <= start < stop <= len(self):
            raise UserError(f"{self.path}: spectra {start} to {stop} asked for; the set has {len(self)}")
        return self._observe(np.arange(start, stop), "evaluation", seed)

    def _stream(self, purpose: str, epoch: int) -> Stream:
        held = getattr(self._local, "held", None)
        if held is None or held[0] != (purpose, epoch):
            held = ((purpose, epoch), Stream("observe", purpose, self._seed, epoch))
            self._local.held = held
        return held[1]

    def _observe(self, places: np.ndarray, purpose: str, epoch: int) -> Spectra:
        """Observe the spectra at `places`, a part in each thread."""
        count = max(min(THREADS, len(places) // LEAST), -(-len(places) // MOST), 1)
        parts = np.array_split(places, count)
        if len(parts) == 1:
            return self._observe_part(places, purpose, epoch)
        done = list(_pool().map(lambda part: self._observe_part(part, purpose, epoch), parts))
        return Spectra.joined(done)

    def _observe_part(self, places: np.ndarray, purpose: str, epoch: int) -> Spectra:
        """Draw gain, error arrays, noise and masks for the spectra at `places`."""
        flux, theta = self.flux(places), self.theta[places]
        b, p = flux.shape
        few, kinds = 2 + ErrorFamily.NORMALS, MaskModel.UNIFORMS + ErrorFamily.UNIFORMS
        normal = np.empty((b, few + p), dtype=np.float32)
        uniform = np.empty((b, kinds + p), dtype=np.float32)
        stream = self._stream(purpose, epoch)
        for row, place in enumerate(places.tolist()):
            generator = stream.at(place)
            generator.standard_normal(dtype=np.float32, out=normal[row])
            generator.random(dtype=np.float32, out=uniform[row])
        pixel = uniform[:, kinds:]
        # Backwards: what scatters the error of a pixel is not what decides whether it is bad.
        shape = self._errors.draw(flux, uniform[:, MaskModel.UNIFORMS : kinds], normal[:, 2:few], pixel[:, ::-1])
        mask = np.ones((b, p), dtype=bool) if self._masks is None else self._masks.draw(flux, uniform, pixel)
        # The stored SNR holds for the noise-free spectrum on its good pixels.
        error = shape * (masked_median(flux / shape, mask) / self.snr[places])[:, None].astype(np.float32)
        noisy = flux * gain(theta, normal[:, :2], self.wavelength)
        noisy += with_structure(error, flux, theta, self.wavelength) * normal[:, few:]
        if self._masks is not None:
            mask = self._masks.clip(mask, noisy, uniform)
        noisy[~mask] = 0.0
        return Spectra(
            flux=noisy,
            error=error,
            mask=mask,
            scale_known=np.ones(b, dtype=bool),  # simulated for 10 pc
            theta=theta.astype(np.float32),
            field=self.field[places],
            combination=self.combination[places],
            amplitude=self.amplitude[places],
            index=places,
        )


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="observe")


_REMEDY = "see `kappaflow simulate --check`, remake it with --resume"


def _refuse_damage(path: Path) -> None:
    state = check_directory(path)
    if state["good"] < state["shards"]:
        missing = [shard_path(path, i).name for i in state["missing"]]
        names = ", ".join([*missing, *state["damaged"]][:5])
        bad = f"{state['shards'] - state['good']} of {state['shards']} shards"
        raise UserError(f"{path}: {bad} missing or damaged ({names}); {_REMEDY}")


def _mapped(path: Path, place: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the float32 array at byte `place` of a file, mapped into memory for reading in any order."""
    with path.open("rb") as stream:
        view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mmap, "MADV_RANDOM"):  # absent on Windows
        view.madvise(mmap.MADV_RANDOM)  # rows are read in shuffled order: reading ahead would fetch what is not wanted
    return np.frombuffer(view, dtype="<f4", count=int(np.prod(shape)), offset=place).reshape(shape)
