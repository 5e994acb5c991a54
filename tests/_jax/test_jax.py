from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from rolecraft.errors import UserError

pytest.importorskip("jax")

import jax
from jax import numpy as jnp

from rolecraft._jax import (
    Diverged,
    check_memory,
    checkpoint_steps,
    load_tree,
    loop,
    parameter_count,
    read_meta,
    read_metrics,
    save_tree,
    tree_bytes,
)
from rolecraft._jax import _memory as memory


class Pair(NamedTuple):
    w: Any
    more: dict[str, Any]


def a_tree() -> Pair:
    return Pair(
        jnp.arange(6.0).reshape(2, 3),
        {
            "n": jnp.int32(3),
            "key": jax.random.key(5),
            "list": [np.zeros((0, 2)), True, 2.5],
            "raw": jax.random.PRNGKey(1),
        },
    )


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree = a_tree()
    save_tree(tmp_path / "deep" / "a.safetensors", tree, {"step": 7})
    again = load_tree(tmp_path / "deep" / "a.safetensors", tree)
    assert read_meta(tmp_path / "deep" / "a.safetensors") == {"step": 7}
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    assert jax.random.uniform(again.more["key"]) == jax.random.uniform(tree.more["key"])
    assert again.more["list"][1] is True
    assert again.more["list"][2] == 2.5
    for name in ("n", "raw"):
        np.testing.assert_array_equal(again.more[name], tree.more[name])
        assert again.more[name].dtype == tree.more[name].dtype
    np.testing.assert_array_equal(again.w, tree.w)


def test_a_file_of_another_tree_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tree(path, {"layer": {"kernel": jnp.zeros((2, 3))}, "n": jnp.int32(1)})
    with pytest.raises(UserError, match=r"missing layer/kernl, left over layer/kernel.* Did you mean 'layer/kernel'"):
        load_tree(path, {"layer": {"kernl": jnp.zeros((2, 3))}, "n": jnp.int32(1)})
    with pytest.raises(UserError, match=r"'layer/kernel' has shape \(2, 3\).*expected \(3, 2\)"):
        load_tree(path, {"layer": {"kernel": jnp.zeros((3, 2))}, "n": jnp.int32(1)})
    with pytest.raises(UserError, match=r"'n' has shape \(\) and type int32, expected \(\) and float32"):
        load_tree(path, {"layer": {"kernel": jnp.zeros((2, 3))}, "n": jnp.float32(1)})
    with pytest.raises(UserError, match="no such file"):
        load_tree(tmp_path / "b.safetensors", {})
    with pytest.raises(UserError, match="two leaves"):
        save_tree(path, {"a": {"b": 1}, "a/b": 2})
    path.write_bytes(b"nothing")
    for read in (read_meta, lambda path: load_tree(path, {})):
        with pytest.raises(UserError, match="not a readable"):
            read(path)


def test_sizes() -> None:
    shapes = jax.eval_shape(lambda: {"a": jnp.zeros((3, 4)), "b": jnp.zeros(5, jnp.int8), "c": jnp.zeros((), bool)})
    assert parameter_count(shapes) == 18
    assert tree_bytes(shapes) == 3 * 4 * 4 + 5 + 1


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_memory(1000, "little")
    with pytest.raises(UserError, match=r"replay of 9 episodes needs 1048576.00 GiB, and .* GiB .* free; lower buffer"):
        check_memory(2**50, "replay of 9 episodes", "buffer")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text(f"{3 * 2**20}\n")
    (tmp_path / "memory.current").write_text(f"{2 * 2**20}\n")
    assert memory.available_memory() == 2**20
    (tmp_path / "memory.max").write_text("max\n")
    assert (memory.available_memory() or 0) > 2**20


def walk(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A seeded random walk: its place depends on every key before it."""
    key, now = jax.random.split(state["key"])
    place = state["place"] + jax.random.normal(now, (2,))
    return {"key": key, "place": place, "n": state["n"] + 1}, {"norm": jnp.abs(place).sum(), "n": state["n"]}


def start() -> dict[str, Any]:
    return {"key": jax.random.key(3), "place": jnp.zeros(2), "n": jnp.int32(0)}


def test_the_loop_counts_and_leaves_its_argument_alone() -> None:
    first = start()
    seen: list[tuple[int, list[int]]] = []
    state, metrics = loop(walk, first, updates=5, chunk=2, report=lambda n, _, m: seen.append((n, m["n"].tolist())))
    assert seen == [(2, [0, 1]), (4, [2, 3]), (5, [4])]
    assert metrics["n"].tolist() == [0, 1, 2, 3, 4]
    assert int(state["n"]) == 5
    expected = first
    for step in range(5):  # and the first state can still be read
        expected, figures = walk(expected)
        assert metrics["norm"][step] == pytest.approx(float(figures["norm"]), rel=1e-6)
    np.testing.assert_allclose(state["place"], expected["place"], rtol=1e-6)


def test_a_killed_loop_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    whole, curve = loop(walk, start(), updates=7, chunk=2)

    def die(done: int, _: Any, __: Any) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop(walk, start(), updates=7, chunk=2, folder=tmp_path, report=die, identity={"lr": (1, 2)})
    assert checkpoint_steps(tmp_path) == checkpoint_steps(tmp_path, "state") == [2]
    # as if it had been killed between the two files of a checkpoint
    (tmp_path / "metrics-00000003.safetensors").write_bytes((tmp_path / "metrics-00000002.safetensors").read_bytes())
    again, resumed = loop(walk, start(), updates=7, chunk=3, folder=tmp_path, identity={"lr": (1, 2)})
    np.testing.assert_array_equal(again["place"], whole["place"])
    for name in curve:
        np.testing.assert_array_equal(resumed[name], curve[name])
    assert checkpoint_steps(tmp_path, "state") == [7]
    steps, read = read_metrics(tmp_path)
    assert steps == [2, 5, 7]
    np.testing.assert_array_equal(read["norm"], curve["norm"])
    with pytest.raises(UserError, match=r"another lr: \[1, 2\], asked 3"):
        loop(walk, start(), updates=7, chunk=3, folder=tmp_path, identity={"lr": 3})
    with pytest.raises(UserError, match="7 updates are done already, asked for 6"):
        loop(walk, start(), updates=6, chunk=3, folder=tmp_path, identity={"lr": (1, 2)})


def test_nan_stops_the_loop_at_its_step_and_keeps_the_last_good_state(tmp_path: Path) -> None:
    def blow(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        n = state["n"] + 1
        loss = jnp.where(n == 6, jnp.nan, 1.0)
        return {"n": n, "weights": {"w": state["weights"]["w"] * loss}}, {"fine": n, "loss": loss}

    state = {"n": jnp.int32(0), "weights": {"w": jnp.ones(3)}}
    with pytest.raises(
        Diverged, match=r"update 6: metric 'loss' is nan; not finite in the state: weights/w.*update 4 "
    ):
        loop(blow, state, updates=9, chunk=2, folder=tmp_path)
    assert checkpoint_steps(tmp_path, "state") == [4]
    with pytest.raises(Diverged, match="update 7: leaf 'weights/w'") as caught:
        loop(lambda s: (blow(s)[0], {}), state, updates=9, chunk=7)
    assert (caught.value.step, caught.value.quantity) == (7, "weights/w")


def test_bad_updates_are_refused_before_anything_compiles() -> None:
    with pytest.raises(UserError, match=r"leaf 'x' of the state from float32\(2,\) to float32\(4,\)"):
        loop(lambda s: ({"x": jnp.concatenate([s["x"], s["x"]])}, {}), {"x": jnp.zeros(2)}, updates=1, chunk=1)
    with pytest.raises(UserError, match="at least 1, got 0 and 1"):
        loop(walk, start(), updates=0, chunk=1)
    with pytest.raises(UserError, match="got tuple as figures"):
        loop(lambda s: (s, (1,)), start(), updates=1, chunk=1)  # type: ignore[arg-type, return-value]


def test_importing_the_package_imports_neither_jax_nor_torch() -> None:
    code = (
        "import sys, json, rolecraft._jax; print(json.dumps([m for m in ('jax', 'torch', 'flax') if m in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []
    code = code.replace("rolecraft._jax;", "rolecraft._jax; rolecraft._jax.loop; rolecraft._jax.save_tree;")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == ["jax"]
