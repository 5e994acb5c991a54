from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.systems._base import Result
from rolecraft.systems._registry import find_entry
from rolecraft.systems._studies import run_study
from rolecraft.systems.marl._acorm_study import PlantedRoles, score
from rolecraft.systems.marl.acorm import (
    LearningConfig,
    RepresentationConfig,
    verdict_learning,
    verdict_representation,
)


def rows(metric: str, **arms: list[float]) -> Result:
    """Rows of planted figures by arm."""
    return Result(
        tuple(
            {"arm": arm.replace("_", "-"), "seed": seed, metric: value, "last": value}
            for arm, values in arms.items()
            for seed, value in enumerate(values)
        )
    )


def test_the_verdict_on_representation_follows_the_planted_truth() -> None:
    plain, best, worst = [0.1, 0.12, 0.11], [0.4, 0.41, 0.42], [0.1, 0.1, 0.12]

    def judge(contrast: list[float], shuffled: list[float]) -> str:
        return verdict_representation(
            rows("silhouette", contrast=contrast, no_contrast=plain, shuffled=shuffled)
        ).verdict

    assert judge(best, worst) == "reproduced"
    assert judge(worst, best) == "inconclusive"
    assert judge([0.0, 0.01, 0.02], worst) == "not reproduced"
    assert judge(best, best) == "not reproduced"  # the control must not help
    assert judge([0.9, 0.0, 0.1], worst) == "inconclusive"


def test_a_tie_in_learning_is_reported_as_one() -> None:
    base = {"qmix": [0.5, 0.51, 0.5], "no_attention": [0.5, 0.5, 0.5]}
    better, worse, tie = [0.7, 0.71, 0.7], [0.4, 0.4, 0.41], [0.5, 0.52, 0.49]
    assert verdict_learning(rows("auc", acorm=better, shuffled=worse, **base)).verdict == "reproduced"
    assert verdict_learning(rows("auc", acorm=better, shuffled=better, **base)).verdict == "not reproduced"
    assert verdict_learning(rows("auc", acorm=worse, shuffled=worse, **base)).verdict == "not reproduced"
    found = verdict_learning(rows("auc", acorm=tie, shuffled=worse, **base))
    assert found.verdict == "inconclusive"
    assert "a tie with QMIX" in found.note


def test_scores_of_planted_vectors_are_known() -> None:
    rng = np.random.default_rng(0)
    kinds, episodes = np.tile([0, 1, 2], 40), np.repeat(np.arange(10), 12)
    relabelled = (kinds + episodes) % 3  # clusters are numbered anew at every moment
    told = score(np.eye(3)[kinds] + 1e-3 * rng.normal(size=(120, 3)), kinds, relabelled, episodes, episodes, 1)
    assert told["silhouette"] > 0.99
    assert told["probe"] == 1.0
    assert told["by_cluster"] > 0.99
    untold = score(rng.normal(size=(120, 3)), kinds, np.full(120, -1), episodes, episodes, 1)
    assert abs(untold["silhouette"]) < 0.1
    assert untold["probe"] < 0.6
    assert np.isnan(untold["by_cluster"])


def test_the_planted_world_pays_who_names_its_role_and_hides_it() -> None:
    env = PlantedRoles(horizon=4, noise=0.0)
    state, step = env.reset(jax.random.PRNGKey(0))
    kind = state.inner.kind
    assert sorted(kind.tolist()) == [0, 0, 1, 1, 2, 2]
    assert step.world.reshape(6, 3).argmax(-1).tolist() == kind.tolist()
    np.testing.assert_allclose(jnp.square(step.obs).sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(
        jnp.arctan2(step.obs[:, 1], step.obs[:, 0]) % (2 * np.pi), 2 * np.pi * kind / 3, atol=1e-4
    )
    later, after = env.step(jax.random.PRNGKey(1), state, kind)
    assert later.inner.kind.tolist() == kind.tolist()
    assert float(after.reward.sum()) == pytest.approx(1 / 4)
    _, wrong = env.step(jax.random.PRNGKey(1), state, (kind + 1) % 3)
    assert float(wrong.reward.sum()) == 0


@pytest.mark.slow
def test_a_tiny_study_of_representation_runs(tmp_path: Path) -> None:
    config = RepresentationConfig(
        seeds=(1, 2), episodes=8, envs=4, embedding=6, role_size=4, embed_updates=2, contrast_updates=2
    )
    outcome = run_study(find_entry("acorm"), "representation", config, tmp_path / "run")
    assert set(outcome.rows) == {"contrast", "no-contrast", "raw", "shuffled"}
    for arm in outcome.rows.values():
        assert -1 <= arm["silhouette"]["mean"] <= 1  # type: ignore[operator]
        assert 0 <= arm["probe"]["mean"] <= 1  # type: ignore[operator]


@pytest.mark.slow
def test_a_tiny_study_of_learning_runs(tmp_path: Path) -> None:
    config = LearningConfig(
        seeds=(1, 2), arms=("acorm",), steps=128, tests=1, buffer=8, embed_updates=2, contrast_updates=2
    )
    outcome = run_study(find_entry("19"), "learning", config, tmp_path / "run")
    assert "not run: qmix, no-attention, shuffled" in outcome.note
    assert 0 <= outcome.rows["acorm"]["auc"]["mean"] <= 1  # type: ignore[operator]


def test_settings_that_tell_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="episodes at least"):
        RepresentationConfig(episodes=4)
    with pytest.raises(UserError, match=r"no arm 'acrom'.*Did you mean 'acorm'"):
        LearningConfig(arms=("acrom",))
    with pytest.raises(UserError, match="StarCraft"):
        LearningConfig.full()
