"""A directory of shards that several processes may fill at once and none can spoil.

Why nothing is lost: a shard is renamed into place whole, its bytes depend on its address alone, and so two
processes that make the same shard overwrite each other with the same bytes. Claims only keep them from wasting
work: one byte of `.lock` a shard, locked as POSIX record locks, which the kernel drops when a process dies.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kappaflow.errors import UserError
from kappaflow.simulation.config import ShardPlan
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.simulation.shard import TABLE_COLUMNS, damage
from kappaflow.storage import written_whole

__all__ = ["CONFIG", "Claims", "check_directory", "prepare", "read_config", "shard_path", "sweep", "write_bytes"]

CONFIG = "config.json"
LOCK = ".lock"
CONFIG_BYTE = 2**40  # the byte of the lock file that guards the config; shards use their index
FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def shard_path(directory: Path, index: int) -> Path:
    """Path of shard `index`."""
    return directory / f"shard-{index:06d}.h5"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; a full disk is one clear line."""
    try:
        with written_whole(path) as part:
            part.write_bytes(content)
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"{path}: no room for {len(content):,} bytes ({os.strerror(error.errno)}); nothing half-written is "
                "left: make room, then run the same command with --resume"
            ) from None
        raise


class Claims:
    """Who makes which shard: record locks on `.lock`, released by the kernel when their process dies."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)

    def take(self, byte: int, *, wait: bool = False) -> bool:
        """Claim a shard; False if another process holds it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
        except OSError as error:
            # Without locks two processes may make the same shard: wasteful, never wrong.
            return error.errno in UNSUPPORTED
        return True

    def release(self, byte: int) -> None:
        """Give a claim back."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise

    def close(self) -> None:
        """Let go of everything; whoever is last takes the lock file away."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # all of it: nobody else is at work
            self._path.unlink(missing_ok=True)
        except OSError:
            pass
        os.close(self._file)


def read_config(directory: str | Path) -> dict[str, Any]:
    """Return the content of `config.json`, or say that this is no directory of shards."""
    path = Path(directory) / CONFIG
    try:
        config = json.loads(path.read_text())
        config |= {"shards": int(config["shards"]), "seed": int(config["seed"]), "digest": str(config["digest"])}
    except FileNotFoundError:
        raise UserError(f"{directory}: no {CONFIG}; not a directory made by `kappaflow simulate`") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: unreadable; re-make it with the command that made the directory") from None
    return config


def _flat(content: Any, prefix: str = "") -> dict[str, str]:
    """Nested mappings as {"config.amplitude": "1.0", ...}."""
    if not isinstance(content, dict):
        return {prefix: json.dumps(content)}
    return {k: v for key, value in content.items() for k, v in _flat(value, f"{prefix}.{key}".strip(".")).items()}


def _differences(there: dict[str, Any], asked: dict[str, Any]) -> str:
    old, new = _flat(there), _flat(asked)
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    # The config says it in the user's words; what follows from it (digests, combinations) only where it is alone.
    told = [name for name in names if name.startswith("config.") or name == "seed"] or names
    return "; ".join(f"{n.removeprefix('config.')} is {old.get(n)} there, {new.get(n)} asked" for n in told)


def check_directory(directory: str | Path) -> dict[str, Any]:
    """Verify every shard: {"shards", "good", "missing": [index], "damaged": {file name: what}}."""
    config = read_config(directory)
    return _check(Path(directory), (config["digest"], config["seed"]), config["shards"])


def _check(directory: Path, address: tuple[str, int], shards: int) -> dict[str, Any]:
    def look(index: int) -> str | None:
        try:
            content = shard_path(directory, index).read_bytes()
        except FileNotFoundError:
            return "missing"
        return damage(content, (*address, index))

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing lets go of the interpreter lock
        found = dict(enumerate(pool.map(look, range(shards))))
    return {
        "shards": shards,
        "good": sum(trouble is None for trouble in found.values()),
        "missing": [i for i, trouble in found.items() if trouble == "missing"],
        "damaged": {shard_path(directory, i).name: t for i, t in found.items() if t not in (None, "missing")},
    }


def sweep(directory: Path, claims: Claims) -> None:
    """Remove the half-written files that killed processes left, but not those of a living one."""
    for part in directory.glob("*.part"):
        named = re.match(r"shard-(\d+)\.h5\.", part.name)
        byte = int(named[1]) if named else CONFIG_BYTE
        if claims.take(byte):
            part.unlink(missing_ok=True)
            claims.release(byte)


def prepare(directory: Path, plan: ShardPlan, shards: int, claims: Claims, *, resume: bool) -> list[int]:
    """Make or verify a directory; returns the shards still to be made.

    Refuses one made with another config or seed (saying what differs), and one that is unfinished or damaged
    unless `resume`; what is refused is left as it was.
    """
    sweep(directory, claims)
    asked = {**plan.content, "seed": plan.seed, "digest": plan.digest}
    _refuse_another(directory, asked)
    state = _check(directory, (plan.digest, plan.seed), shards)
    if state["damaged"] and not resume:
        what = "; ".join(f"{name}: {trouble}" for name, trouble in state["damaged"].items())
        raise UserError(f"{directory}: {what}; --resume makes damaged shards again")
    if state["good"] and state["missing"] and not resume:
        raise UserError(f"{directory}: holds {state['good']} of {shards} shards; --resume makes the rest")
    _write_config(directory, asked, shards, claims)
    return sorted([*state["missing"], *(int(re.findall(r"\d+", name)[0]) for name in state["damaged"])])


def _refuse_another(directory: Path, asked: dict[str, Any]) -> None:
    present = {p.name for p in directory.iterdir() if p.suffix != ".part"} - {LOCK}
    if CONFIG in present:
        there = {name: value for name, value in read_config(directory).items() if name in asked}
        if there != asked:
            raise UserError(f"{directory}: made with another config: {_differences(there, asked)}")
    elif present:
        raise UserError(f"{directory}: not empty, and not made by `kappaflow simulate`; give a new directory")


def _write_config(directory: Path, asked: dict[str, Any], shards: int, claims: Claims) -> None:
    """Write `config.json` unless it says so already; a set may grow, never shrink."""
    claims.take(CONFIG_BYTE, wait=True)
    try:
        path = directory / CONFIG
        if path.exists():
            shards = max(shards, read_config(directory)["shards"])
        config = {**asked, "shards": shards, "spectra": shards * SHARD_SIZE, "columns": TABLE_COLUMNS}
        content = (json.dumps(config, indent=1, sort_keys=True) + "\n").encode()
        if not path.exists() or path.read_bytes() != content:
            write_bytes(path, content)
    finally:
        claims.release(CONFIG_BYTE)
