"""Rows of a trainer in the form that other trainers take from a rollout of one's own: TRL's GRPO and verl."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rolecraft._files import write_atomic
from rolecraft.errors import MissingDependencyError, UserError, did_you_mean

if TYPE_CHECKING:
    from rolecraft.learning.trainer import Rows

Form = Literal["trl", "verl"]
GROUP = ("task", "agent", "turn")
NAMED = ("agent", "role", "policy", "game")
"""Keys that are exported as the names that their numbers stand for."""


def rollout_rows(rows: Rows, form: Form = "trl", *, reward: str | Sequence[float] = "outcome") -> Any:
    """Turn rows into what another trainer takes.

    Every reply is a row of its own, with the whole prompt that it was conditioned on. Rows of one group (task, agent,
    turn) stand together. A reward that is not known is None, which both trainers leave out of a group's mean or refuse,
    never 0.

    Args:
        rows: Of `Trainer.rows`.
        form: `trl`: what `GRPOTrainer(rollout_func=...)` returns: lists by name, `prompt_ids`, `completion_ids`,
            `logprobs` (of sampling) and `env_mask` (1: trained), and beside them `reward` and `group`, which TRL hands
            to reward functions. TRL wants as many rows as it gave prompts, `num_generations` of a prompt after each
            other. `verl`: the fields of its `AgentLoopOutput`, a dictionary per row.
        reward: Name of a row column, or a number per row.

    Raises:
        UserError: If the form or the column is unknown, or `reward` has another length.
    """
    if form not in get_args(Form):
        raise UserError(f"form: expected trl or verl, got {form!r}.{did_you_mean(str(form), get_args(Form))}")
    batch = rows.batch
    paid = batch.column(reward, "rollout_rows") if isinstance(reward, str) else np.asarray(reward, dtype=float)
    if paid.shape != (batch.shape[0],):
        raise UserError(f"reward: expected a number per row ({batch.shape[0]}), got shape {paid.shape}.")
    found = [_row(rows, row, paid) for row in _in_groups(rows)]
    if form == "verl":
        return [_verl(each) for each in found]
    names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "group")
    return {name: [each[name] for each in found] for name in names}


def export_rollouts(
    rows: Rows, path: str | Path, form: Form = "verl", *, reward: str | Sequence[float] = "outcome"
) -> int:
    """Write what `rollout_rows` returns to a file, one row per reply.

    Args:
        rows: Of `Trainer.rows`.
        path: Ends in `.jsonl`, or in `.parquet`, which keeps tokens as lists.
        form: See `rollout_rows`.
        reward: See `rollout_rows`.

    Returns:
        How many rows were written.

    Raises:
        UserError: As `rollout_rows`; also if the suffix is another.
        MissingDependencyError: If Parquet's library is not installed.
    """
    path = Path(path)
    found = rollout_rows(rows, form, reward=reward)
    if form == "trl":
        found = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    if path.suffix == ".jsonl":
        write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found))
    elif path.suffix == ".parquet":
        try:
            import pandas as pd

            full = [{name: value for name, value in row.items() if value != {}} for row in found]  # Parquet has no {}
            content = pd.DataFrame(full).to_parquet(index=False)
        except ImportError:
            raise MissingDependencyError("Parquet needs pandas and pyarrow: pip install pandas pyarrow.") from None
        write_atomic(path, content)
    else:
        raise UserError(f"{path}: expected .jsonl or .parquet, got {path.suffix or 'no suffix'!r}.")
    return len(found)


def _in_groups(rows: Rows) -> list[int]:
    """Return the rows in an order in which those of one group stand together."""
    columns = [rows.batch.keys[name] for name in ("traj", *reversed(GROUP))]
    return [int(row) for row in np.lexsort(columns)]


def _row(rows: Rows, row: int, paid: Any) -> dict[str, Any]:
    batch, reply = rows.batch, rows.replies[row]
    size = len(reply.tokens)
    keys = {name: int(values[row]) for name, values in batch.keys.items()}
    named = {name: rows.names[name][keys[name]] for name in NAMED if name in rows.names}
    return {
        "prompt_ids": list(reply.prompt),
        "completion_ids": list(reply.tokens),
        "logprobs": list(rows.turns[row].notes["logp"]),
        "env_mask": batch.mask[row, :size].astype(int).tolist(),
        "reward": float(paid[row]) if batch.known[row] else None,
        "group": "/".join(str(named.get(name, keys[name])) for name in GROUP),
        "keys": {**keys, **named},
    }


def _verl(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "prompt_ids": row["prompt_ids"],
        "response_ids": row["completion_ids"],
        "response_mask": row["env_mask"],
        "response_logprobs": row["logprobs"],
        "reward_score": row["reward"],
        "num_turns": 2,
        "metrics": {},
        "extra_fields": {"uid": row["group"], **row["keys"]},
    }
