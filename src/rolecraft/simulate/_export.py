"""Episodes as files that other programs read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft._run._export import write_rows
from rolecraft.errors import UserError
from rolecraft.simulate._records import read_episode, read_episodes

if TYPE_CHECKING:
    from rolecraft._run import RunView
    from rolecraft.worlds import Turn


def export_episodes(run: RunView, path: str | Path) -> int:
    """Write the finished episodes of a simulation; the suffix says the format.

    `.jsonl`, `.csv` and `.parquet` hold a row per turn. `.eval` and `.json` are logs of Inspect, a sample per episode:
    what an agent sees is a user message, what it does the reply, and the rewards are the scores.

    Returns:
        How many rows or samples were written.

    Raises:
        UserError: If no episode is finished or the suffix is unknown.
        MissingDependencyError: If the format's library is not installed.
    """
    path, episodes = Path(path), read_episodes(run)
    if not episodes:
        raise UserError(f"{run.directory}: no episode is finished yet, so there is nothing to export.")
    if path.suffix in (".eval", ".json"):
        return write_rows(run, "episodes", {key: _sample(run, key, row) for key, row in episodes.items()}, path)
    rows = {
        f"{key}/{place}": _turn_row(row, turn)
        for key, row in episodes.items()
        for place, turn in enumerate(read_episode(run, key).turns)
    }
    return write_rows(run, "turns", rows, path)


def _turn_row(row: dict[str, Any], turn: Turn) -> dict[str, Any]:
    identity = {"arm": row["arm"], "number": row["number"], "seed": row["seed"], "role": row["roles"].get(turn.agent)}
    return identity | asdict(turn)


def _sample(run: RunView, key: str, row: dict[str, Any]) -> dict[str, Any]:
    turns = read_episode(run, key).turns
    messages = [
        {"role": role, "content": content}
        for turn in turns
        for role, content in (("user", f"[{turn.agent}] {turn.observation}"), ("assistant", turn.action))
    ]
    rest = {name: value for name, value in row.items() if name != "rewards"}
    return {
        "prompt": turns[0].observation if turns else "",
        "messages": messages,
        "answer": turns[-1].action if turns else "",
        "scores": dict(row["rewards"]),
        **rest,
    }
