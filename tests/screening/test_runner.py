import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from rolecraft._run import Budget, RunStore
from rolecraft.conditioning import conditioned
from rolecraft.errors import BudgetExceededError, GridError, LockError, RoleError, RunMismatchError, UserError
from rolecraft.measures import DIMENSIONS, JudgeItem, Score
from rolecraft.roles import Inventory, load_inventory, load_questions
from rolecraft.screening import Cell, ScreenConfig, ScreenRun, load_lock, load_results
from rolecraft.screening._answers import answer_shards
from rolecraft.testing import tiny_model

CONFIG = ScreenConfig(
    roles=("pirate", "poet", "tutor"), questions=3, strengths=(1.0, 2.0), control=("axis", "random", "shuffled"),
    seeds=(0,), instructions=1, role_questions=4, max_tokens=4, accept="all",
)  # fmt: skip


@dataclass(frozen=True)
class HashJudge:
    """Scores by a hash of role and answer: no meaning, but the same for the same item."""

    name: str = "hash"
    rubric_hash: str = "1"
    dimensions: tuple[str, ...] = DIMENSIONS

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        return [
            Score({d: hashlib.sha256(f"{d}{i.role.id}{i.answer}".encode()).digest()[0] / 2.55 for d in DIMENSIONS})
            for i in items
        ]


def open_run(directory: Path, config: ScreenConfig = CONFIG, **options):
    options = {"model": tiny_model(), "judges": (HashJudge(),), "quiet": True} | options
    return ScreenRun.open(config, directory, **options)


def screen(directory: Path, config: ScreenConfig = CONFIG, **options):
    with open_run(directory, config, **options) as run:
        run.run()
        return run.results()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("screen") / "run"
    screen(directory)
    return directory


def rows(directory: Path, stage: str) -> dict:
    with RunStore.read(directory) as store:
        return store.rows(stage)


def test_a_screen_fills_its_grid_and_writes_a_lock(finished):
    results = load_results(finished)
    assert len(results.table) == 3 * 3 * (2 + 2 * 4)
    assert len(rows(finished, "answers")) == len(results.table) - 2 * 3, "the baseline is answered once for all roles"
    assert list(results.verdicts["role"]) == ["pirate", "poet", "tutor"]
    assert results.geometry is not None
    lock = load_lock(finished / "roles.lock")
    assert set(lock.content.roles) == {"pirate", "poet", "tutor"}
    assert lock.content.revision == tiny_model().revision


def test_controls_have_the_norm_of_the_role_and_another_direction(finished):
    with open_run(finished) as run:
        arms = run.extract().arms
    own = arms["pirate", "role", 0]
    for control in ("axis", "random", "shuffled"):
        direction = arms["pirate", control, 0]
        assert direction.norm() == pytest.approx(own.norm(), rel=1e-4)
        assert abs(direction.cosine(own)) < 0.999


def test_the_reference_stands_on_the_rung_that_was_asked_for():
    pirate = load_inventory("core-v1")["pirate"]
    bare = pirate.edited(id="bare", instructions=())
    question = load_questions("questions-v1").split("evaluation")[0]
    cells = [Cell(role, arm, 0.0, question.id, 0) for role in ("pirate", "bare") for arm in ("prompted", "baseline")]
    roles = {role.id: role for role in (pirate, bare)}
    for rung in ("line", "instruction", "reference"):
        (shard,) = answer_shards(cells, roles, {question.id: question}, {}, rung)
        chats = dict(zip(shard.keys, shard.chats, strict=True))
        expected = {
            ("pirate", "prompted"): conditioned(pirate, question.text, rung),
            ("bare", "prompted"): conditioned(bare, question.text, "line" if rung == "line" else "reference"),
        }
        for cell in cells:
            wanted = expected.get((cell.role, cell.arm), conditioned(pirate, question.text, "none"))
            assert chats[cell.answer_key] == wanted, (rung, cell)


@pytest.mark.parametrize("reextract", [False, True])
def test_seeds_screen_the_locked_direction_or_extract_their_own(reextract, tmp_path):
    config = replace(CONFIG, seeds=(4, 5), roles=("pirate", "poet"), reextract=reextract)
    with open_run(tmp_path / "run", config) as run:
        book = run.extract()
        assert set(run.store.rows("directions")) == {
            f"{role}/{seed}" for role in config.roles for seed in ((4, 5) if reextract else (4,))
        }
    first, second = (book.arms["pirate", "role", seed].at() for seed in (4, 5))
    assert np.array_equal(first, second) is not reextract
    first, second = (book.arms["pirate", "random", seed].at() for seed in (4, 5))
    assert not np.allclose(first, second), "random controls are drawn per seed"


def test_running_again_redoes_nothing(finished):
    before = (finished / "roles.lock").read_text()
    model = tiny_model()
    model.generate = lambda *args, **kwargs: pytest.fail("generated again")
    model.logprobs = lambda *args, **kwargs: pytest.fail("scored again")
    screen(finished, model=model)
    assert (finished / "roles.lock").read_text() == before


def test_two_runs_of_one_configuration_agree(finished, tmp_path):
    screen(tmp_path / "again")
    assert rows(finished, "answers") == rows(tmp_path / "again", "answers")
    assert rows(finished, "scores0") == rows(tmp_path / "again", "scores0")


def test_a_changed_configuration_is_refused_and_named(finished):
    with pytest.raises(RunMismatchError, match="strengths"), open_run(finished, replace(CONFIG, strengths=(1.0, 3.0))):
        pass


def test_an_interrupted_screen_goes_on_where_it_was(finished, tmp_path):
    """The judge dies in mid-run; the second session answers nothing again and finds the same."""

    class Dying(HashJudge):
        def score(self, items):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        screen(tmp_path / "run", judges=(Dying(),))
    model = tiny_model()
    model.generate = lambda *args, **kwargs: pytest.fail("generated again")
    screen(tmp_path / "run", model=model)
    assert rows(tmp_path / "run", "scores0") == rows(finished, "scores0")


KILLED = """
import sys
from pathlib import Path
from tests.screening.test_runner import CONFIG, HashJudge, screen
screen(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("stage", [pytest.param("directions", marks=pytest.mark.slow), "answers"])
def test_kill_9_loses_nothing_stored(stage, finished, tmp_path):
    directory = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(directory)], cwd=Path(__file__).parents[2])
    deadline = time.time() + 60
    stored = 0
    while time.time() < deadline and not stored and process.poll() is None:
        time.sleep(0.02)
        if (directory / "run.db").exists() and (directory / "run.json").exists():
            with RunStore.read(directory) as store:
                try:
                    stored = store.count(stage)
                except Exception:
                    stored = 0
    os.kill(process.pid, signal.SIGKILL) if process.poll() is None else None
    process.wait()
    assert stored, "the process never got there"
    screen(directory)
    assert rows(directory, "answers") == rows(finished, "answers")
    assert rows(directory, "scores0") == rows(finished, "scores0")


def test_adaptive_resumes_to_the_same_cells(tmp_path):
    config = replace(CONFIG, adaptive=True, round_questions=3, questions=6)
    whole = screen(tmp_path / "whole", config)
    with open_run(tmp_path / "part", config) as run:
        book = run.extract()
        cells = run.screen(book).ask()
        run.answer(cells, book)
    part = screen(tmp_path / "part", config)
    assert set(part.table["question"]) == set(whole.table["question"])
    assert rows(tmp_path / "part", "scores0") == rows(tmp_path / "whole", "scores0")


def test_the_budget_stops_and_keeps(tmp_path):
    with pytest.raises(BudgetExceededError, match="--resume"):
        screen(tmp_path / "run", budget=Budget(tokens=10))
    assert rows(tmp_path / "run", "answers")
    assert len(screen(tmp_path / "run").table) == 90


def test_an_impossible_role_does_not_stop_the_others(tmp_path):
    inventory = load_inventory("core-v1").select(["pirate", "poet", "tutor"])
    bare = inventory["tutor"].edited(instructions=(), questions=())
    inventory = Inventory("mine", "1", (*inventory.roles[:2], bare))
    results = screen(tmp_path / "run", replace(CONFIG, roles=()), inventory=inventory)
    row = results.verdicts.set_index("role").loc["tutor"]
    assert row["verdict"] != "PASS"
    assert "no instructions" in row["failed"]
    assert len(results.table) == 2 * 3 * 10 + 3 * 2


def test_rows_with_non_finite_logits_are_missing_not_fatal(tmp_path):
    class Broken:
        """A model whose answers under one question come back as errors."""

        def __init__(self):
            self._inner = tiny_model()

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def generate(self, chats, sampling, steering=None, seeds=None):
            replies = self._inner.generate(chats, sampling, steering, seeds)
            if steering is not None:
                replies[0] = replace(replies[0], text="", finish="error", note="logits are not finite")
            return replies

    results = screen(tmp_path / "run", model=Broken())
    assert results.facts["errors"] == 1
    failed = results.table[results.table["note"] == "logits are not finite"]
    assert len(failed) >= 1
    assert failed["overall"].isna().all()


def test_a_judge_that_answers_nonsense_flags_the_roles(tmp_path):
    class Nonsense(HashJudge):
        def score(self, items):
            return [Score(dict.fromkeys(DIMENSIONS), "not JSON") for _ in items]

    results = screen(tmp_path / "run", judges=(Nonsense(),))
    assert set(results.verdicts["reason"]) == {"missing_scores"}
    assert set(results.verdicts["verdict"]) == {"FLAG"}
    assert any("not valid as a whole" in note for note in results.notes)


def test_a_second_judge_can_veto(tmp_path):
    class Liking(HashJudge):
        sign = 1

        def score(self, items):
            return [Score(dict.fromkeys(DIMENSIONS, 50 + self.sign * _words(item))) for item in items]

    class Disliking(Liking):
        sign = -1

    config = replace(CONFIG, second_judge="other")
    results = screen(tmp_path / "run", config, judges=(Liking(), Disliking()))
    assert not (results.verdicts["verdict"] == "PASS").any()


def _words(item: JudgeItem) -> float:
    return len(item.answer) % 40


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"roles": ("pirat",)}, RoleError, "Did you mean 'pirate'"),
        ({"questions": 500}, GridError, "holds 228 for evaluation"),
        ({"questions": 0}, GridError, "at least 1"),
        ({"preset": "cast-vector"}, UserError, "Did you mean 'cast-vectors'"),
        ({"site": 99}, UserError, "99"),
        ({"accept": "everything"}, GridError, "likelihood-margin"),
        ({"reference": "referense"}, GridError, "Did you mean 'reference'"),
        ({"reference": "none"}, GridError, "line, instruction, reference"),
    ],
)
def test_what_cannot_be_screened_is_refused(change, error, message, tmp_path):
    with pytest.raises(error, match=message):
        screen(tmp_path / "run", replace(CONFIG, **change))


def test_questions_that_extract_may_not_evaluate(tmp_path):
    inventory = load_inventory("core-v1").select(["pirate", "poet", "tutor"])
    from rolecraft.roles import load_questions

    leaked = load_questions("questions-v1").questions[0].text.upper()
    role = inventory["poet"].edited(questions=(*inventory["poet"].questions, leaked))
    leaking = Inventory("mine", "1", (inventory["pirate"], role, inventory["tutor"]))
    with pytest.raises(GridError, match=r"role 'poet': questions\[\d+\] is also the evaluation question"):
        screen(tmp_path / "run", replace(CONFIG, roles=()), inventory=leaking)


def test_a_model_that_cannot_be_steered_is_refused(tmp_path):
    from rolecraft.testing import ScriptedModel

    with pytest.raises(UserError, match="residual stream"):
        screen(tmp_path / "run", model=ScriptedModel("echo"))


def test_the_lock_admits_only_what_was_screened(finished):
    inventory = load_inventory("core-v1")
    lock = load_lock(finished / "roles.lock")
    model = lock.content.model, lock.content.revision
    role_id, entry = next(iter(lock.content.roles.items()))
    role = inventory[role_id]
    passed = lock.content.model_copy(
        update={
            "roles": {
                role_id: entry.model_copy(
                    update={"verdict": "PASS_PROMPT_ONLY", "conditioner": "prompt", "direction": None}
                )
            }
        }
    )
    open_lock = type(lock)(lock.path, passed)
    admission = open_lock.admit(role, *model)
    assert admission.screened
    assert (admission.conditioner, admission.rung) == ("prompt", "instruction")
    for given, revision, message in [
        (inventory["ghost"], model[1], "never screened"),
        (role, "other", "revision"),
        (role.edited(style="changed"), model[1], "has changed since"),
    ]:
        with pytest.raises(LockError, match=message):
            open_lock.admit(given, model[0], revision)
        marked = open_lock.admit(given, model[0], revision, allow_unscreened=True)
        assert not marked.screened
        assert message in marked.note
    with pytest.raises(LockError, match="for model"):
        open_lock.admit(role, "local:other", model[1])
    flagged = entry.model_copy(update={"verdict": "FLAG", "conditioner": None, "reason": "repetitive"})
    with pytest.raises(LockError, match="flagged: repetitive"):
        type(lock)(lock.path, passed.model_copy(update={"roles": {role_id: flagged}})).admit(role, *model)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such lock"), ("{", "not a lock"), ("{}", "run: Field required"), ('{"format": 2}', "format")],
)
def test_a_damaged_lock_is_refused(content, message, tmp_path):
    path = tmp_path / "roles.lock"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LockError, match=message):
        load_lock(path)


def test_an_altered_direction_is_refused(finished, tmp_path):
    from rolecraft.screening._lock import file_hash

    direction = tmp_path / "directions" / "pirate.safetensors"
    direction.parent.mkdir()
    direction.write_bytes(b"direction")
    data = json.loads((finished / "roles.lock").read_text())
    role = load_inventory("core-v1")["pirate"]
    data["roles"] = {
        "pirate": {
            "role_hash": role.hash, "verdict": "PASS", "conditioner": "steering", "strength": 1.5, "site": 1,
            "direction": "directions/pirate.safetensors", "direction_sha256": file_hash(direction),
        }
    }  # fmt: skip
    (tmp_path / "roles.lock").write_text(json.dumps(data))
    lock = load_lock(tmp_path / "roles.lock")
    admission = lock.admit(role, data["model"], data["revision"])
    assert (admission.strength, admission.direction) == (1.5, direction)
    direction.write_bytes(b"altered")
    with pytest.raises(LockError, match="altered after the screen"):
        lock.admit(role, data["model"], data["revision"])
    direction.unlink()
    with pytest.raises(LockError, match="missing"):
        lock.admit(role, data["model"], data["revision"])


def test_curves_average_over_questions(finished):
    results = load_results(finished)
    row = results.curves.query("role == 'poet' and arm == 'role' and strength == 2 and dimension == 'overall'").iloc[0]
    cells = results.table.query("role == 'poet' and arm == 'role' and strength == 2")["overall"]
    assert row["mean"] == pytest.approx(cells.mean())
    assert row["low"] <= row["mean"] <= row["high"]
    assert np.isfinite(row[["low", "high"]].astype(float)).all()
