"""What `rolecraft show` prints of the teams that a run trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft._cli._output import print_json, print_table

if TYPE_CHECKING:
    from rolecraft._run import RunView

MARKS = "▁▂▃▄▅▆▇█"


def has_teams(run: RunView) -> bool:
    """Tell whether a run directory holds trainings of teams; imports nothing heavy."""
    return any((run.directory / "marl").glob("*/marl.json"))


def describe(run: RunView) -> list[dict[str, Any]]:
    """Return the curves of the teams that a run trained so far."""
    from rolecraft.marl import describe_trainings

    return describe_trainings(run.directory)


def print_teams(found: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per team: how far it is, and the course of its return in tests."""
    rows = []
    for team in found:
        curve = team["curves"].get("return", [])
        rows.append(
            {
                "team": team["name"],
                "world": team["world"],
                "tests": f"{team['tests']}/{team['of']}",
                "return": _course(curve),
                "first": curve[0] if curve else None,
                "last": curve[-1] if curve else None,
                "checkpoints": ", ".join(map(str, team["checkpoints"])),
            }
        )
    print_table(rows, list(rows[0]) if rows else [])


def print_team_episode(run: RunView, checkpoint: int | None, episode: str, path: Path | None, as_json: bool) -> None:
    """Play an episode with a checkpoint's weights and print it; with a path that ends in `.gif`, write it there."""
    from rolecraft.marl import episode_text, play_kept, save_gif

    env, frames = play_kept(run.directory, episode, -1 if checkpoint is None else checkpoint)
    if path is not None:
        print(f"{len(frames)} frames written to {save_gif(frames, path)}")
    elif as_json:
        print_json([vars(frame) for frame in frames])
    else:
        agents, roles = getattr(env, "members", env.agents), getattr(env, "member_roles", env.roles)
        print(f"{env.name}: {', '.join(f'{agent} ({role})' for agent, role in zip(agents, roles, strict=True))}")
        print(episode_text(frames, agents))


def _course(values: Sequence[float], width: int = 24) -> str:
    size = max(1, -(-len(values) // width))
    means = [sum(part) / len(part) for part in (values[at : at + size] for at in range(0, len(values), size))]
    low, high = min(means, default=0.0), max(means, default=0.0)
    return "".join(MARKS[int((value - low) / (high - low or 1) * (len(MARKS) - 1))] for value in means)
