"""Every fault really happens here: kills, full disks, damaged files, rivals, lost workers; the bytes stay the same."""

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kappaflow.errors import UserError
from kappaflow.simulation import Backend, Shards, make_config, read_shard, simulate_directory
from kappaflow.simulation.config import plan_shards
from kappaflow.simulation.directory import Claims, check_directory, shard_path
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.simulation.run import ShardJob
from kappaflow.simulation.toy import ToyModel

TOY = make_config(model="toy")
PIXELS = 300
ALL = 60  # shards
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

# Runs a simulation in a process of its own: directory, shards, seconds slept in each shard.
SCRIPT = """
import sys
from kappaflow.simulation import Backend, make_config, simulate_directory
from kappaflow.simulation.toy import ToyModel
out, shards, pace = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
model = ToyModel(300, pace)
print("ready", flush=True)
simulate_directory(out, make_config(model="toy"), 128 * shards, resume=True, backend=Backend(load=lambda recipe: model))
"""


def load(pixels, pace, recipe):
    return ToyModel(pixels, pace)


def run(directory, shards, *, pace=0.0, resume=False, backend=None, recipe=TOY):
    model = partial(load, PIXELS, pace)
    return simulate_directory(directory, recipe, shards * SHARD_SIZE, resume=resume, backend=Backend(backend, model))


def start(directory, shards, pace):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(directory), str(shards), str(pace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def content(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir()}


def count(directory):
    return len(list(directory.glob("shard-*.h5")))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    directory = tmp_path_factory.mktemp("whole")
    run(directory, ALL)
    return directory


def test_killed_ten_times_and_resumed_the_directory_has_the_bytes_of_an_uninterrupted_run(tmp_path, whole):
    directory = tmp_path / "killed"
    moments = random.Random(20261115)
    for attempt in range(10):
        before = count(directory)
        process = start(directory, ALL, 0.02)
        while attempt % 3 and count(directory) == before:  # a third of the kills come before the first shard
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.05))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert 6 <= count(directory) < ALL
    result = run(directory, ALL, resume=True)
    assert 0 < result["made"] < ALL
    assert content(directory) == content(whole)


def test_a_finished_directory_is_verified_and_left_alone(tmp_path):
    run(tmp_path, 4)
    before = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.iterdir()}
    result = run(tmp_path, 4)
    assert result["made"] == 0
    assert {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.iterdir()} == before


def test_an_unfinished_directory_asks_for_resume_and_a_set_grows_without_change(tmp_path, whole):
    run(tmp_path, 4)
    before = content(tmp_path)
    with pytest.raises(UserError, match=r"holds 4 of 9 shards; --resume"):
        run(tmp_path, 9)
    assert content(tmp_path) == before
    run(tmp_path, 9, resume=True)
    for index in range(9):
        assert shard_path(tmp_path, index).read_bytes() == shard_path(whole, index).read_bytes()
    assert run(tmp_path, 4)["made"] == 0  # a smaller number never shrinks it
    assert check_directory(tmp_path)["good"] == 9


@pytest.mark.parametrize("where", ["head", "checksum", "metadata", "flux", "last byte", "truncated", "empty", "longer"])
def test_a_damaged_shard_is_found_named_and_made_again_on_request(tmp_path, whole, where):
    run(tmp_path, 3)
    path = shard_path(tmp_path, 1)
    damaged = bytearray(path.read_bytes())
    place = {"head": 3, "checksum": 120, "metadata": 700, "flux": len(damaged) // 2, "last byte": -1}.get(where)
    if place is not None:
        damaged[place] ^= 1 << 5
    path.write_bytes({"truncated": damaged[:-1000], "empty": b"", "longer": damaged + b"x"}.get(where, damaged))
    state = check_directory(tmp_path)
    assert list(state["damaged"]) == ["shard-000001.h5"]
    assert state["good"] == 2
    with pytest.raises(UserError, match=r"shard-000001\.h5"):
        run(tmp_path, 3)
    with pytest.raises(UserError, match=r"shard-000001\.h5"):
        Shards(tmp_path, verify=True)
    with pytest.raises(UserError, match=r"shard-000001\.h5"):
        read_shard(path)
    assert run(tmp_path, 3, resume=True)["made"] == 1
    assert path.read_bytes() == shard_path(whole, 1).read_bytes()


def test_every_single_flipped_bit_of_a_sample_is_found(tmp_path):
    from kappaflow.simulation.shard import damage

    run(tmp_path, 1)
    good = shard_path(tmp_path, 0).read_bytes()
    assert damage(good) is None
    places = random.Random(0).sample(range(8 * len(good)), 150) + list(range(0, 8 * 512, 37))
    for place in places:
        flipped = bytearray(good)
        flipped[place // 8] ^= 1 << (place % 8)
        assert damage(bytes(flipped)) is not None, place


def test_a_shard_of_another_place_or_set_is_found(tmp_path):
    run(tmp_path / "a", 3)
    shard_path(tmp_path / "a", 2).write_bytes(shard_path(tmp_path / "a", 0).read_bytes())
    assert "belongs elsewhere" in check_directory(tmp_path / "a")["damaged"]["shard-000002.h5"]


class FillsUp(ToyModel):
    """The disk fills at the fourth shard: from then on no file may pass 20,000 bytes."""

    def __call__(self, theta, field=None, lists=None):
        FillsUp.calls = getattr(FillsUp, "calls", 0) + 1
        if FillsUp.calls == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return super().__call__(theta, field, lists)


def test_a_file_size_limit_is_a_clear_error_and_leaves_nothing_half_written(tmp_path, whole):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(UserError) as caught:
            simulate_directory(tmp_path, TOY, 8 * SHARD_SIZE, backend=Backend(load=lambda recipe: FillsUp(PIXELS)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "no room" in str(caught.value)
    assert "--resume" in str(caught.value)
    names = sorted(p.name for p in tmp_path.iterdir())
    # Shards are written while the next is computed: the third may or may not have been whole when the disk filled.
    whole_shards = ["config.json", "shard-000000.h5", "shard-000001.h5", "shard-000002.h5"]
    assert names in (whole_shards, whole_shards[:3])
    run(tmp_path, ALL, resume=True)
    assert content(tmp_path) == content(whole)


def test_a_full_disk_is_a_clear_error_and_leaves_nothing_half_written(tmp_path, whole):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs is not permitted here; the file size limit above tests the same path")
    try:
        with pytest.raises(UserError, match=r"no room .*No space left"):
            run(disk / "set", 8)
        names = sorted(p.name for p in (disk / "set").iterdir())
        assert "config.json" in names
        assert 1 <= len(names) - 1 < 8
        assert all(name == "config.json" or name.endswith(".h5") for name in names)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        run(disk / "set", 8, resume=True)
        for index in range(8):
            assert shard_path(disk / "set", index).read_bytes() == shard_path(whole, index).read_bytes()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_two_processes_on_one_directory_share_the_work_and_spoil_nothing(tmp_path, whole):
    directory = tmp_path / "shared"
    rivals = [start(directory, ALL, 0.01) for _ in range(2)]
    outcome = [rival.communicate(timeout=60) for rival in rivals]
    assert [rival.returncode for rival in rivals] == [0, 0], outcome
    assert content(directory) == content(whole)


def test_a_claim_is_exclusive_and_dies_with_its_process(tmp_path):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from kappaflow.simulation.directory import Claims;"
            "c = Claims(Path(sys.argv[1])); print(c.take('shard'), flush=True); time.sleep(60)",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert holder.stdout.readline() == "True\n"
    claims = Claims(tmp_path)
    assert claims.take("another")
    assert not claims.take("shard")
    holder.kill()
    holder.communicate()
    assert claims.take("shard")
    claims.close()
    assert not list(tmp_path.iterdir())


def test_several_processes_make_the_same_bytes(tmp_path, whole):
    run(tmp_path, ALL, backend=2)
    assert content(tmp_path) == content(whole)


def test_a_killed_worker_process_is_one_clear_line_and_nothing_is_lost(tmp_path, whole):
    def kill_one():
        while count(tmp_path) < 3:
            time.sleep(0.005)
        os.kill(multiprocessing.active_children()[-1].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    with pytest.raises(UserError, match="a worker process died"):
        run(tmp_path, ALL, pace=0.1, backend=2)
    killer.join(timeout=5)
    assert 3 <= count(tmp_path) < ALL
    assert not multiprocessing.active_children()
    run(tmp_path, ALL, resume=True)
    assert content(tmp_path) == content(whole)


def fails_at_seven(recipe):
    return FailsAtSeven(PIXELS)


class FailsAtSeven(ToyModel):
    """A forward model with a fault: the seventh shard that a process makes is not finite."""

    def __call__(self, theta, field=None, lists=None):
        FailsAtSeven.calls = getattr(FailsAtSeven, "calls", 0) + 1
        flux = super().__call__(theta, field, lists)
        return flux * np.float32(np.nan) if FailsAtSeven.calls == 7 else flux


def test_an_error_in_a_worker_process_reaches_the_user_and_stops_the_others(tmp_path):
    with pytest.raises(ArithmeticError, match="not finite and positive"):
        simulate_directory(tmp_path, TOY, ALL * SHARD_SIZE, backend=Backend(2, fails_at_seven))
    assert 6 <= count(tmp_path) < ALL
    assert check_directory(tmp_path)["damaged"] == {}
    assert not list(tmp_path.glob("*.part"))


def test_the_bytes_do_not_depend_on_the_order(whole):
    plan = plan_shards(TOY, 0, ToyModel(PIXELS))
    for index in (17, 3, ALL - 1):
        assert ShardJob(plan).make(ToyModel(PIXELS), index) == shard_path(whole, index).read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"amplitude": 2.0}, "amplitude is 1.0 there, 2.0 asked for"),
        ({"perturb": "none"}, 'perturb is "both" there, "none" asked for'),
        ({"pin": (("CH4", "base"),)}, "pin is [] there"),
        ({"broadening": (1.3, -0.15)}, "broadening is [[1.0, 0.0]] there, [[1.3, -0.15]] asked for"),
    ],
)
def test_a_directory_made_with_another_config_is_refused_saying_what_differs(tmp_path, options, words):
    run(tmp_path, 1)
    before = content(tmp_path)
    with pytest.raises(UserError) as caught:
        run(tmp_path, 1, resume=True, recipe=make_config(model="toy", **options))
    assert words in str(caught.value)
    assert content(tmp_path) == before


def test_another_seed_and_other_tables_are_refused_too(tmp_path):
    run(tmp_path, 1)
    with pytest.raises(UserError, match="seed is 0 there, 1 asked for"):
        simulate_directory(tmp_path, TOY, 128, seed=1, backend=Backend(load=partial(load, PIXELS, 0.0)))
    with pytest.raises(UserError, match="model is .* pixels is 300 there, 200 asked for"):
        simulate_directory(tmp_path, TOY, 128, backend=Backend(load=partial(load, 200, 0.0)))


def test_a_folder_of_other_things_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="not made by"):
        run(tmp_path, 1, resume=True)
    assert content(tmp_path) == {"thesis.tex": b"precious"}
    with pytest.raises(UserError, match="expected a directory"):
        run(tmp_path / "thesis.tex", 1)


def on_dask(test):
    """Dask warns on every start, and clients that found no scheduler go with the garbage: all of that within `test`."""
    return pytest.mark.filterwarnings("ignore")(pytest.mark.usefixtures("garbage_of_this_test")(test))


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as made:
        yield made


@on_dask
def test_a_worker_killed_in_the_middle_costs_nothing(tmp_path, whole, cluster):
    dask = pytest.importorskip("dask")
    killed = []

    def kill_one():
        while len(list(tmp_path.glob("shard-*.h5"))) < 5:
            time.sleep(0.005)
        killed.append(len(list(tmp_path.glob("shard-*.h5"))))
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    run(tmp_path, ALL, pace=0.02, backend=cluster.scheduler_address)
    killer.join(timeout=5)
    assert dask.config.get("scheduler", None) is None  # other users of Dask here, xarray for one, notice nothing
    assert killed
    assert killed[0] < ALL
    assert content(tmp_path) == content(whole)


@on_dask
def test_a_cluster_with_other_tables_is_refused(tmp_path, cluster):
    other = make_config(model="toy", amplitude=3.0)  # one that no worker has met yet
    with pytest.raises(UserError, match="digest"):
        simulate_directory(
            tmp_path, other, 256, backend=Backend(cluster.scheduler_address, partial(_elsewhere, os.getpid()))
        )


def _elsewhere(home, recipe):
    return ToyModel(PIXELS if os.getpid() == home else 200)


@on_dask
def test_no_scheduler_at_the_address_is_one_clear_line(tmp_path):
    pytest.importorskip("distributed")
    with pytest.raises(UserError, match="no scheduler answers there"):
        run(tmp_path, 1, backend="not an address")


# A scheduler and its worker in a process of their own, over TCP as on a cluster: it says where, and waits to be killed.
SCHEDULER = """
import sys
from distributed import LocalCluster
made = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None)
print(made.scheduler_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def elsewhere():
    """Start such a process, whose Python looks for modules in `path`, too; killed in the end."""
    pytest.importorskip("distributed")
    started = []

    def begin(path):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        environment = {**ENVIRONMENT, "PYTHONPATH": str(path)}
        started.append(subprocess.Popen([sys.executable, "-c", SCHEDULER], text=True, env=environment, **pipes))
        return started[-1], started[-1].stdout.readline().strip()

    yield begin
    for process in started:
        process.kill()
        process.communicate()  # closes the pipes


@on_dask
def test_a_lost_scheduler_is_one_clear_line_and_the_finished_shards_stay(tmp_path, whole, elsewhere):
    doomed, address = elsewhere(Path(__file__).parent)

    def end():
        while count(tmp_path) < 2:
            time.sleep(0.005)
        doomed.kill()

    ender = threading.Thread(target=end, daemon=True)
    ender.start()
    with pytest.raises(UserError, match=r"lost; .*--resume"):
        run(tmp_path, ALL, pace=0.1, backend=address)
    ender.join(timeout=20)
    assert 2 <= count(tmp_path) < ALL
    run(tmp_path, ALL, resume=True)
    assert content(tmp_path) == content(whole)


@on_dask
def test_a_cluster_that_lacks_the_program_is_one_clear_line(tmp_path, elsewhere):
    _, address = elsewhere(tmp_path / "nothing")  # this module, whose `load` the shards need, is not there
    with pytest.raises(UserError, match="install the same kappaflow"):
        run(tmp_path / "out", 1, backend=address)
