"""What the smoke studies on a language model share: the step, the start of every arm, resuming, the verdict."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning.credit import Group
from rolecraft.learning.policy import WordCodec, tiny_policy
from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer
from rolecraft.measures import Interval
from rolecraft.systems import Result
from rolecraft.systems.learning._language_smoke import (
    Base,
    LanguageSmoke,
    Log,
    average,
    contrast,
    decide,
    health,
    held,
    load_policies,
    part,
    run_arms,
    teach_form,
    weights_of,
)
from rolecraft.systems.learning._language_step import Taught, products, shifts, take_step
from rolecraft.testing import tiny_model
from rolecraft.worlds import KeyDoor


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolecraft.models._load.load_local", lambda *_, **__: tiny_model(2))


def make_world() -> KeyDoor:
    return KeyDoor(3, horizon=3)


def make_trainer(seed: int = 1) -> Trainer:
    policy = tiny_policy(WordCodec.of_world(make_world, episodes=4), layers=1, hidden=16, seed=3, max_tokens=1)
    config = TrainConfig(episodes=8, group=4, lr=0.01, monitor=MonitorConfig(action="off"))
    return Trainer(make_world, policy, [Group(unit="traj")], config, seed=seed)


class TestStep:
    @pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning")
    def test_it_is_the_trainers_own_iteration(self) -> None:
        ours, theirs = make_trainer(), make_trainer()
        for _ in range(2):
            taught, done = take_step(ours), theirs.step()
            assert dict(taught.figures) == dict(done.figures)
        a, b = (weights_of(each.policies["policy"]) for each in (ours, theirs))
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert (ours.iteration, ours.state) == (theirs.iteration, theirs.state)

    def test_the_shift_is_how_far_the_step_moved_each_token(self) -> None:
        trainer = make_trainer()
        trainer.credit = [SimplePush()]
        taught = take_step(trainer)
        policy = trainer.policies["policy"]
        now = policy.score(taught.rows.replies).logp.detach().numpy()
        mask = taught.rows.batch.mask
        expected = np.where(mask, now - taught.rows.batch.token["logp_old"], 0.0)
        np.testing.assert_allclose(taught.shift, expected, atol=1e-6)
        assert np.abs(taught.shift).max() > 1e-3
        assert np.mean(products(taught.advantage, taught.pushed)) > 0.3

    def test_rows_of_each_policy_are_scored_by_it(self) -> None:
        trainer = make_trainer()
        first, second = trainer.policies["policy"], make_trainer().policies["policy"]
        with torch.no_grad():
            for each in second.parameters().values():
                each += 0.1
        rows = take_step(trainer).rows
        names = ["a" if row % 2 else "b" for row in range(len(rows.replies))]
        old = np.zeros(rows.batch.shape)
        found = shifts({"a": first, "b": second}, rows.replies, names, old, rows.batch.mask)
        for row, name in enumerate(names):
            own = (first if name == "a" else second).score([rows.replies[row]]).logp.detach().numpy()[0]
            np.testing.assert_allclose(found[row, : len(own)], own * rows.batch.mask[row, : len(own)], atol=1e-5)

    def test_means_are_by_unit_and_where_asked(self) -> None:
        batch = SimpleNamespace(keys={"traj": np.array([0, 0, 2, 2]), "prompt": np.array([0, 1, 1, 1])}, mask=None)
        rows: Any = SimpleNamespace(batch=batch)
        values, where = np.array([1.0, 3.0, 5.0, 9.0]), np.array([True, False, True, True])
        taught = Taught((), rows, None, values, {})  # type: ignore[arg-type]
        assert taught.by_episode(values) == {0: 2.0, 2: 7.0}
        assert taught.by_episode(values, where) == {0: 1.0, 2: 7.0}
        by_prompt = Taught((), rows, None, values, {}, unit="prompt")  # type: ignore[arg-type]
        assert by_prompt.by_episode(values) == {0: 1.0, 1: pytest.approx(17 / 3)}


class SimplePush:
    """Raises the first half of the rows, and lowers the others."""

    def __call__(self, batch: Any, carry: Any) -> Any:
        from dataclasses import replace

        return replace(carry, advantage=np.where(np.arange(len(carry.advantage)) % 2 == 0, 1.0, -1.0))


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=3, max_size=20))
def test_the_mean_of_the_products_is_pearsons_r(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    found = products(a, b).mean()
    if min(a.std(), b.std()) > 1e-3:
        assert found == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-6)
    assert not products(a, np.ones(len(a))).any()


class TestBase:
    def test_every_arm_starts_from_the_same_weights(self) -> None:
        base = Base.load(LanguageSmoke(rank=2, blocks=1, imitated=0), "x", 1, ("a", "b"), critic=True)
        assert base.moved() == {"a": 0.0, "b": 0.0}
        with torch.no_grad():
            for each in base.policies["a"].parameters().values():
                each += 0.25
        assert base.moved() == {"a": pytest.approx(0.25), "b": 0.0}
        base.restore()
        assert base.moved() == {"a": 0.0, "b": 0.0}

    def test_imitation_begins_at_the_given_weights_and_may_be_left_out(self) -> None:
        base = Base.load(LanguageSmoke(rank=2, blocks=0, imitated=0), "x", 1)
        policy, start = base.policy, base.start["policy"]
        from rolecraft.learning.policy import Reply

        rows = [Reply(policy.encode("a", None, "go"), (*policy.codec.reply("I go"), policy.codec.end))]
        options = {"lr": 0.01, "batch": 1, "seed": 0}
        first, again = (teach_form(policy, start, rows, steps=2, **options) for _ in range(2))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert any(not torch.equal(first[name], start[name]) for name in first)
        none = teach_form(policy, start, rows, steps=0, **options)
        assert all(torch.equal(none[name], start[name]) for name in none)

    def test_what_cannot_be_loaded_is_refused(self) -> None:
        with pytest.raises(UserError, match="2 policies share one model"):
            load_policies("local:x", ["a", "b"], rank=0)
        with pytest.raises(UserError, match=r"blocks: .* has 2, got 3"):
            load_policies("local:x", ["a"], rank=2, blocks=3)
        assert not any("lora" in name for name in load_policies("local:x", ["a"], rank=0)["a"].parameters())


class Arms(LanguageSmoke):
    """Two arms for tests."""

    KNOWN: ClassVar[tuple[str, ...]] = ("a", "b")
    NEEDED: ClassVar[tuple[str, ...]] = ("a",)


def test_arms_resume_and_start_from_the_same_weights(tmp_path: Path) -> None:
    config, begun = Arms(seeds=(1, 2), arms=("a", "b"), rank=2, blocks=1), []

    def play(config: Arms, base: Base, arm: str, seed: int) -> Log:
        begun.append((arm, seed, base.moved()["policy"]))
        if len(begun) == 2:
            raise RuntimeError("told to fail")
        with torch.no_grad():
            next(iter(base.policy.parameters().values())).add_(1.0)
        log = Log(trained={"policy"})
        log.curve(reward=seed, silent=0.0)
        log.unit("0/0", reward=2.0, followed=1.0)
        return log

    def load(config: Arms, seed: int) -> Base:
        return Base.load(config, "x", seed)

    with RunStore.open(tmp_path / "run", "study", {}) as store, pytest.raises(RuntimeError):
        run_arms(config, store, load, play)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_arms(config, store, load, play)
        assert len(store.rows("curves")) == 4
    assert [each[:2] for each in begun] == [("a", 1), ("b", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert {each[2] for each in begun} == {0.0}
    whole = [row for row in result.rows if "unit" not in row]
    assert len(whole) == 4
    assert all(row["moved"] > 0 and row["finite"] for row in whole)
    assert {row["unit"] for row in part(result, "0").rows} == {"1:0/0", "2:0/0"}
    assert not part(result, "final").rows


HIGH, LOW, OPEN = Interval(1, 0.5, 1.5, 9), Interval(-1, -1.5, -0.5, 9), Interval(0, -1, 1, 9)
NOTHING = Interval(float("nan"), float("nan"), float("nan"), 0)


@pytest.mark.parametrize(
    ("claims", "gain", "expected"),
    [
        ((True, True), HIGH, "reproduced"),
        ((True, True), OPEN, "inconclusive"),
        ((True, True), NOTHING, "inconclusive"),
        ((True, True), LOW, "inconclusive"),
        ((True, None), HIGH, "inconclusive"),
        ((True, False), HIGH, "not reproduced"),
        ((None, False), NOTHING, "not reproduced"),
    ],
)
def test_the_verdict_takes_all_claims_and_the_gain(
    claims: tuple[bool | None, ...], gain: Interval, expected: str
) -> None:
    named = {f"claim {number}": each for number, each in enumerate(claims)}
    found = decide(named, NOTHING, None, gain, "What it is")
    assert found.verdict == expected
    assert all(f"claim {number}" in found.note for number in range(len(claims)))


def test_a_claim_holds_by_its_whole_interval() -> None:
    assert [held(each) for each in (HIGH, LOW, OPEN, NOTHING)] == [True, False, None, None]
    assert held(Interval(0, 0, 0, 9)) is False
    assert held(HIGH, 1.0) is None


def rows_of(**change: Any) -> Result:
    whole = {"arm": "a", "seed": 1, "finite": True, "moved": 0.1, "silent": 0.0} | change
    units = [{"arm": "a", "seed": 1, "unit": f"1:0/{n}", "followed": 0.4 + 0.1 * n} for n in range(4)]
    return Result((whole, *units))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [True, True, True]),
        ({"finite": False}, [False, True, True]),
        ({"moved": 0.0}, [True, False, True]),
        ({"moved": None}, [True, False, True]),
        ({"arm": "b"}, [False, True, True]),
    ],
)
def test_health_needs_every_arm_finite_and_moved(change: dict[str, Any], expected: list[bool]) -> None:
    assert list(health(rows_of(**change), "a").values()) == expected


def test_what_no_unit_has_is_an_interval_of_nothing() -> None:
    result = rows_of()
    assert held(average(result, "absent", "a")) is None
    assert held(contrast(result, "followed", "a", "b")) is None
    assert average(result, "followed", "a").estimate == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"arms": ("a", "c")}, "arms: 'c' is none of a, b"),
        ({"arms": ("b",)}, "the verdict needs a; a is left out"),
        ({"arms": ("a",), "updates": 0}, "updates 0"),
        ({"arms": ("a",), "rank": -1}, "rank -1"),
    ],
)
def test_bad_sizes_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        Arms(**wrong)
