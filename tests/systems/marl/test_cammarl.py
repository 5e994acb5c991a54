"""System 039: what each arm's ego is told, verdicts on made-up rows, one tiny run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result
from rolecraft.systems.marl import cammarl
from rolecraft.systems.marl.cammarl import ARMS, NavigationConfig, run_navigation, verdict_navigation

TINY = {"updates": 10, "envs": 4, "warmup": 4, "fit_epochs": 1, "hidden": 4, "epochs": 1}


def made_up(
    returns: dict[str, float], coverage: float = 0.91, shrink: float = -0.5, spread: float = 0.2, wide: float = 0.002
) -> Result:
    rows = []
    for step, (arm, value) in enumerate(returns.items()):
        for seed in range(3):
            row = {"arm": arm, "seed": seed, "return": value + spread * ((seed * step) % 3 - 1)}
            if arm == "cammarl":
                row |= {
                    "alpha": 0.1, "coverage": coverage + wide * (seed - 1), "coverage_train": 0.8, "first_size": 3.0,
                    "late_size": 3.0 + shrink + 0.01 * seed,
                }  # fmt: skip
            rows.append(row)
    return Result(tuple(rows))


GOOD = {"noam": -20.0, "cammarl": -18.0, "giam": -16.0, "shuffled": -21.0}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (made_up(GOOD), "reproduced"),
        (made_up(GOOD, coverage=0.8), "not reproduced"),
        (made_up(GOOD, coverage=0.99), "not reproduced"),
        (made_up(GOOD, wide=0.05), "inconclusive"),
        (made_up(GOOD, shrink=0.5), "not reproduced"),
        (made_up(GOOD | {"cammarl": -25.0}), "not reproduced"),
        (made_up(GOOD | {"shuffled": -15.0}), "not reproduced"),
        (made_up({"noam": -20.0, "giam": -16.0}), "inconclusive"),
    ],
)
def test_coverage_size_and_order_decide(result: Result, expected: str) -> None:
    assert verdict_navigation(result).verdict == expected


def test_what_the_ego_is_told() -> None:
    """Every arm but `noam` is told what its name says, after its own observation."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    from rolecraft.systems.marl._cammarl_training import Navigation, Pair
    from tests.marl.ac_worlds import Naming

    env, obs = Naming(), jnp.arange(4 * 2 * 4.0).reshape(4, 2, 4)
    action, config = jnp.array([0, 1, 2, 1]), NavigationConfig(envs=10)
    true = np.asarray(jax.nn.one_hot(action, 3))
    told = {}
    for arm in ARMS:
        pair = Navigation(config, arm, env)
        model = pair.model.init(jax.random.PRNGKey(1)) if pair.model else None
        seen = np.asarray(pair.tell(Pair(*(None,) * 2, model, *(None,) * 4), obs, action, jax.random.PRNGKey(0)))
        assert (seen[:, :4] == np.asarray(obs[:, 0])).all()
        assert seen.shape[1] == pair.ego.obs_size
        told[arm] = seen[:, 4:]
    assert told["noam"].shape[1] == 0
    assert (told["taam"] == true).all()
    assert (told["toam"] == np.asarray(obs[:, 1])).all()
    assert (told["giam"] == np.concatenate([np.asarray(obs[:, 1]), true], 1)).all()
    assert (told["cammarl"] == 1).all(), "an untaught model's sets are full"
    assert (told["cammarl-padded"] == [1, 2, 3]).all()
    assert told["cammarl-penultimate"].shape[1] == config.hidden
    assert (told["eap"].sum(1) == 1).all()


@pytest.mark.slow
def test_the_tiny_study_runs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    from rolecraft.systems.marl import _cammarl_training as training
    from tests.marl.ac_worlds import Naming

    monkeypatch.setattr(training, "team_env", lambda *given, **options: Naming(horizon=12))
    config = NavigationConfig(seeds=(1, 2), arms=("noam", "cammarl"), **TINY)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_navigation(config, store)
        assert {(row["arm"], row["seed"]) for row in result.rows} == {(a, s) for a in config.arms for s in (1, 2)}
        sets = [row for row in result.rows if row["arm"] == "cammarl"]
        assert all(0.5 < row["coverage"] <= 1 and row["late_size"] >= 1 for row in sets)
        assert len(store.rows(cammarl.CURVES)["cammarl/1"]["coverage"]) == 10
        monkeypatch.setattr(training, "train", lambda *given: pytest.fail("all rows are there"))
        assert run_navigation(config, store).rows == result.rows


def test_bad_arms_and_sizes_are_named() -> None:
    with pytest.raises(UserError, match=r"there is no arm 'camarl'.*Did you mean 'cammarl'"):
        NavigationConfig(arms=("camarl",))
    with pytest.raises(UserError, match="updates must be at least 10"):
        NavigationConfig(updates=5)
    assert NavigationConfig.full().fit_epochs == 200
