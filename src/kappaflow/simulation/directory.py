"""A directory of shards that several processes may fill at once and none can spoil.

Why nothing is lost: a shard is renamed into place whole, its bytes depend on its address alone, and so two
processes that make the same shard overwrite each other with the same bytes. Claims only keep them from wasting
work: one lock file per file being made, locked by the operating system, which drops the lock when a process dies.
"""

import errno
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kappaflow.errors import UserError
from kappaflow.simulation.config import ShardPlan
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.simulation.shard import damage
from kappaflow.storage import written_whole

__all__ = ["CONFIG", "Claims", "check_directory", "prepare", "read_config", "shard_path", "sweep", "write_bytes"]

CONFIG = "config.json"
LOCKS = ".*.lock"
FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
UNLOCKABLE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, *FULL}


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
    """Who makes which file of a directory: a lock on `.NAME.lock`, dropped by the system when its process dies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, FileLock] = {}

    def take(self, name: str, *, wait: bool = False) -> bool:
        """Claim the file `name`; False if another process holds it."""
        if name in self._held:
            return True
        # One claim may be taken in one thread and given back in another (the writer).
        lock = FileLock(self._directory / f".{name}.lock", thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire(blocking=wait)
        except Timeout:
            return False
        except OSError as error:
            if error.errno not in UNLOCKABLE:
                raise
            return True  # Without locks two processes may make the same shard: wasteful, never wrong.
        self._held[name] = lock
        return True

    def __contains__(self, name: str) -> bool:
        """Whether a claim is really locked, not only granted for want of locks."""
        return name in self._held

    def release(self, name: str) -> None:
        """Give a claim back."""
        lock = self._held.pop(name, None)
        if lock is not None:
            with suppress(OSError):  # Windows removes no open file; there, `release` removes it
                os.unlink(lock.lock_file)  # while it is locked: filelock never trusts the lock of a removed file
            lock.release()

    def close(self) -> None:
        """Let go of everything, and remove the lock files of killed processes."""
        for lock in self._directory.glob(LOCKS):
            name = lock.name[1:].removesuffix(".lock")
            if self.take(name):
                self.release(name)


def read_config(directory: str | Path) -> dict[str, Any]:
    """Return the content of `config.json`, or say that this is not a directory of shards."""
    path = Path(directory) / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        config |= {"shards": int(config["shards"]), "seed": int(config["seed"]), "digest": str(config["digest"])}
    except FileNotFoundError:
        raise UserError(f"{directory}: no {CONFIG}; not a directory made by `kappaflow simulate`") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: unreadable; remake it with the command that made the directory") from None
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
    return "; ".join(f"{n.removeprefix('config.')} is {old.get(n)} there, {new.get(n)} asked for" for n in told)


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
        name = part.name.rsplit(".", 2)[0]  # NAME.PID.part
        claims.take(name)
        if name in claims:
            part.unlink(missing_ok=True)
            claims.release(name)


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
    _write_config(directory, asked | {"columns": plan.parameters.columns}, shards, claims)
    return sorted([*state["missing"], *(int(re.findall(r"\d+", name)[0]) for name in state["damaged"])])


def _refuse_another(directory: Path, asked: dict[str, Any]) -> None:
    present = {p.name for p in directory.iterdir() if p.suffix != ".part" and not p.match(LOCKS)}
    if CONFIG in present:
        there = {name: value for name, value in read_config(directory).items() if name in asked}
        if there != asked:
            raise UserError(f"{directory}: made with another config: {_differences(there, asked)}")
    elif present:
        raise UserError(f"{directory}: not empty, and not made by `kappaflow simulate`; give a new directory")


def _write_config(directory: Path, asked: dict[str, Any], shards: int, claims: Claims) -> None:
    """Write `config.json` unless it says so already; a set may grow, never shrink."""
    claims.take(CONFIG, wait=True)
    try:
        path = directory / CONFIG
        if path.exists():
            shards = max(shards, read_config(directory)["shards"])
        config = {**asked, "shards": shards, "spectra": shards * SHARD_SIZE}
        content = (json.dumps(config, indent=1, sort_keys=True) + "\n").encode()
        if not path.exists() or path.read_bytes() != content:
            write_bytes(path, content)
    finally:
        claims.release(CONFIG)
