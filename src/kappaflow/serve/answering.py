"""The other end of `Child`: answer requests from standard input until it closes."""

import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from kappaflow.errors import UserError

__all__ = ["Tell", "answer_requests", "limit_memory"]

Tell = Callable[[dict[str, Any]], None]


def answer_requests(handle: Callable[[dict[str, Any], Tell], dict[str, Any]]) -> None:
    """Say that we are ready, then answer each line of standard input with `handle(request, tell)`.

    `tell(event)` reports on the way.

    What the work prints goes to standard error: standard output is kept for the answers.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()

    def say(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    say({"ready": True})
    while True:
        request = json.loads(requests.get())
        try:
            say({"answer": handle(request, lambda event: say({"event": event}))})
        except UserError as error:
            say({"refused": str(error)})
        except MemoryError:
            say({"refused": "needs more memory than it may take; expected a 1-D spectrum"})
        except Exception as error:
            traceback.print_exc()  # into the log
            say({"broken": " ".join(f"{type(error).__name__}: {error}".split())[:300]})


def _listen(requests: queue.Queue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    # Whoever asks is gone: no work goes on for nobody, nor in processes we started.
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def limit_memory(count: int) -> None:
    """Let this process have at most `count` bytes of address space, where the system can do that."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (count if hard == resource.RLIM_INFINITY else min(count, hard), hard))
