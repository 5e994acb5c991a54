"""A training that was killed inside MADDPG's or CAMMARL's study ends with the same numbers; a finished one is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft.errors import UserError

jax = pytest.importorskip("jax")

from rolecraft._jax import _loop  # noqa: E402
from rolecraft.marl._ac_maddpg import Maddpg, MaddpgConfig  # noqa: E402
from rolecraft.systems.marl import _cammarl_training, _maddpg_training  # noqa: E402
from rolecraft.systems.marl.cammarl import NavigationConfig  # noqa: E402
from tests.marl.ac_worlds import Naming  # noqa: E402

Train = Callable[[Path], tuple[Any, dict[str, Any]]]


def killed_and_whole(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Compare a training that dies after its first checkpoint, and goes on, with one that does not; then read it."""
    actors, whole = train(tmp_path / "whole")
    save = _loop._save

    def die(folder: Path, state: Any, metrics: Any, done: int, identity: Any) -> None:
        save(folder, state, metrics, done, identity)
        raise KeyboardInterrupt

    folder = tmp_path / "killed"
    with monkeypatch.context() as patch:
        patch.setattr(_loop, "_save", die)
        with pytest.raises(KeyboardInterrupt):
            train(folder)
    assert len(list(folder.glob("state-*"))) == 1
    for _ in ("goes on", "is read"):
        again, resumed = train(folder)
        assert set(resumed) == set(whole)
        for name in whole:
            np.testing.assert_array_equal(resumed[name], whole[name])
        for found, expected in zip(jax.tree.leaves(again), jax.tree.leaves(actors), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert not list(folder.glob("state-*")), "no replay stays"
        monkeypatch.setattr(_loop, "loop", lambda *given, **options: pytest.fail("a finished training is read"))
    return folder


@pytest.mark.slow
def test_maddpg_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_maddpg_training, "CHUNK", 1)
    sizes = MaddpgConfig(hidden=4, batch=8, capacity=32, warmup=16, envs=4, steps=2)

    def train(folder: Path, lr: float = 0.01) -> tuple[Any, dict[str, Any]]:
        from dataclasses import replace

        learner = Maddpg(Naming(), replace(sizes, lr=lr))
        return _maddpg_training.train(learner, 2, [("w", 1), ("w", 1)], [False, True], folder)

    folder = killed_and_whole(train, tmp_path, monkeypatch)
    with pytest.raises(UserError, match="another config"):
        train(folder, lr=0.02)


@pytest.mark.slow
def test_cammarl_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cammarl_training, "CHUNK", 5)
    monkeypatch.setattr(_cammarl_training, "team_env", lambda *given, **options: Naming(horizon=12))
    config = NavigationConfig(seeds=(1, 2), updates=10, envs=4, warmup=4, fit_epochs=1, hidden=4, epochs=1)
    killed_and_whole(lambda folder: (None, _cammarl_training.train(config, "cammarl", folder)), tmp_path, monkeypatch)
