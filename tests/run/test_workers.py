import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from rolecraft._run import map_shards
from rolecraft.errors import RolecraftError, UserError


def square(number):
    return number * number, os.getpid()


def threads(_):
    return os.environ.get("OMP_NUM_THREADS")


def fail_at_two(number):
    if number == 2:
        raise UserError("shard 2 is impossible")
    return number


def die_at_two(number):
    if number == 2:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def collect(task, shards, workers):
    """Return what was yielded, and the error that ended it."""
    found = {}
    try:
        for index, result in map_shards(task, shards, workers):
            found[index] = result
    except RolecraftError as error:
        return found, error
    return found, None


def test_one_worker_runs_here_in_order_and_pickles_nothing():
    seen = []
    results = map_shards(lambda shard: (seen.append(shard), os.getpid())[1], [3, 1, 2])
    assert seen == []
    assert next(results) == (0, os.getpid())
    assert seen == [3]
    assert [index for index, _ in results] == [1, 2]
    assert seen == [3, 1, 2]


def test_processes_give_the_same_results():
    found, error = collect(square, [1, 2, 3, 4, 5, 6], "2")
    assert error is None
    assert {index: value for index, (value, _) in found.items()} == {0: 1, 1: 4, 2: 9, 3: 16, 4: 25, 5: 36}
    assert os.getpid() not in {process for _, process in found.values()}
    assert dict(map_shards(threads, [0, 1], 2)) == dict.fromkeys((0, 1), str(max(1, os.cpu_count() // 2)))


def test_an_error_of_the_task_is_raised_after_the_results():
    found, error = collect(fail_at_two, [0, 1, 2], 2)
    assert found == {0: 0, 1: 1}
    assert isinstance(error, UserError)
    assert str(error) == "shard 2 is impossible"


def test_a_worker_that_dies_is_said_and_the_results_are_kept():
    found, error = collect(die_at_two, [0, 1, 2], 2)
    assert found == {0: 0, 1: 1}
    assert "a worker process died (killed, or out of memory) after 2 of 3 parts" in str(error)
    assert "--resume" in str(error)


def test_workers_go_when_their_coordinator_is_killed(tmp_path):
    script = tmp_path / "coordinator.py"
    script.write_text(
        textwrap.dedent("""
        import os, time
        from pathlib import Path
        from rolecraft._run import map_shards

        def nap(folder):
            Path(folder, str(os.getpid())).touch()
            time.sleep(60)

        if __name__ == "__main__":
            list(map_shards(nap, [str(Path(__file__).parent / "pids")] * 2, "2"))
        """)
    )
    (tmp_path / "pids").mkdir()
    process = subprocess.Popen([sys.executable, str(script)])
    try:
        wait_until(lambda: len(list((tmp_path / "pids").iterdir())) == 2)
    finally:
        process.kill()
        process.wait()
    workers = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    wait_until(lambda: not any(map(is_running, workers)))


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("workers", ["0", "-1", "two", "ray:", "http://host", "1.5", ""])
def test_what_is_no_number_of_workers_is_refused(workers):
    with pytest.raises(UserError, match="expected a number from 1, 'ray' or"):
        map_shards(square, [1], workers)


@pytest.mark.slow
def test_a_local_ray_gives_the_same_results():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        found, error = collect(square, [1, 2, 3], "ray")
        assert error is None
        assert {index: value for index, (value, _) in found.items()} == {0: 1, 1: 4, 2: 9}
        assert ray.is_initialized()

        found, error = collect(fail_at_two, [0, 1, 2], "ray")
        assert found == {0: 0, 1: 1}
        assert isinstance(error, UserError)
        assert str(error) == "shard 2 is impossible"

        found, error = collect(die_at_two, [0, 1, 2], "ray")
        assert found == {0: 0, 1: 1}
        assert "a worker process died (killed, or out of memory) after 2 of 3 parts" in str(error)
    finally:
        ray.shutdown()


@pytest.mark.parametrize(("workers", "environment"), [("ray", "127.0.0.1:9"), ("ray://127.0.0.1:9", "")])
def test_a_ray_cluster_that_does_not_answer_is_said_at_once(workers, environment, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", environment)
    _, error = collect(square, [1, 2], workers)
    assert "no Ray cluster answers at" in str(error)
    assert "127.0.0.1:9 (" in str(error)
