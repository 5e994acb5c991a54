import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from rolecraft import __version__
from rolecraft._cli import main
from rolecraft._cli._errors import guarded
from rolecraft._run import RunStore
from rolecraft.errors import BudgetExceededError, RoleError


@pytest.fixture
def run(tmp_path):
    rows = {f"a/{seed}": {"arm": "a", "seed": seed, "heads": heads} for seed, heads in enumerate((0.5, 0.7))}
    with RunStore.open(tmp_path / "run", "study", {"system": "007-toy", "seeds": [0, 1]}) as store, store.timed("rows"):
        store.put_many("rows", rows)
    return tmp_path / "run"


class TestMain:
    def test_help_names_the_commands(self, rolecraft):
        code, out, _ = rolecraft("--help")
        assert code == 0
        for name in main.COMMANDS:
            assert f"  {name}" in out

    def test_the_version_is_printed(self, rolecraft):
        assert rolecraft("--version") == (0, f"rolecraft {__version__}\n", "")

    @pytest.mark.parametrize(
        ("arguments", "hint"),
        [(["shwo"], "Did you mean 'show'"), (["systems", "table", "--jsn"], "--json"), (["show"], "RUN")],
    )
    def test_an_unknown_word_ends_in_a_hint_and_code_2(self, rolecraft, arguments, hint):
        code, out, err = rolecraft(*arguments)
        assert (code, out) == (2, "")
        assert hint in err
        assert "Traceback" not in err

    @pytest.mark.parametrize(("error", "code"), [(RoleError("roles.yaml: no"), 2), (BudgetExceededError("used up"), 3)])
    def test_our_errors_are_one_message_and_their_code(self, error, code, capsys):
        def fail():
            raise error

        assert guarded(fail) == code
        assert capsys.readouterr().err == f"error: {error}\n"

    def test_a_defect_keeps_its_traceback(self):
        with pytest.raises(ZeroDivisionError):
            guarded(lambda: 1 / 0)

    def test_an_interrupt_says_how_to_resume(self, tmp_path):
        code = f"""
        import sys, time
        from rolecraft._cli import main
        from rolecraft._run import RunStore

        @main.app.command()
        def wait() -> None:
            with RunStore.open({str(tmp_path / "my run")!r}, "study", {{}}) as store:
                store.put("rows", "a", 1)
                print("ready", flush=True)
                time.sleep(60)

        sys.argv = ["rolecraft", "wait"]
        main.main()
        """
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "interrupted; everything computed so far is stored." in err
        assert f"Resume with: rolecraft wait --out '{tmp_path}/my run' --resume" in err
        assert "Traceback" not in err
        with RunStore.read(tmp_path / "my run") as view:
            assert view.count("rows") == 1

    def test_a_reader_that_leaves_early_is_no_error(self):
        done = subprocess.run(
            [
                "bash",
                "-c",
                f"set -o pipefail; {sys.executable} -m rolecraft._cli.main systems show cast-vectors | head -1",
            ],
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        assert "BrokenPipe" not in done.stderr


class TestShow:
    def test_a_run_is_described(self, rolecraft, run):
        code, out, err = rolecraft("show", run)
        assert (code, err) == (0, "")
        for text in ("study", "not running", "007-toy", "rows", "seeds"):
            assert text in out

    def test_the_same_as_json(self, rolecraft, run):
        code, out, _ = rolecraft("show", run, "--json")
        found = json.loads(out)
        assert code == 0
        assert found["kind"] == "study"
        assert found["running"] is None
        assert found["stages"][0]["stage"] == "rows"
        assert found["stages"][0]["units"] == 2

    def test_a_run_that_goes_on_is_shown_with_its_process(self, rolecraft, run):
        with RunStore.open(run, "study", {"system": "007-toy", "seeds": [0, 1]}):
            _, out, _ = rolecraft("show", run)
        assert f"running in process {os.getpid()}" in out

    def test_rows_are_exported(self, rolecraft, run, tmp_path):
        code, out, _ = rolecraft("show", run, "--export", tmp_path / "rows.csv", "--stage", "rows")
        assert (code, out) == (0, f"2 rows written to {tmp_path / 'rows.csv'}\n")
        assert (tmp_path / "rows.csv").read_text().splitlines() == ["key,arm,seed,heads", "a/0,a,0,0.5", "a/1,a,1,0.7"]
        code, _, err = rolecraft("show", run, "--export", tmp_path / "rows.csv")
        assert code == 2
        assert "--export needs --stage, one of rows" in err

    def test_a_screen_shows_its_verdicts_once_it_has_scores(self, rolecraft, tmp_path, monkeypatch):
        verdicts = [{"role": "pirate", "verdict": "PASS", "strength": 1.5, "reason": "", "r_motivation": 0.123}]
        monkeypatch.setattr("rolecraft.screening.verdict_table", lambda run: verdicts)
        with RunStore.open(tmp_path / "screen", "screen", {"seeds": [0]}) as store:
            store.put("answers", "a", {"answer": "Arr"})
            assert "pirate" not in rolecraft("show", tmp_path / "screen")[1]
            store.put("scores0", "a", {})
        _, out, _ = rolecraft("show", tmp_path / "screen")
        assert "pirate" in out
        assert "PASS" in out
        assert "0.123" not in out
        _, out, _ = rolecraft("show", tmp_path / "screen", "--json")
        assert json.loads(out)["verdicts"] == verdicts

    def test_what_is_no_run_is_said(self, rolecraft, tmp_path):
        code, _, err = rolecraft("show", tmp_path / "nowhere")
        assert code == 2
        assert "not a run directory" in err


class TestSystems:
    @pytest.fixture(autouse=True)
    def toys(self, monkeypatch, tmp_path):
        from rolecraft.systems import _registry, _studies, _table
        from tests.systems.test_framework import ENTRY, TWO

        for module in (_registry, _table):
            monkeypatch.setattr(module, "entries", lambda: (ENTRY, TWO))
        monkeypatch.setattr("rolecraft.systems.entries", lambda: (ENTRY, TWO), raising=False)
        monkeypatch.setattr(_studies, "results_folder", lambda: tmp_path / "results")
        monkeypatch.setattr(_table, "results_folder", lambda: tmp_path / "results")
        (tmp_path / "results").mkdir()
        monkeypatch.chdir(tmp_path)

    def test_list_and_show(self, rolecraft):
        _, out, _ = rolecraft("systems", "list", "--json")
        assert [(row["number"], row["studies"]) for row in json.loads(out)] == [
            (7, ["small"]),
            (8, ["planted", "wide"]),
        ]
        assert "toy-coin" in rolecraft("systems", "list")[1]
        _, out, _ = rolecraft("systems", "show", "7")
        for text in ("A Biased Coin", "Exact: the coin.", "bias", "0.7 against 0.5"):
            assert text in out
        _, out, _ = rolecraft("systems", "show", "toy-coin", "--json")
        assert {"field": "bias", "default": 0.7} in json.loads(out)["studies"]["small"]

    def test_run_prints_the_verdict_and_records_it(self, rolecraft, tmp_path):
        code, out, err = rolecraft("systems", "run", "toy-coin", "--seeds", "0,1", "--set", "throws=80", "--record")
        assert code == 0
        assert "verdict:   reproduced (a toy)" in out
        assert "recorded in" in err
        (directory,) = (tmp_path / "runs").iterdir()
        assert directory.name.endswith("-toy-coin")
        recorded = json.loads((tmp_path / "results" / "007-toy-coin.json").read_text())["studies"]["small"]
        assert recorded["config"]["throws"] == 80
        assert recorded["seeds"] == [0, 1]
        _, out, _ = rolecraft("systems", "table", "--json")
        first = json.loads(out)[0]
        assert (first["name"], first["verdict"], first["seeds"]) == ("toy-coin", "reproduced", 2)
        assert "reproduced" in rolecraft("systems", "table")[1]

    def test_several_studies_have_a_run_each(self, rolecraft, tmp_path):
        code, out, _ = rolecraft("systems", "run", "--all", "--json")
        assert code == 0
        assert [(row["name"], row["study"]) for row in json.loads(out)] == [
            ("toy-coin", "small"),
            ("toy-two", "planted"),
            ("toy-two", "wide"),
        ]
        assert len(list((tmp_path / "runs").iterdir())) == 3

    def test_one_study_that_fails_does_not_stop_the_others(self, rolecraft):
        code, out, err = rolecraft("systems", "run", "--all", "--full", "--set", "arms=fair")
        assert (code, out) == (2, "")
        assert "3 of 3 studies failed" in err
        assert "arm 'biased' is not in the rows" in err

    def test_an_existing_run_goes_on_only_when_asked(self, rolecraft, tmp_path):
        assert rolecraft("systems", "run", "7", "--out", "run")[0] == 0
        code, _, err = rolecraft("systems", "run", "7", "--out", "run")
        assert code == 2
        assert "--resume" in err
        assert rolecraft("systems", "run", "7", "--out", "run", "--resume")[0] == 0

    def test_an_interrupt_among_several_studies_says_how_to_resume_the_one(self, rolecraft, monkeypatch, tmp_path):
        from rolecraft.systems import _base
        from tests.systems import test_framework

        def interrupted(result):
            with RunStore.open(tmp_path / "runs" / "within", "screen", {}):
                raise KeyboardInterrupt

        monkeypatch.setitem(
            test_framework.TWO.module.STUDIES,
            "wide",
            _base.Study(test_framework.Config, test_framework.run, interrupted),
        )
        code, out, err = rolecraft("systems", "run", "--all", "--set", "throws=60", "--seeds", "0,1")
        assert code == 130
        assert "study planted" in out
        (directory,) = (tmp_path / "runs").glob("*-toy-two-wide")
        out = directory.relative_to(tmp_path)
        command = f"systems run toy-two --study wide --seeds 0,1 --set throws=60 --out {out} --resume"
        assert f"Resume with: rolecraft {command}\n" in err
        monkeypatch.undo()
        with RunStore.read(directory) as view:
            assert view.count("rows") == 4

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "expected the name of a system, or --all"),
            (["toy-coin", "--all"], "expected the name of a system, or --all"),
            (["toy-two", "--out", "run"], "name one by --study"),
            (["toy-coin", "--resume"], "--resume goes on with the run in --out"),
            (["toy-coin", "--seeds", "a"], "--seeds 'a': expected whole numbers"),
            (["toy-coin", "--set", "bais=1"], "Did you mean 'bias'"),
            (["toy-two", "--study", "plantd"], "Did you mean 'planted'"),
        ],
    )
    def test_mistakes_are_said(self, rolecraft, arguments, message):
        code, out, err = rolecraft("systems", "run", *arguments)
        assert (code, out) == (2, "")
        assert message in err
