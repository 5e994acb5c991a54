"""A loop of which only a part of the last state stays: killed, finished, asked for something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft.errors import UserError

pytest.importorskip("jax")

from jax import numpy as jnp

from rolecraft._jax import loop_kept


def test_a_finished_loop_is_read_and_its_state_is_gone(tmp_path: Path) -> None:
    calls = list[int]()

    def update(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        calls.append(1)
        grown = {"small": state["small"] + 1, "replay": state["replay"] * 0.5}
        return grown, {"sum": grown["small"].sum()}

    def start() -> dict[str, Any]:
        return {"small": jnp.zeros(2), "replay": jnp.ones(5)}

    def run(updates: int = 5, **identity: Any) -> tuple[Any, dict[str, Any]]:
        return loop_kept(
            update, start, lambda state: state["small"], updates=updates, chunk=2, folder=tmp_path, identity=identity
        )

    kept, figures = run(lr=0.1)
    assert np.asarray(kept).tolist() == [5, 5]
    assert figures["sum"].tolist() == [2, 4, 6, 8, 10]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept.safetensors", *(f"metrics-0000000{done}.safetensors" for done in (2, 4, 5)),
    ]  # fmt: skip
    traced = len(calls)
    again, read = run(lr=0.1)
    assert len(calls) == traced, "nothing is done twice"
    assert (np.asarray(again) == np.asarray(kept)).all()
    assert (read["sum"] == figures["sum"]).all()
    with pytest.raises(UserError, match=r"another lr: 0\.1, asked 0\.2"):
        run(lr=0.2)
    with pytest.raises(UserError, match="another updates: 5, asked 7"):
        run(7, lr=0.1)
