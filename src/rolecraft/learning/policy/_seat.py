"""A policy under training at a world's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rolecraft._run import derive_seed
from rolecraft.learning.policy._token_policy import Reply, TokenPolicy
from rolecraft.worlds import Act, Turn, View

TOKENS, LOGP, ENDED = "tokens", "logp", "ended"


class LearnerSeat:
    """Lets a `TokenPolicy` act: among the legal actions where there are any, else in its own words.

    The notes of an act hold what training needs: `tokens`, `logp`, `ended`. Several samples of one start differ by
    the table's orders `{"sample": number}`.
    """

    def __init__(self, policy: TokenPolicy, name: str = "policy") -> None:
        """Bind a policy.

        Args:
            policy: Draws the replies.
            name: Goes into the notes as `policy`.
        """
        self.policy = policy
        self.name = name

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view in one batch."""
        prompts = [self.policy.encode(view.agent, view.role, view.observation) for view in views]
        options = [None if view.legal is None else self.policy.options(view.legal) for view in views]
        seeds = [_seed(view) for view in views]
        acts = []
        for each, found in zip(options, self.policy.sample(prompts, options, seeds), strict=True):
            tokens = found.tokens
            spoken = tokens[:-1] if found.ended else tokens
            action = self.policy.codec.text(spoken) if each is None else each.actions[tokens]
            notes = {"policy": self.name, TOKENS: list(tokens), LOGP: list(found.logp), ENDED: found.ended}
            acts.append(Act(action, notes))
        return acts


def reply_of(policy: TokenPolicy, turn: Turn, role: str | None) -> Reply:
    """Return a turn of a `LearnerSeat` as a row to be scored."""
    legal = turn.notes.get("permitted", turn.legal)  # a guard may have offered less than the world
    options = None if legal is None else policy.options(tuple(legal))
    return Reply(policy.encode(turn.agent, role, turn.observation), tuple(turn.notes[TOKENS]), options)


def _seed(view: View) -> int:
    sample: Any = (view.orders or {}).get("sample")
    return view.seed if sample is None else derive_seed(view.seed, sample)
