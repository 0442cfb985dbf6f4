"""Processes that we start end with the one that started them."""

import os
import signal
import subprocess
import sys
import time

import pytest

POOL = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from kappaflow.processes import serve_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), initializer=serve_parent)
    work = [pool.submit(time.sleep, seconds) for seconds in (0.0, 60.0)]  # one waits for more, one is at work
    work[0].result()
    print(*pool._processes, flush=True)
    time.sleep(60)
"""


def ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks into /proc")
def test_workers_of_a_killed_process_end_idle_or_at_work(tmp_path):
    (tmp_path / "pool.py").write_text(POOL, encoding="utf-8")
    parent = subprocess.Popen([sys.executable, tmp_path / "pool.py"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    assert not any(ended(pid) for pid in workers)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 20
    while not all(ended(pid) for pid in workers):
        assert time.monotonic() < end, "workers outlived their parent"
        time.sleep(0.05)
