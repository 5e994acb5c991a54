import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import RolecraftError, RunMismatchError, UserError

CONFIG = {"roles": ["pirate"], "strengths": [1.0, 2.0], "seeds": [0, 1], "nested": {"draws": 5}, "workers": "1"}


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "run"


def open_store(directory, config=CONFIG, **options):
    return RunStore.open(directory, "screen", config, **options)


def child(code, *arguments):
    """Start a process that has the store open; it says `ready` when it has come to the point."""
    header = f"import os, signal, sys\nfrom rolecraft._run import RunStore\nCONFIG = {CONFIG!r}\n"
    return subprocess.Popen(
        [sys.executable, "-c", header + textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class TestRows:
    def test_rows_come_back_in_order_and_the_first_write_wins(self, directory):
        with open_store(directory) as store:
            assert store.put("answers", "b", {"text": "Arr — 'ö'", "n": 1, "none": None})
            assert store.put_many("answers", {"a": [1, 2], "b": {"text": "second"}}) == 1
            assert store.rows("answers") == {"b": {"text": "Arr — 'ö'", "n": 1, "none": None}, "a": [1, 2]}
            assert list(store.rows("answers")) == ["b", "a"]
            assert not store.put("answers", "b", {})
            assert store.get("answers", "a") == [1, 2]
            assert store.get("answers", "z") is None
            assert store.count("answers") == 2
            assert store.count("scores") == 0

    def test_missing_keeps_the_order_and_names_each_key_once(self, directory):
        with open_store(directory) as store:
            store.put("answers", "b", 1)
            assert store.missing("answers", ["c", "b", "a", "c"]) == ["c", "a"]
            assert store.missing("scores", ["b"]) == ["b"]

    def test_numpy_values_are_stored_as_numbers(self, directory):
        with open_store(directory) as store:
            store.put("answers", "a", {"mean": np.float32(0.5), "all": np.arange(3), "yes": np.bool_(True)})
            assert store.get("answers", "a") == {"mean": 0.5, "all": [0, 1, 2], "yes": True}

    @pytest.mark.parametrize("row", [{"x": float("nan")}, {"x": np.inf}, {"x": object()}, {"x": np.array([np.nan])}])
    def test_what_is_not_json_is_refused_by_name_and_nothing_of_the_batch_is_written(self, directory, row):
        with open_store(directory) as store:
            with pytest.raises(ValueError, match="stage 'answers', row 'bad'"):
                store.put_many("answers", {"good": 1, "bad": row})
            assert store.count("answers") == 0

    def test_threads_may_share_a_store(self, directory):
        with open_store(directory) as store:

            def write(thread):
                for number in range(50):
                    with store.timed(f"stage{thread}"):
                        store.put("answers", f"{thread}/{number}", number)

            threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert store.count("answers") == 200


class TestResuming:
    def test_a_resumed_run_has_its_rows_its_identity_and_its_history(self, directory):
        with open_store(directory) as store:
            store.put("answers", "a", 1)
            first = store.id
        with open_store(directory, CONFIG | {"workers": "4"}) as store:
            assert store.id == first
            assert store.missing("answers", ["a", "b"]) == ["b"]
            assert store.config["workers"] == "4"
        record = json.loads((directory / "run.json").read_text())
        assert record["kind"] == "screen"
        assert record["seeds"] == [0, 1]
        assert record["config"]["strengths"] == [1, 2]
        assert record["versions"]["rolecraft"]
        assert record["machine"]["cores"] >= 1
        assert len(record["resumed"]) == 1

    def test_a_changed_configuration_is_refused_with_every_field_that_differs(self, directory):
        with open_store(directory) as store:
            store.put("answers", "a", 1)
        changed = {**CONFIG, "strengths": [1, 3], "nested": {"draws": 6}, "extra": True}
        with pytest.raises(RunMismatchError) as caught:
            open_store(directory, changed)
        message = str(caught.value)
        assert "strengths: the run has [1, 2], you gave [1, 3]" in message
        assert "nested.draws: the run has 5, you gave 6" in message
        assert "extra: the run has null, you gave true" in message
        assert "roles" not in message
        with RunStore.read(directory) as view:
            assert view.config["strengths"] == [1, 2]

    def test_another_kind_is_refused(self, directory):
        with open_store(directory) as store:
            store.put("answers", "a", 1)
        with pytest.raises(RunMismatchError, match=r"kind 'screen', expected 'study'"):
            RunStore.open(directory, "study", CONFIG)

    def test_without_resume_a_run_with_rows_is_refused(self, directory):
        with open_store(directory, resume=False) as store:
            store.put("answers", "a", 1)
        with pytest.raises(RunMismatchError, match="1 rows; go on with it by --resume"):
            open_store(directory, resume=False)

    def test_a_run_that_failed_before_its_first_row_does_not_block_its_directory(self, directory):
        open_store(directory, resume=False).close()
        with open_store(directory, {"roles": ["sailor"]}, resume=False) as store:
            assert store.config == {"roles": ["sailor"]}

    def test_a_directory_of_other_files_is_refused(self, directory):
        directory.mkdir()
        (directory / "thesis.txt").write_text("mine")
        with pytest.raises(RunMismatchError, match=r"other files \(thesis.txt\)"):
            open_store(directory)
        with pytest.raises(RunMismatchError, match="is a file"):
            open_store(directory / "thesis.txt")

    def test_a_second_process_is_refused_by_the_first_ones_number(self, directory):
        process = child(
            """
            store = RunStore.open(sys.argv[1], "screen", CONFIG)
            print("ready", flush=True)
            signal.pause()
            """,
            directory,
        )
        try:
            assert process.stdout.readline() == "ready\n"
            with pytest.raises(RunMismatchError, match=f"process {process.pid} is working on this run"):
                open_store(directory)
        finally:
            process.kill()
            process.communicate()
        open_store(directory).close()

    def test_one_process_cannot_open_a_run_twice(self, directory):
        with open_store(directory), pytest.raises(RunMismatchError, match=str(os.getpid())):
            open_store(directory)
        open_store(directory).close()

    def test_looking_who_holds_a_run_does_not_keep_the_next_process_out(self, directory):
        open_store(directory).close()
        with (directory / "run.lock").open("rb") as reader:
            fcntl.flock(reader, fcntl.LOCK_SH)
            threading.Timer(0.05, fcntl.flock, (reader, fcntl.LOCK_UN)).start()
            open_store(directory).close()


class TestCrashes:
    @pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "COMMIT"])
    def test_killed_in_mid_write_loses_only_the_batch_in_flight(self, directory, statement):
        process = child(
            """
            store = RunStore.open(sys.argv[1], "screen", CONFIG)
            for number in range(5):
                with store.timed("answers"):
                    store.put_many("answers", {f"{number}/{part}": "x" * 500 for part in range(100)})
            seen = 0
            def kill(sql):
                global seen
                seen += sql.startswith(sys.argv[2])
                if seen == (50 if sys.argv[2] == "INSERT" else 1):
                    os.kill(os.getpid(), signal.SIGKILL)
            store._database.set_trace_callback(kill)
            store.put_many("answers", {f"lost/{part}": "x" * 500 for part in range(100)})
            print("not killed")
            """,
            directory,
            statement,
        )
        output, _ = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert output == ""
        with open_store(directory) as store:
            assert store.count("answers") == 500
            assert not any(key.startswith("lost") for key in store.rows("answers"))
            assert store._query("PRAGMA integrity_check") == [("ok",)]
            assert store.timings()["answers"]["seconds"] > 0
            store.put_many("answers", {f"lost/{part}": 1 for part in range(100)})
            assert store.count("answers") == 600

    def test_killed_at_any_instant_keeps_every_row_that_was_put(self, directory):
        acknowledged = 0
        for delay in (0.02, 0.05, 0.11):
            process = child(
                """
                store = RunStore.open(sys.argv[1], "screen", CONFIG)
                number = store.count("answers")
                print(number, flush=True)
                while True:
                    store.put("answers", str(number), {"text": "x" * 300})
                    number += 1
                    print(number, flush=True)
                """,
                directory,
            )
            assert int(process.stdout.readline()) >= acknowledged
            time.sleep(delay)
            process.kill()
            output, _ = process.communicate(timeout=60)
            complete = [line for line in output.split("\n")[:-1] if line]
            acknowledged = int(complete[-1])
            with RunStore.read(directory) as view:
                assert acknowledged <= view.count("answers") <= acknowledged + 1
                assert view.holder is None

    @pytest.mark.parametrize("left", [["run.lock"], ["run.lock", "run.db"], ["run.lock", "run.db", ".run.json.x1"]])
    def test_killed_while_starting_leaves_a_directory_that_can_be_used(self, directory, left):
        directory.mkdir()
        for name in left:
            (directory / name).touch()
        with open_store(directory) as store:
            store.put("answers", "a", 1)

    def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(self, directory):
        with open_store(directory) as store:
            store.put("answers", "a", "x" * 1000)
            pages = store._database.execute("PRAGMA page_count").fetchone()[0]
            store._database.execute(f"PRAGMA max_page_count = {pages + 2}")
            with pytest.raises(RolecraftError, match=r"the disk is full.*free some space and run again with --resume"):
                store.put_many("answers", {f"b{number}": "x" * 4000 for number in range(20)})
            assert store.rows("answers") == {"a": "x" * 1000}
        with open_store(directory) as store:
            assert store.put_many("answers", {f"b{number}": "x" * 4000 for number in range(20)}) == 20

    def test_a_file_system_that_is_full_is_said(self, directory, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RolecraftError, match="No space left on device"):
            open_store(directory)
        monkeypatch.undo()
        open_store(directory).close()

    def test_a_damaged_database_is_said(self, directory):
        with open_store(directory) as store:
            store.put_many("answers", {str(number): "x" * 1000 for number in range(100)})
        content = bytearray((directory / "run.db").read_bytes())
        (directory / "run.db").write_bytes(b"garbage!" * (len(content) // 8))
        with pytest.raises(RolecraftError, match="the database is damaged"):
            open_store(directory)
        with pytest.raises(RolecraftError, match="the database is damaged"), RunStore.read(directory) as view:
            view.rows("answers")
        content[4096:] = b"\xff" * (len(content) - 4096)
        (directory / "run.db").write_bytes(content)
        with pytest.raises(RolecraftError, match="the database is damaged"), RunStore.read(directory) as view:
            view.rows("answers")

    def test_a_damaged_or_lost_file_is_said(self, directory):
        with open_store(directory) as store:
            store.put("answers", "a", 1)
        record = (directory / "run.json").read_text()
        (directory / "run.json").write_text(record[:100])
        with pytest.raises(RunMismatchError, match=r"run\.json: damaged"):
            open_store(directory)
        (directory / "run.json").write_text(record)
        (directory / "run.db").unlink()
        with pytest.raises(RunMismatchError, match=r"run\.db is missing"):
            open_store(directory)


class TestReading:
    def test_a_run_is_read_while_it_goes_on(self, directory):
        with open_store(directory) as store:
            store.put("answers", "a", 1)
            with RunStore.read(directory) as view:
                assert view.rows("answers") == {"a": 1}
                store.put("answers", "b", 2)
                assert view.rows("answers") == {"a": 1, "b": 2}
                assert view.holder == os.getpid()
                with pytest.raises(sqlite3.OperationalError, match="readonly"):
                    view._database.execute("DELETE FROM units")
            store.put("answers", "c", 3)
        with RunStore.read(directory) as view:
            assert view.holder is None
            assert (view.id, view.kind) == (store.id, "screen")

    def test_a_copy_of_a_finished_run_is_read_where_nothing_can_be_written(self, directory, monkeypatch):
        with open_store(directory) as store:
            store.put("answers", "a", 1)
        assert not (directory / "run.db-wal").exists()
        monkeypatch.setattr(os, "access", lambda *_: False)
        before = sorted(path.name for path in directory.iterdir())
        with RunStore.read(directory) as view:
            assert view.rows("answers") == {"a": 1}
            assert sorted(path.name for path in directory.iterdir()) == before

    def test_what_is_no_run_is_refused_with_the_runs_nearby(self, directory):
        open_store(directory).close()
        with pytest.raises(UserError, match=r"not a run directory.*Runs in it: run"):
            RunStore.read(directory.parent)


class TestTimings:
    def test_seconds_add_up_over_blocks_and_resumes(self, directory):
        for expected in (1, 2):
            with open_store(directory) as store:
                with store.timed("answers"):
                    time.sleep(0.05)
                    store.put("answers", str(expected), 1)
                timing = store.timings()["answers"]
                assert timing["units"] == expected
                assert 0.05 * expected <= timing["seconds"] < 0.05 * expected + 1

    def test_a_failed_block_is_counted_too(self, directory):
        with open_store(directory) as store:
            with pytest.raises(KeyError), store.timed("answers"):
                raise KeyError
            assert store.timings()["answers"] == {"seconds": pytest.approx(0, abs=0.5), "units": 0}

    def test_the_seconds_of_a_batch_are_shared_by_its_rows(self, directory):
        with open_store(directory) as store:
            store.put_many("answers", {"a": 1, "b": 2}, seconds=3.0)
            assert store._query("SELECT seconds FROM units") == [(1.5,), (1.5,)]
