"""One shard: 128 spectra addressed by (config digest, seed, index), as the bytes of a self-describing HDF5 file.

The file starts with HDF5's user block of 512 bytes, which says its address, its length and the SHA-256 of all that
follows: any truncation and any flipped bit is found without trusting HDF5. Nothing in it depends on when, where or in
what order it was made.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from kappaflow.errors import UserError
from kappaflow.simulation.config import ShardPlan
from kappaflow.simulation.opacity_draws import PERTURB, coefficient_sigma, draw_amplitude, draw_field
from kappaflow.simulation.prior import SHARD_SIZE, draw_prior
from kappaflow.spectra import Forward
from kappaflow.storage import digest_arrays

__all__ = ["Shard", "damage", "draw_shard", "encode", "read_shard"]

USER_BLOCK = 512
MAGIC = "kappaflow-shard/2"
HEAD = re.compile(
    rb"(kappaflow-shard/2 digest=([0-9a-f]{16}) seed=(\d+) index=(\d+) bytes=(\d+) sha256=)([0-9a-f]{64})\n\0*"
)


@dataclass(frozen=True)
class Shard:
    """Arrays of one shard, 128 rows each; flux is noise-free."""

    theta: np.ndarray  # (128, D)
    field: np.ndarray  # (128, species * c), coefficients
    amplitude: np.ndarray  # (128,), of the field: 1 is the packaged prior, 0 fixed opacities
    broadening: np.ndarray  # (128, 2), half-width scale and exponent shift
    combination: np.ndarray  # (128,), index into the plan's combinations
    snr: np.ndarray  # (128,)
    flux: np.ndarray  # (128, p), float32
    wavelength: np.ndarray  # (p,), micron

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def draw_shard(plan: ShardPlan, model: Forward, index: int) -> Shard:
    """Draw and simulate shard `index`; every spectrum must come out finite and positive."""
    config = plan.config
    theta, snr = draw_prior(config.sequence, plan.seed, index, plan.parameters)
    smooth, _ = PERTURB[config.perturb]
    amplitude = smooth * draw_amplitude(config.amplitude, plan.seed, index)
    field = draw_field(coefficient_sigma(np.array(plan.opacity["sigma"])), amplitude, plan.seed, index)
    combination, broadening = plan.combination(index), plan.broadening(index)
    # Always the whole shard in one call: a batch of another shape may round differently.
    flux = model.broadened(broadening)(theta, field=field, lists=dict(plan.combinations[combination]))
    flux = np.ascontiguousarray(flux, dtype=np.float32)
    bad = ~(np.isfinite(flux) & (flux > 0)).all(axis=1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        values = ", ".join(f"{name}={v:.6g}" for name, v in zip(plan.parameters.names, theta[row], strict=True))
        raise ArithmeticError(
            f"shard {index}: {int(bad.sum())} of {SHARD_SIZE} spectra are not finite and positive, the first in "
            f"row {row} ({values}); no spectrum is ever discarded, so this is a fault of the forward model"
        )
    return Shard(
        theta=theta,
        field=field,
        amplitude=amplitude,
        broadening=np.tile(broadening, (SHARD_SIZE, 1)),
        combination=np.full(SHARD_SIZE, combination, dtype=np.int32),
        snr=snr,
        flux=flux,
        wavelength=np.asarray(model.wavelength, dtype=float),
    )


def encode(shard: Shard, plan: ShardPlan, index: int) -> bytes:
    """Return the shard as the bytes of its file."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=USER_BLOCK) as file:
        arrays = shard.arrays()
        for name, array in arrays.items():
            file.create_dataset(name, data=array, track_times=False)
        file.attrs["schema"] = MAGIC
        file.attrs["digest"] = plan.digest
        file.attrs["seed"] = plan.seed
        file.attrs["index"] = index
        file.attrs["checksum"] = digest_arrays(arrays)
        file.attrs["config"] = json.dumps(plan.content, sort_keys=True)
        file.attrs["columns"] = json.dumps(plan.parameters.columns)
    content = buffer.getvalue()[USER_BLOCK:]
    address = f"{MAGIC} digest={plan.digest} seed={plan.seed} index={index} bytes={len(content)} sha256="
    return f"{address}{_checksum(address, content)}\n".encode().ljust(USER_BLOCK, b"\0") + content


def _checksum(address: str, content: bytes | memoryview) -> str:
    sha = hashlib.sha256(address.encode())
    sha.update(content)
    return sha.hexdigest()


def damage(content: bytes | memoryview, expected: tuple[str, int, int] | None = None) -> str | None:
    """Say what is wrong with the bytes of a shard's file, or None; `expected` is (config digest, seed, index)."""
    view = memoryview(content)
    found = HEAD.fullmatch(bytes(view[:USER_BLOCK]))
    if not found or len(view) < USER_BLOCK:
        return "not a shard, or its first bytes are damaged"
    rest = view[USER_BLOCK:]
    address, digest, seed, index, length, checksum = (word.decode() for word in found.groups())
    if int(length) != len(rest):
        return f"truncated: {len(rest)} of {length} bytes" if int(length) > len(rest) else "longer than it should be"
    if _checksum(address, rest) != checksum:
        return "its checksum does not match its bytes"
    if expected is not None and (digest, int(seed), int(index)) != expected:
        return f"it belongs elsewhere (config {digest}, seed {seed}, index {index})"
    return None


def read_shard(path: str | Path) -> tuple[Shard, dict[str, Any]]:
    """Read and verify one shard; returns its arrays and its address (digest, seed, index)."""
    content = Path(path).read_bytes()
    trouble = damage(content)
    if trouble:
        raise UserError(f"{path}: {trouble}; remake it with `kappaflow simulate --resume`")
    with h5py.File(io.BytesIO(content), "r") as file:
        arrays = {name: np.asarray(file[name]) for name in Shard.__dataclass_fields__}
        address = {name: file.attrs[name] for name in ("digest", "seed", "index")}
    return Shard(**arrays), address
