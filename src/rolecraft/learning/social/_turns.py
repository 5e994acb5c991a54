"""Turn quality: a judge flags degenerate turns, which then earn no credit for what came of the conversation.

OMAR (arXiv 2602.03109) reports that self-play on a social reward is hacked by repetition, flattery and broken forms;
its counter-measure is this filter. Here too: participants whose evaluator failed are masked, not paid 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rolecraft.errors import UserError
from rolecraft.worlds import Turn

if TYPE_CHECKING:
    from rolecraft.learning.trainer import Rows
    from rolecraft.worlds import Episode

TURN_KEEP = "turn_keep"
"""Row column: 0 where a turn is degenerate; `BilevelGae(quality="turn_keep")` reads it."""


@dataclass(frozen=True)
class JudgedTurn:
    """What a judge of turns is given."""

    turn: Turn
    before: Sequence[Turn]
    """The same participant's earlier turns in the conversation."""


TurnJudge = Callable[[Sequence[JudgedTurn]], Sequence[str | None]]
"""For every turn the reason why it is degenerate, empty where it is fine, None where the judge has no answer."""


@dataclass(frozen=True)
class RuleTurnJudge:
    """Flags turns by rules alone: `empty`, `off-format`, `repetition`.

    A turn is a repetition if the participant has said it word for word `repeats` times before, or if one word makes up
    more than `same_word` of a turn of at least six words.
    """

    repeats: int = 2
    same_word: float = 0.5
    parse: Callable[[str], object] | None = None
    """Raises UserError for a text that is off the format; None: there is no format."""

    def __post_init__(self) -> None:
        if self.repeats < 1 or not 0 < self.same_word <= 1:
            raise UserError(
                "rule judge of turns: repeats must be at least 1 and same_word above 0 and at most 1, got "
                f"{self.repeats!r} and {self.same_word!r}."
            )

    def __call__(self, turns: Sequence[JudgedTurn]) -> list[str]:
        """Return the reasons."""
        return [self._fault(each) for each in turns]

    def _fault(self, judged: JudgedTurn) -> str:
        words = judged.turn.action.casefold().split()
        if not words:
            return "empty"
        if self.parse is not None:
            try:
                self.parse(judged.turn.action)
            except UserError:
                return "off-format"
        said = [before.action.casefold().split() for before in judged.before]
        stuck = len(words) >= 6 and max(Counter(words).values()) > self.same_word * len(words)
        return "repetition" if said.count(words) >= self.repeats or stuck else ""


@dataclass(frozen=True)
class FilterLog:
    """What the filter did in one iteration."""

    turns: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Flagged turns by reason."""
    unjudged: int = 0
    """Turns for which the judge had no answer; they are kept."""

    @property
    def share(self) -> float:
        """Flagged turns of all."""
        return sum(self.reasons.values()) / self.turns if self.turns else 0.0


def judge_turns(rows: Rows, judge: TurnJudge, *, max_filtered: float = 0.3) -> tuple[Rows, FilterLog]:
    """Give rows the column `turn_keep`: 0 where a judge flags the turn.

    Args:
        rows: With the keys `traj`, `agent` and `turn`.
        judge: Of all turns at once.
        max_filtered: A larger share of flagged turns stops the run.

    Returns:
        Rows with the column, and the log.

    Raises:
        UserError: If too many turns are flagged, or the judge does not answer for every turn.
    """
    cases = _cases(rows)
    found = list(judge(cases))
    if len(found) != len(cases):
        raise UserError(f"the judge of turns was given {len(cases)} turns and answered for {len(found)}.")
    log = FilterLog(len(found), dict(Counter(reason for reason in found if reason)), found.count(None))
    if log.share > max_filtered:
        most = ", ".join(f"{reason} {count}" for reason, count in log.reasons.items())
        raise UserError(
            f"{log.share:.0%} of {log.turns} turns are flagged as degenerate, more than {max_filtered:.0%} ({most}); "
            "look at the transcripts and at the judge before training on."
        )
    keep = np.array([0.0 if reason else 1.0 for reason in found])
    batch = replace(rows.batch, row={**rows.batch.row, TURN_KEEP: keep})
    return replace(rows, batch=batch), log


def _cases(rows: Rows) -> list[JudgedTurn]:
    keys = rows.batch.keys
    own: dict[tuple[int, int], list[tuple[int, Turn]]] = {}
    for row, turn in enumerate(rows.turns):
        own.setdefault((int(keys["traj"][row]), int(keys["agent"][row])), []).append((int(keys["turn"][row]), turn))
    for spoken in own.values():
        spoken.sort(key=lambda each: each[0])
    cases = []
    for row, turn in enumerate(rows.turns):
        spoken = own[int(keys["traj"][row]), int(keys["agent"][row])]
        cases.append(JudgedTurn(turn, [each for place, each in spoken if place < keys["turn"][row]]))
    return cases


Evaluator = Callable[["Episode"], Mapping[str, float | None]]
"""From a finished conversation to each participant's reward; None where the evaluation failed."""


def evaluate_rows(rows: Rows, episodes: Sequence[Episode], evaluate: Evaluator) -> tuple[Rows, int]:
    """Pay participants what an evaluator says; one whose evaluation failed is masked, and nobody else.

    Args:
        rows: Of these episodes.
        episodes: In the order of the key `traj`.
        evaluate: Such as a social evaluation brought to one number by `social_reward`.

    Returns:
        Rows with other outcomes, and how many participants were masked.

    Raises:
        UserError: If the evaluator says nothing of a participant, or a reward is not finite.
    """
    paid: list[dict[str, float | None]] = []
    for episode in episodes:
        given = evaluate(episode)
        for agent in dict.fromkeys(turn.agent for turn in episode.turns):
            reward = given.get(agent, math.nan)
            if reward is not None and not math.isfinite(reward):
                raise UserError(
                    f"{episode.world}, seed {episode.seed}: the evaluator's reward of {agent} is "
                    f"{'missing' if agent not in given else reward}; give a number, or None where it failed."
                )
        paid.append(dict(given))
    rewards = [paid[int(traj)][turn.agent] for traj, turn in zip(rows.batch.keys["traj"], rows.turns, strict=True)]
    known = np.array([reward is not None for reward in rewards], dtype=bool)
    outcome = np.array([0.0 if reward is None else reward for reward in rewards])
    masked = {
        (int(traj), turn.agent)
        for traj, turn, fine in zip(rows.batch.keys["traj"], rows.turns, known, strict=True)
        if not fine
    }
    batch = replace(rows.batch, row={**rows.batch.row, "outcome": outcome}, valid=rows.batch.known & known)
    return replace(rows, batch=batch, silent=None), len(masked)
