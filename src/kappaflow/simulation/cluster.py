"""Shards on a Dask cluster: workers compute the bytes, this process writes them.

Only the client touches the directory, so workers need no shared file system, and a full disk or a kill is handled
as on one machine. A worker that dies loses nothing: its shards are computed elsewhere, and come out the same.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from kappaflow.errors import UserError
from kappaflow.simulation.directory import shard_path, write_bytes
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.simulation.run import ShardJob
from kappaflow.simulation.shard import damage
from kappaflow.spectra import Forward

__all__ = ["connect", "fill_on_cluster"]

TRIES = 5  # times a shard may take its worker down before we believe that it is the shard's fault
IN_FLIGHT = 3  # shards in flight for each thread of the cluster: busy workers, bounded memory


_models: dict[str, Forward] = {}  # of this worker: loading and compiling takes longer than a shard


def _make(job: ShardJob, index: int) -> bytes:
    """Compute the bytes of a shard on a worker."""
    model = _models.get(job.plan.digest)
    if model is None:
        model = _models[job.plan.digest] = job.load(job.plan.config)
    if model.digest != job.plan.model_digest:
        raise UserError(
            f"worker: its tables have digest {model.digest}, the client's {job.plan.model_digest}; "
            "install the same kappaflow and the same tables everywhere"
        )
    return job.make(model, index)


def connect(address: str) -> Any:
    """Return a client of the Dask scheduler at `address`."""
    try:
        from distributed import Client
    except ImportError:
        raise UserError("--scheduler needs dask.distributed; pip install 'kappaflow[cluster]'") from None
    try:
        return Client(address, timeout=20, set_as_default=False)  # the user's own Dask is left alone
    except (OSError, ValueError) as error:
        raise UserError(f"--scheduler {address}: no scheduler answers there ({error})") from None


def fill_on_cluster(
    address: str, directory: Path, job: ShardJob, todo: list[int], advance: Callable[..., None]
) -> None:
    """Make the shards `todo` on the cluster at `address`."""
    from distributed import KilledWorker, as_completed

    with connect(address) as client:
        waiting, tries = list(reversed(todo)), Counter()

        def submit() -> Any:
            index = waiting.pop()
            tries[index] += 1
            future = client.submit(_make, job, index, pure=False, key=f"{job.plan.digest}-{index}-{tries[index]}")
            indices[future.key] = index
            return future

        indices: dict[str, int] = {}
        threads = sum(client.nthreads().values()) or 1
        first = [submit() for _ in range(min(len(waiting), IN_FLIGHT * threads))]
        running = as_completed(first, loop=client.loop)
        for future in running:
            index = indices.pop(future.key)
            try:
                content = future.result()
            except KilledWorker:
                if tries[index] >= TRIES:
                    raise UserError(
                        f"shard {index}: its worker died {TRIES} times; give the workers more memory, then --resume"
                    ) from None
                waiting.append(index)
            except CancelledError:
                raise UserError(f"--scheduler {address}: lost; every finished shard is safe: --resume") from None
            except RuntimeError as error:
                if "deserialization" not in str(error):
                    raise
                raise UserError(
                    f"--scheduler {address}: cannot load this program; install the same kappaflow on the scheduler and "
                    "on every worker"
                ) from None
            else:
                trouble = damage(content, (job.plan.digest, job.plan.seed, index))
                if trouble:
                    raise UserError(f"shard {index}: came back from its worker {trouble}")
                write_bytes(shard_path(directory, index), content)
                advance(SHARD_SIZE)
            future.release()
            if waiting:
                running.add(submit())
