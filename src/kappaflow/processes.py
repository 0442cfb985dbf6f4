"""Processes that we start: what each does first."""

import multiprocessing
import os
import signal
import threading

__all__ = ["serve_parent"]


def serve_parent() -> None:
    """Leave Ctrl-C to the parent, and end with it, whatever ended it: what is written is written whole."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
