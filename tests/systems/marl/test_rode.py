from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
pytest.importorskip("sklearn")
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.systems._base import Result
from rolecraft.systems._registry import find_entry
from rolecraft.systems._studies import run_study
from rolecraft.systems.marl._rode_study import kinds_of, larger, make_world
from rolecraft.systems.marl._rode_worlds import LEFT, MOVES, RIGHT, STAY, Skirmish, SkirmishState
from rolecraft.systems.marl.rode import (
    DiscoveryConfig,
    LearningConfig,
    TransferConfig,
    verdict_discovery,
    verdict_learning,
    verdict_transfer,
)


def rows(*metrics: str, **arms: list[float]) -> Result:
    """Rows of planted figures by arm."""
    return Result(
        tuple(
            {"arm": arm.replace("_", "-"), "seed": seed, **dict.fromkeys(metrics, value)}
            for arm, values in arms.items()
            for seed, value in enumerate(values)
        )
    )


def test_the_verdict_on_discovery_follows_the_planted_truth() -> None:
    def judge(balanced: list[float], shuffled: list[float]) -> str:
        found = rows("ari", balanced=balanced, shuffled=shuffled, published=[0, 0, 0.1], untrained=[0, -0.1, 0])
        return verdict_discovery(found).verdict

    nothing = [0.0, 0.1, -0.1]
    assert judge([1, 1, 1], nothing) == "reproduced"
    assert judge([1, 1, 0.6], nothing) == "not reproduced"
    assert judge([1, 1, 1], [0.6, 0.5, 0.6]) == "not reproduced"  # the control must not find them
    assert judge([0.1, -0.2, 0.0], nothing) == "inconclusive"


def test_a_tie_in_learning_is_reported_as_one() -> None:
    def judge(rode: list[float], shuffled: list[float], random: list[float] | None = None) -> Any:
        return verdict_learning(
            rows("auc", "last", "last_return", qmix=[0.5, 0.51, 0.5], rode=rode, shuffled=shuffled,
                 random=random or [0.1, 0.1, 0.1])
        )  # fmt: skip

    better, worse = [0.7, 0.71, 0.7], [0.4, 0.4, 0.41]
    assert judge(better, worse).verdict == "reproduced"
    assert judge(better, better).verdict == "not reproduced"
    assert judge(worse, worse).verdict == "not reproduced"
    assert judge(better, worse, [0.7, 0.71, 0.7]).verdict == "not reproduced"  # nothing was learnt
    tie = judge([0.5, 0.52, 0.49], worse)
    assert tie.verdict == "inconclusive"
    assert "a tie with QMIX" in tie.note
    absent = verdict_learning(rows("auc", qmix=[0.5, 0.5]))
    assert (absent.verdict, absent.note) == ("inconclusive", "not run: rode, shuffled, random")


def test_the_verdict_on_transfer_needs_the_latents() -> None:
    def judge(transfer: list[float], random_latents: list[float]) -> str:
        found = rows(
            "score", source=[0.9, 0.9, 0.9], transfer=transfer, random_latents=random_latents,
            untrained=[0.2, 0.21, 0.2],
        )  # fmt: skip
        return verdict_transfer(found).verdict

    assert judge([0.8, 0.82, 0.8], [0.4, 0.41, 0.4]) == "reproduced"
    assert judge([0.8, 0.82, 0.8], [0.8, 0.81, 0.81]) == "inconclusive"
    assert judge([0.8, 0.82, 0.8], [0.9, 0.91, 0.9]) == "not reproduced"
    assert judge([0.1, 0.11, 0.1], [0.05, 0.04, 0.05]) == "not reproduced"
    assert "not run: untrained" in verdict_transfer(
        rows("score", source=[1, 1], transfer=[1, 1], random_latents=[1, 1])
    ).note  # fmt: skip


def test_the_skirmish_is_won_by_hitting_what_is_near() -> None:
    env = Skirmish(agents=2, targets=2, length=8, toughness=2)
    state = SkirmishState(jnp.array([0, 7]), jnp.array([1, 4]), jnp.array([2, 1]))
    seen = env.look(state)
    assert seen.avail.tolist() == [[True, True, True, True, False], [True, True, True, False, False]]
    np.testing.assert_allclose(seen.obs, [[0, 1 / 8, 1, 3 / 4], [7 / 8, -3 / 8, 0, 3 / 4]])
    key = jax.random.PRNGKey(0)
    # The second agent's attack is out of reach; it would have been the last hit.
    moved = env.move(key, state, jnp.array([MOVES, MOVES + 1]))
    assert moved.state.health.tolist() == [1, 1]
    assert float(moved.reward.sum()) == pytest.approx(1 / 4)
    moved = env.move(key, state, jnp.array([LEFT, RIGHT]))
    assert moved.state.place.tolist() == [0, 7]
    assert env.move(key, state, jnp.array([STAY, LEFT])).state.place.tolist() == [0, 6]
    last = SkirmishState(jnp.array([3, 5]), jnp.array([1, 4]), jnp.array([0, 1]))
    moved = env.move(key, last, jnp.array([MOVES + 1, MOVES + 1]))
    assert bool(moved.done)
    assert moved.info["events"].tolist() == [1, 1]
    assert float(moved.reward.sum()) == pytest.approx(1 / 4 + 1)
    env = Skirmish(agents=2, targets=2, length=8)
    assert env.render(type("S", (), {"inner": state})) == ".2..1...\nA......B"


def test_the_true_types_of_actions_are_known() -> None:
    coarse, fine = kinds_of(make_world("2s3z"))
    assert coarse.tolist() == [0] * 5 + [1] * 5
    assert len(set(fine)) == 3
    assert fine[5] == fine[6]
    assert fine[7] == fine[8] == fine[9]
    assert kinds_of(make_world("planted"))[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    env, like = larger(3)
    assert (len(env.agents), env.actions, len(like)) == (9, 12, 12)
    assert like[:6] == [0, 1, 2, 3, 4, 5]
    assert like[6:] == [(3, 4, 5)] * 6


@pytest.mark.slow
def test_a_tiny_study_of_discovery_finds_planted_groups(tmp_path: Path) -> None:
    config = DiscoveryConfig(seeds=(1, 2), scenario="planted", steps=1500, updates=500, sample=64)
    outcome = run_study(find_entry("rode"), "discovery", config, tmp_path / "run")
    assert outcome.rows["balanced"]["ari"]["mean"] == 1
    assert outcome.rows["untrained"]["ari"]["mean"] < 0.9  # type: ignore[operator]
    with pytest.raises(UserError, match="tried less than 30 times"):
        run_study(
            find_entry("17"), "discovery", DiscoveryConfig(seeds=(1,), scenario="planted", steps=64), tmp_path / "few"
        )


@pytest.mark.slow
def test_a_tiny_study_of_learning_runs(tmp_path: Path) -> None:
    config = LearningConfig(
        seeds=(1, 2), arms=("rode",), scenario="skirmish", rule="identity", steps=3840, role_steps=1900, anneal=2000,
        tests=2, test_episodes=4, hidden=4, fits=1, buffer=8, batch=4,
    )  # fmt: skip
    outcome = run_study(find_entry("rode"), "learning", config, tmp_path / "run")
    assert "not run: qmix, shuffled" in outcome.note
    assert 0 <= outcome.rows["rode"]["auc"]["mean"] <= 1  # type: ignore[operator]
    assert outcome.rows["rode"]["roles"]["mean"] == config.clusters == 4
    assert not list((tmp_path / "run").glob("**/state-*"))


@pytest.mark.slow
def test_a_tiny_study_of_transfer_runs(tmp_path: Path) -> None:
    config = TransferConfig(
        seeds=(1, 2), steps=3840, role_steps=1900, anneal=2000, tests=2, test_episodes=2, hidden=4, fits=1, buffer=8,
        batch=4, episodes=4,
    )  # fmt: skip
    outcome = run_study(find_entry("rode"), "transfer", config, tmp_path / "run")
    assert set(outcome.rows) == set(TransferConfig.ARMS)
    for arm in outcome.rows.values():
        assert 0 <= arm["score"]["mean"] <= 1  # type: ignore[operator]


def test_settings_that_tell_nothing_are_refused() -> None:
    with pytest.raises(UserError, match=r"no arm 'rod'.*Did you mean 'rode'"):
        LearningConfig(arms=("rod",))
    with pytest.raises(UserError, match="steps must be at least 1"):
        DiscoveryConfig(steps=0)
    with pytest.raises(UserError, match="transfer needs scenario='skirmish'"):
        TransferConfig(scenario="3m")
    with pytest.raises(UserError, match="StarCraft"):
        LearningConfig.full()
