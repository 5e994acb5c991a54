"""The benchmarks of multi-agent training and of control: fair turns, equal samplers, our trainings; without peers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests._jax.quickly import compile_quickly

__all__ = ["compile_quickly"]
jax = pytest.importorskip("jax")
FOLDER = str(Path(__file__).parents[1] / "benchmarks")
NAMES = ("control", "marl", "_marl_peers", "_one_core", "_torch_unet", "_entries")


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    """Import benchmarks by their bare names, as `run.py` does, and forget them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        for name in ("ROLECRAFT_JAXMARL", "ROLECRAFT_PEERS"):
            patch.delenv(name, raising=False)
        for name in ("JAX_PLATFORMS", "XLA_FLAGS"):  # set for good by the benchmark, for this process here
            patch.setenv(name, "cpu" if name == "JAX_PLATFORMS" else "")
        yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def one_core(load: Any) -> ModuleType:
    found: ModuleType = load("_one_core")
    return found


def test_sides_take_turns_in_alternating_order_after_an_uncounted_one(one_core: ModuleType) -> None:
    called: list[tuple[str, int]] = []

    def side(name: str) -> Any:
        def run(number: int) -> Any:
            called.append((name, number))
            return one_core.Done(10, 2.0, 1.0)

        return run

    done = one_core.turns({"a": side("a"), "b": side("b")}, 3)
    assert [name for name, _ in called] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert {name: len(found) for name, found in done.items()} == {"a": 3, "b": 3}
    assert [number for name, number in called if name == "a"] == [0, 0, 1, 2]


def test_an_entry_compares_cpu_time_and_names_the_wall_clock(one_core: ModuleType) -> None:
    ours = [one_core.Done(100, 5.0, 1.0), one_core.Done(100, 5.0, 2.0)]
    peer = [one_core.Done(10, 1.0, 1.0), one_core.Done(10, 1.0, 1.0)]
    found = one_core.compared("name", "steps/s", ours, peer, "two sides")
    assert (found["ours"], found["peer"], found["ratio"], found["spread"]) == (75.0, 10.0, 7.5, [5.0, 10.0])
    assert found["conditions"].endswith("the ratio is 2.00")


def test_a_short_call_is_repeated_until_the_clock_can_tell(one_core: ModuleType) -> None:
    calls: list[int] = []
    side = one_core.often(lambda: calls.append(sum(range(100_000))), 3, seconds=0.05)
    before = len(calls)
    done = side(0)
    assert done.work == 3 * (len(calls) - before)
    assert len(calls) - before > 3
    assert 0 < done.cpu < 1


@pytest.mark.parametrize("multipliers", [(1, 2), pytest.param((1, 1, 3), marks=pytest.mark.slow)])
def test_the_network_in_pytorch_is_ours(load: Any, multipliers: tuple[int, ...]) -> None:
    import torch
    from jax import numpy as jnp

    from rolecraft.control import TemporalUnet

    ours, draw = TemporalUnet(8, multipliers), np.random.default_rng(0)
    inputs = [draw.normal(size=shape).astype(np.float32) for shape in ((3, 8, 5), (3,), (3, 2), (3,))]
    params = jax.jit(ours.init)(jax.random.key(0), *map(jnp.asarray, inputs))
    params = jax.tree.map(lambda leaf: leaf + jnp.asarray(0.1 * draw.normal(size=leaf.shape), jnp.float32), params)
    theirs = load("_torch_unet").TorchUnet(params["params"], 8, multipliers, 5)
    found = theirs(*map(torch.from_numpy, inputs)).numpy()
    np.testing.assert_allclose(found, jax.jit(ours.apply)(params, *map(jnp.asarray, inputs)), rtol=1e-4, atol=1e-4)


def test_peers_that_are_not_there_are_said_not_to_be_measured(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    peers = load("_marl_peers")
    assert "ROLECRAFT_JAXMARL names no checkout" in peers.missing_jaxmarl()
    if peers.missing_benchmarl():
        assert load("marl").entries(quick=True) == []
        assert capsys.readouterr().err.count("not measured") == 2


def test_a_checkout_without_baselines_is_no_peer(load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROLECRAFT_JAXMARL", str(tmp_path))
    assert load("_marl_peers").missing_jaxmarl() == f"{tmp_path} has no folder baselines"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["our_q", "our_ippo"])
def test_our_trainings_count_steps_and_learn(load: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    marl, peers = load("marl"), load("_marl_peers")
    monkeypatch.setattr(peers, "WORLD", "switch")
    for field, value in {"ENVS": 2, "BATCH": 2, "BUFFER": 4, "PPO_ENVS": 2, "PPO_STEPS": 8, "PPO_EPOCHS": 1}.items():
        monkeypatch.setattr(peers, field, value)
    kept: list[Any] = []
    run = marl.Compiled.__call__
    monkeypatch.setattr(marl.Compiled, "__call__", lambda self, argument: kept.append(run(self, argument)))
    training = marl.our_q("vdn", 2, 1) if name == "our_q" else marl.our_ippo(2, 1)
    done = training(0)
    training(1)
    assert done.work == (2 * 2 * peers.LENGTH if name == "our_q" else 2 * 2 * 8)
    assert done.cpu > 0
    weights = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)]) for found, _ in kept]
    assert np.isfinite(weights[0]).all()
    assert np.abs(weights[0] - weights[1]).max() > 1e-3  # another key, other weights
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(kept[0][1]))
