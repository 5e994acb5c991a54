"""Refusal in character: by the likelihood of how a reply opens, and by the words of a reply."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rolecraft.conditioning import Steering
    from rolecraft.models import Chat
    from rolecraft.models._base import FloatArray

REFUSING = (
    "I do not know anything about that.",
    "I have never heard of such a thing.",
    "I cannot answer that question.",
    "No, that is not true, you are mistaken.",
)
"""How a character opens who does not know, or does not accept what is asked."""
ANSWERING = (
    "Yes, let me tell you about that.",
    "I know the answer to that well.",
    "That is because of how it happened.",
    "It is quite simple, my friend.",
)
"""How a character opens who goes along with the question."""

_REFUSAL = re.compile(
    r"\b(?:(?:do not|don't|cannot|can't|could not|couldn't) (?:know|say|answer|tell|recall|understand|help|provide)"
    r"|(?:not|isn't|never) (?:sure|certain|aware|familiar|true|heard)|no (?:idea|knowledge)|mistaken|unfamiliar|unaware"
    r"|not the case|never (?:did|was|had|happened)|beyond (?:my|what i))\b",
    re.IGNORECASE,
)


class Scorer(Protocol):
    """A model that scores replies under steering: `LocalModel`."""

    def logprobs(
        self, chats: Sequence[Chat], replies: Sequence[str], steering: Steering | None = None
    ) -> list[FloatArray]:
        """Return the log-probability of each token of each reply."""
        ...


def refusal_margins(model: Scorer, chats: Sequence[Chat], steering: Steering | None = None) -> NDArray[np.float64]:
    """Return how much likelier each chat's reply opens with a refusal than with an answer.

    The mean over `REFUSING` of the log-probability per token, less that over `ANSWERING`, in nats, shape (chats,).
    NaN where the model's figures are not finite.

    Args:
        model: Scores the openings.
        chats: Up to where the reply begins.
        steering: Interventions per chat.
    """
    openings = (*REFUSING, *ANSWERING)
    rows = [row for row in range(len(chats)) for _ in openings]
    scored = model.logprobs(
        [chats[row] for row in rows],
        openings * len(chats),
        None if steering is None else steering.select(rows),
    )
    means = np.array([values.mean() for values in scored], dtype=float).reshape(len(chats), len(openings))
    margins = means[:, : len(REFUSING)].mean(1) - means[:, len(REFUSING) :].mean(1)
    return np.where(np.isfinite(margins), margins, np.nan)


def is_refusal(reply: str) -> bool:
    """Tell whether the first 200 characters of a reply say that it does not know, cannot answer or does not agree."""
    return _REFUSAL.search(reply[:200].replace("’", "'")) is not None
