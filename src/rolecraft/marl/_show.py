"""Pictures of states and episodes: letters for the terminal, an animated GIF for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rolecraft.errors import MissingDependencyError, UserError
from rolecraft.marl._evaluate import Frame
from rolecraft.marl._team import TeamEnv

COLOURS = {
    "#": "#3a3f4a", ".": "#f4f1ea", "A": "#1f77b4", "B": "#d95f02", "a": "#9ecae9", "b": "#fdbf8f", "o": "#7fbf7b",
    "x": "#e8d44d", "P": "#7b3294", "p": "#d9c7e3", "D": "#1b7837",
}  # fmt: skip
CELL = 26
"""Pixels of a letter's square."""
SIDE = 25
"""Letters across the map of a continuous world."""
SHOWN = 16
"""Numbers of an observation that are printed where there is no picture."""


def render_state(env: TeamEnv, state: Any) -> str:
    """Return a picture of a state in letters.

    Our own worlds draw themselves; worlds of particles (MPE) are drawn as a map from -1.3 to 1.3 with agents as capital
    letters and landmarks as `*`; of others the agents' observations are printed.
    """
    draw = getattr(env, "render", None)
    if draw is not None:
        picture: str = draw(state)
        return picture
    inner: Any = getattr(getattr(state, "inner", None), "state", None)
    if hasattr(inner, "p_pos"):
        return _particles(np.asarray(inner.p_pos), len(env.agents))
    obs = getattr(getattr(state, "inner", None), "obs", None)
    if obs is None:
        return f"{env.name}: this world cannot be drawn"
    rows = np.asarray(jax.device_get(obs))[:, :SHOWN]
    return "\n".join(
        f"{agent}: {' '.join(f'{value:g}' for value in np.round(row, 2))}"
        for agent, row in zip(env.agents, rows, strict=True)
    )


def _particles(places: np.ndarray[Any, Any], agents: int) -> str:
    letters = np.full((SIDE, SIDE), ".")
    cells = np.clip(((places + 1.3) / 2.6 * SIDE).astype(int), 0, SIDE - 1)
    for i in reversed(range(len(places))):
        letters[SIDE - 1 - cells[i, 1], cells[i, 0]] = chr(ord("A") + i) if i < agents else "*"
    return "\n".join("".join(line) for line in letters)


def episode_text(frames: Sequence[Frame], agents: Sequence[str], choices: Sequence[str] = ()) -> str:
    """Return an episode as text: every picture, then who did what, what it was worth, and what the policy noted.

    Args:
        frames: See `render_episode`.
        agents: Names.
        choices: Names of the actions.
    """
    lines = list[str]()
    for number, frame in enumerate(frames):
        lines += [f"--- step {number}", frame.picture]
        for i, agent in enumerate(agents):
            did = choices[frame.actions[i]] if choices else frame.actions[i]
            noted = ", ".join(
                f"{name} {values[i]:.3g}" for name, values in frame.notes.items() if _per_agent(values, len(agents))
            )
            reward = f", reward {frame.rewards[i]:g}" if frame.rewards[i] else ""
            lines.append(f"{agent}: {did}{reward}" + (f" ({noted})" if noted else ""))
    total = sum(sum(frame.rewards) for frame in frames)
    return "\n".join([*lines, f"return of the team: {total:g} in {len(frames)} steps"])


def _per_agent(values: Any, n: int) -> bool:
    return isinstance(values, list) and len(values) == n and all(isinstance(value, int | float) for value in values)


def save_gif(frames: Sequence[Frame], path: str | Path, *, milliseconds: int = 300) -> Path:
    """Write an episode as an animated picture.

    Args:
        frames: See `render_episode`.
        path: Ends in `.gif`.
        milliseconds: A frame is shown so long, the last one four times as long.

    Raises:
        UserError: If there are no frames, or the path does not end in `.gif`.
        MissingDependencyError: If Pillow is not installed.
    """
    path = Path(path)
    if path.suffix != ".gif":
        raise UserError(f"{path}: expected a name that ends in .gif.")
    if not frames:
        raise UserError("no frames: play an episode first.")
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise MissingDependencyError("animated pictures need Pillow; install it with: pip install pillow.") from None
    size = (
        max(len(line) for frame in frames for line in frame.picture.split("\n")) * CELL,
        (max(frame.picture.count("\n") for frame in frames) + 2) * CELL,
    )
    font, pictures, total = ImageFont.load_default(CELL * 0.6), [], 0.0
    for number, frame in enumerate(frames):
        picture = Image.new("RGB", size, "white")
        pen = ImageDraw.Draw(picture)
        for y, line in enumerate(frame.picture.split("\n")):
            for x, letter in enumerate(line):
                box = (x * CELL, y * CELL, (x + 1) * CELL - 2, (y + 1) * CELL - 2)
                pen.rectangle(box, fill=COLOURS.get(letter, "white"))
                if letter not in "#.":
                    pen.text((box[0] + CELL // 2, box[1] + CELL // 2), letter, fill="black", font=font, anchor="mm")
        pen.text((4, size[1] - CELL // 2), f"{number}   {total:g}", fill="black", font=font, anchor="lm")
        total += sum(frame.rewards)
        pictures.append(picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    times = [milliseconds] * (len(pictures) - 1) + [4 * milliseconds]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=times, loop=0)
    return path
