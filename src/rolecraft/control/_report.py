"""What a conditioned agent was told to do, beside what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rolecraft.errors import UserError

if TYPE_CHECKING:
    from rolecraft.measures import Interval


@dataclass(frozen=True)
class CommandLevel:
    """The episodes of one command."""

    commanded: str
    """What was asked for, as text."""
    value: float | None
    """The same as a number; None where the command is no number."""
    achieved: Interval
    """Mean of what came out, with a bootstrap interval over units."""
    error: float
    """Mean absolute difference between what was asked for and what came out."""
    episodes: int


@dataclass(frozen=True)
class CommandReport:
    """Commanded against achieved, one line per command; print it for a table."""

    measure: str
    """What was measured, such as `return` or `goal reached`."""
    levels: tuple[CommandLevel, ...]
    """In ascending order of the command, or in order of appearance."""
    slope: float
    """Least-squares slope of achieved over commanded: 1 obeys, 0 ignores; NaN where commands are no numbers."""
    rank: float
    """Spearman's correlation of the two over episodes; NaN likewise."""
    error: float
    """Mean absolute difference over all episodes."""

    @property
    def monotone(self) -> bool:
        """Whether the means rise strictly with the command."""
        means = [level.achieved.estimate for level in self.levels]
        return all(a < b for a, b in pairwise(means))

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain row per command, for a run store or a data frame; a bound that is undefined is None."""
        found = []
        for level in self.levels:
            each = level.achieved
            bounds = [None if bound != bound else bound for bound in (each.low, each.high)]
            found.append({
                "commanded": level.commanded, "achieved": each.estimate, "low": bounds[0], "high": bounds[1],
                "error": level.error, "episodes": level.episodes,
            })  # fmt: skip
        return found

    def __str__(self) -> str:
        width = max(9, *(len(level.commanded) for level in self.levels))
        lines = [f"{'commanded':<{width}}  {'achieved ' + self.measure:<28}  {'error':>8}  episodes"]
        lines += [
            f"{level.commanded:<{width}}  {level.achieved!s:<28}  {level.error:>8.3g}  {level.episodes:>8}"
            for level in self.levels
        ]
        tail = "" if self.slope != self.slope else f"; slope {self.slope:.3g}, rank correlation {self.rank:.3g}"
        return "\n".join([*lines, f"mean error {self.error:.3g}{tail}"])


def commanded_against_achieved(
    commanded: ArrayLike, achieved: ArrayLike, *, measure: str = "return", units: Sequence[object] | None = None
) -> CommandReport:
    """Compare numbers that were asked for with those that came out.

    Args:
        commanded: Shape (n,): one command per episode, such as a return.
        achieved: Shape (n,): what the episode came to, in the same units.
        measure: Its name.
        units: One label per episode; episodes of one label (a training seed) are resampled together. None: each alone.

    Raises:
        UserError: If shapes differ, there is no episode, or a number is not finite.
    """
    from rolecraft.measures import slope, spearman

    asked, came = _vectors(commanded, achieved, units)
    levels = [
        _level(f"{value:g}", float(value), asked[rows], came[rows], _some(units, rows))
        for value in np.unique(asked)
        for rows in [np.flatnonzero(asked == value)]
    ]
    rank = spearman(asked, came)
    return CommandReport(
        measure, tuple(levels), slope(asked, came), float("nan") if len(levels) < 2 else rank.r,
        float(np.abs(asked - came).mean()),
    )  # fmt: skip


def commands_met(
    commands: Sequence[object], met: ArrayLike, *, measure: str = "share met", units: Sequence[object] | None = None
) -> CommandReport:
    """Report how often commands that are no numbers (goals, skills, constraints, texts) were met.

    Args:
        commands: One per episode, such as a `Condition` or an expression; equal texts are one command.
        met: Shape (n,): 1 or True where the episode met it, 0 where not; shares count as well.
        measure: Its name.
        units: See `commanded_against_achieved`.

    Raises:
        UserError: If lengths differ, there is no episode, or a share is not in [0, 1].
    """
    names = [str(command) for command in commands]
    wanted, came = _vectors(np.ones(len(names)), met, units)
    if came.min() < 0 or came.max() > 1:
        raise UserError(f"met: expected numbers from 0 to 1, got {came.min():g} to {came.max():g}.")
    levels = []
    for name in dict.fromkeys(names):
        rows = np.flatnonzero([each == name for each in names])
        levels.append(_level(name, None, wanted[rows], came[rows], _some(units, rows)))
    return CommandReport(measure, tuple(levels), float("nan"), float("nan"), float((1 - came).mean()))


def _level(text: str, value: float | None, asked: Any, came: Any, units: Sequence[object] | None) -> CommandLevel:
    from rolecraft.measures import bootstrap_mean

    return CommandLevel(text, value, bootstrap_mean(came, units), float(np.abs(asked - came).mean()), len(came))


def _some(units: Sequence[object] | None, rows: Any) -> list[object] | None:
    return None if units is None else [units[row] for row in rows]


def _vectors(commanded: ArrayLike, achieved: ArrayLike, units: Sequence[object] | None) -> tuple[Any, Any]:
    asked, came = np.asarray(commanded, dtype=float), np.asarray(achieved, dtype=float)
    if asked.ndim != 1 or asked.shape != came.shape or not asked.size:
        raise UserError(
            f"expected commanded and achieved of one shape (n,), n >= 1, got {asked.shape} and {came.shape}."
        )
    if not (np.isfinite(asked).all() and np.isfinite(came).all()):
        raise UserError("commanded and achieved must be finite numbers; leave episodes without a figure out.")
    if units is not None and len(units) != len(asked):
        raise UserError(f"expected a unit per episode ({len(asked)}), got {len(units)}.")
    return asked, came
