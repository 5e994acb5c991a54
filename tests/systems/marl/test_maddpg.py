"""System 061: verdicts on made-up rows, the parts of the matches, one tiny run of each study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result
from rolecraft.systems.marl import maddpg
from rolecraft.systems.marl.maddpg import (
    EnsembleConfig,
    SpeakerListenerConfig,
    TagConfig,
    run_ensemble,
    run_speaker_listener,
    run_tag,
    verdict_ensemble,
    verdict_speaker_listener,
    verdict_tag,
)

TINY = {"updates": 2, "hidden": 4, "batch": 8, "envs": 4, "steps": 2, "capacity": 32, "warmup": 16, "episodes": 6}


def speaker_rows(reach: tuple[float, ...], base: tuple[float, ...], deaf: float = 0.1, nearer: bool = True) -> Result:
    near, far = (0.2, 0.5) if nearer else (0.5, 0.2)
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "reach": rate, "distance": distance, "nearest": rate, "reach_deaf": deaf}
            for arm, rates, distance in (("maddpg", reach, near), ("ddpg", base, far))
            for seed, rate in enumerate(rates)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (speaker_rows((0.8, 0.82, 0.78), (0.3, 0.32, 0.28)), "reproduced"),
        (speaker_rows((0.8, 0.82, 0.78), (0.3, 0.32, 0.28), nearer=False), "not reproduced"),
        (speaker_rows((0.4, 0.42, 0.38), (0.35, 0.36, 0.34)), "not reproduced"),
        (speaker_rows((0.8, 0.1, 0.6), (0.3, 0.32, 0.28)), "inconclusive"),
        (speaker_rows((0.8, 0.82, 0.78), (0.3, 0.32, 0.28), deaf=0.7), "not reproduced"),
    ],
)
def test_arrivals_distances_and_the_deaf_listener_decide(result: Result, expected: str) -> None:
    found = verdict_speaker_listener(result)
    assert found.verdict == expected
    assert found.control is not None


def tag_rows(maddpg_catches: float, ddpg: float, untrained: float, spread: float = 0.1) -> Result:
    catches = {"maddpg": maddpg_catches, "ddpg": ddpg, "untrained": untrained}
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "unit": f"{seed}:{prey}", "catches": value + spread * ((seed * step) % 3 - 1)}
            for step, (arm, value) in enumerate(catches.items(), 1) for seed in range(3) for prey in ("maddpg", "ddpg")
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (tag_rows(3.0, 2.0, 0.2), "reproduced"),
        (tag_rows(1.0, 2.0, 0.2), "not reproduced"),
        (tag_rows(2.01, 2.0, 0.2, spread=1.0), "inconclusive"),
        (tag_rows(3.0, 2.0, 4.0), "not reproduced"),
    ],
)
def test_catches_against_the_same_prey_decide(result: Result, expected: str) -> None:
    assert verdict_tag(result).verdict == expected


@pytest.mark.parametrize(("gain", "spread", "untrained", "expected"), [
    (1.0, 0.1, -2.0, "reproduced"), (-1.0, 0.1, -2.0, "not reproduced"), (0.1, 2.0, -9.0, "inconclusive"),
    (1.0, 0.1, 0.5, "not reproduced"), (1.0, 0.1, 0.0, "not reproduced"),
])  # fmt: skip
def test_opponents_never_met_decide(gain: float, spread: float, untrained: float, expected: str) -> None:
    rows = tuple(
        {"arm": arm, "seed": seed, "unit": f"{seed}:{side}", "never_met": value + spread * sign * (seed - 1)}
        | ({} if arm == "untrained" else {"met": 0.0})
        for arm, value, sign in (("ensemble", gain, 1), ("single", 0.0, -1), ("untrained", untrained, -1))
        for seed in range(3) for side in maddpg.SIDES
    )  # fmt: skip
    assert verdict_ensemble(Result(rows)).verdict == expected


def test_distances_are_read_off_the_last_observations() -> None:
    jnp = pytest.importorskip("jax.numpy")
    from rolecraft.marl._ac_play import Episodes
    from rolecraft.systems.marl._maddpg_training import listener_distances, mixed, nearest_landmark, repeated

    colour = np.full((2, 11), 0.15)
    colour[0, 1] = colour[1, 2] = 0.65
    listener = np.zeros((2, 11))
    listener[0, 2:8] = [1, 0, 0.3, 0.4, 2, 0]
    listener[1, 2:8] = [1, 0, 0.3, 0.4, 0, -2]
    last = jnp.asarray(np.stack([colour, listener], 1))
    played = Episodes(None, None, None, last)
    assert listener_distances(played) == pytest.approx([0.5, 2.0])
    assert nearest_landmark(played).tolist() == [True, False]
    first, second = ({"w": jnp.full((3, 1, 2), value)} for value in (1.0, 2.0))
    assert mixed([True, False, True], first, second)["w"][:, 0, 0].tolist() == [1.0, 2.0, 1.0]
    assert repeated(first, 3)["w"].shape == (3, 3, 2)


def test_the_tiny_speaker_listener_runs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from rolecraft.systems.marl import _maddpg_training as training
    from tests.marl.ac_worlds import Naming

    monkeypatch.setattr(training, "team_env", lambda *given, **options: Naming(obs_size=8))
    config = SpeakerListenerConfig(seeds=(1, 2), **TINY)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_speaker_listener(config, store)
        assert {(row["arm"], row["seed"]) for row in result.rows} == {(a, s) for a in maddpg.ARMS for s in (1, 2)}
        assert all(0 <= row["reach"] <= 1 and row["distance"] >= 0 for row in result.rows)
        curves = store.rows(maddpg.CURVES)
        first, other = (curves[f"{arm}/1/{training.SPEAKER_LISTENER}"] for arm in maddpg.ARMS)
        assert len(first["critic_loss"]) == 2
        assert first["reward"][0] == other["reward"][0], "arms of a seed start alike"
        assert first["critic_loss"] != other["critic_loss"]
        monkeypatch.setattr(training, "train", lambda *given: pytest.fail("all rows are there"))
        assert run_speaker_listener(config, store).rows == result.rows
    verdict_speaker_listener(result)


@pytest.mark.slow
def test_the_tiny_tag_and_ensembles_run(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "tag", "study", {}) as store:
        tag = run_tag(TagConfig(seeds=(1,), **TINY), store)
    assert {(row["arm"], row["unit"]) for row in tag.rows} == {
        (arm, f"1:{prey}") for arm in maddpg.PREDATORS for prey in maddpg.ARMS
    }
    assert all(row["catches"] >= 0 for row in tag.rows)
    with RunStore.open(tmp_path / "ensemble", "study", {}) as store:
        ensemble = run_ensemble(EnsembleConfig(seeds=(1,), **TINY), store)
    assert len(ensemble.rows) == 3 * 2
    trained = [row for row in ensemble.rows if row["arm"] != "untrained"]
    assert any(row["met"] != row["never_met"] for row in trained), "other opponents, other returns"


def test_bad_sizes_are_named() -> None:
    with pytest.raises(UserError, match="updates must be at least 1, got 0"):
        TagConfig(updates=0)
    with pytest.raises(UserError, match="sub_policies must be at least 2, got 1"):
        EnsembleConfig(sub_policies=1)
    assert SpeakerListenerConfig.full().updates == 15_000
