"""The process that runs jobs, one after the other: networks and model are loaded once and kept."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kappaflow.progress import Step, listened_to
from kappaflow.serve.answering import Tell, answer_requests
from kappaflow.serve.job_record import Asked
from kappaflow.serve.serve_settings import NetworkChoice

if TYPE_CHECKING:
    from kappaflow.retrieval.retriever import Retriever

__all__ = ["main", "retriever_for"]


@lru_cache(maxsize=1)
def _loaded(networks: NetworkChoice) -> Retriever:
    """Load what `kappaflow retrieve` would, or find it loaded: networks and, most of the waiting, the forward model."""
    from kappaflow.retrieval.retriever import Retriever

    found = Retriever.load(networks.model, networks.control, opacity=networks.opacity)
    _ = found.forward
    return found


def retriever_for(networks: NetworkChoice, asked: Asked) -> Retriever:
    """Return a retriever with the settings asked for, its networks and model loaded once for all jobs."""
    from kappaflow.retrieval.result import RetrievalSettings

    base = _loaded(networks)
    settings = RetrievalSettings(draws=asked.draws, seed=asked.seed, amortized=asked.method == "amortized")
    made = replace(base, settings=settings)
    vars(made)["forward"] = base.forward  # a copy forgets what was computed on demand
    return made


def main() -> None:
    """Answer until the server closes our input."""
    model, control, opacity = json.loads(sys.argv[1])
    networks = NetworkChoice(tuple(model), tuple(control), opacity)

    def handle(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
        from kappaflow.serve.running import run_job

        if "warm" in request:
            return {"ready": _loaded(networks) is not None}
        tell({"steps": [asdict(Step("loading networks and model", 0, 0))]})
        with listened_to(lambda steps: tell({"steps": [asdict(step) for step in steps]})):
            return run_job(Path(request["folder"]), partial(retriever_for, networks))

    answer_requests(handle)


if __name__ == "__main__":
    main()
