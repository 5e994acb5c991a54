"""Stopping cells early, once the interval has decided.

Questions are asked in rounds. After each round a strength is dropped when it cannot pass any more, or when another
strength is better; a role is done when its last strength passes or when nothing is left to decide. Every look uses
intervals of level 1 - (1 - level) / looks (Bonferroni), so that looking often does not decide by luck.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rolecraft.errors import GridError
from rolecraft.screening._verdict import BASELINE, CONTROL_ARMS, PROMPTED, Key, Pairs, VerdictRule

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Adaptive:
    """How often to look."""

    round_questions: int = 4
    """Questions per round."""

    def __post_init__(self) -> None:
        if self.round_questions < 1:
            raise GridError(f"round_questions must be at least 1, got {self.round_questions}.")

    def rounds(self, questions: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Cut the questions into rounds; a short rest joins the round before it."""
        size = self.round_questions
        cuts = [questions[start : start + size] for start in range(0, len(questions), size)]
        if len(cuts) > 1 and len(cuts[-1]) < size:
            cuts[-2:] = [cuts[-2] + cuts[-1]]
        return cuts


def open_strengths(table: pd.DataFrame, rule: VerdictRule, looks: int) -> dict[str, frozenset[float] | None]:
    """Say what is still to be asked.

    Args:
        table: Scored answers so far, as for `decide`.
        rule: Thresholds.
        looks: How many times the data will be looked at in all.

    Returns:
        Per role the strengths that are still open (an empty set: only the prompt against the baseline is open), or
        None when the role is decided.
    """
    strict = replace(rule, level=1 - (1 - rule.level) / max(looks, 1))
    return {str(role): _open(Pairs(rows, strict)) for role, rows in table.groupby("role", sort=False)}


def _open(pairs: Pairs) -> frozenset[float] | None:
    covered = pairs.fully_asked()
    alive = {s for s in covered if not _hopeless(("role", s), pairs)}
    alive -= {s for s in alive if any(_better(("role", t), ("role", s), pairs) for t in alive if t != s)}
    if not alive:
        prompt = pairs.contrast(PROMPTED, BASELINE)
        return None if prompt.low[0] > 0 or prompt.high[0] < 0 else frozenset()
    if len(alive) == 1 and not pairs.failures(("role", next(iter(alive)))):
        return None
    return frozenset(alive)


def _hopeless(key: Key, pairs: Pairs) -> bool:
    rivals = [BASELINE, *((arm, key[1]) for arm in CONTROL_ARMS)]
    return any(rival in pairs.scores and pairs.contrast(key, rival).high[0] < 0 for rival in rivals)


def _better(a: Key, b: Key, pairs: Pairs) -> bool:
    return bool(pairs.contrast(a, b).low[0] > 0) and not pairs.unhealthy(a)
