"""What a model believes a number to be, asked apart from any play."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.agents._choices import option_probabilities
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models import Chat, LanguageModel, Sampling

__all__ = ["Belief", "FreeBeliefs", "Reading", "ask_freely", "ask_numbers", "option_probabilities"]

Reading = Literal["expected", "likeliest"]
"""How a point is read off a distribution over numbers."""
NUMBERS = Sampling(max_tokens=16, temperature=0.7)
"""Default sampling of free replies."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Belief:
    """A distribution over numbers.

    Raises:
        UserError: If there is not one probability per value, one is negative, or they do not sum to 1.
    """

    values: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.probabilities) or not self.values:
            raise UserError(
                f"got {len(self.probabilities)} probabilities for {len(self.values)} values; give one each."
            )
        total = math.fsum(self.probabilities)
        if not min(self.probabilities) >= 0 or not abs(total - 1) <= 1e-6:
            raise UserError(f"probabilities must be 0 or more and sum to 1, got a sum of {total:g}; divide by the sum.")

    @property
    def expected(self) -> float:
        """The mean."""
        return math.fsum(v * p for v, p in zip(self.values, self.probabilities, strict=True))

    @property
    def likeliest(self) -> float:
        """The value of the highest probability, the first of equals."""
        return self.values[int(np.argmax(self.probabilities))]

    def point(self, reading: Reading = "expected") -> float:
        """Return one number.

        Raises:
            UserError: If the reading is unknown.
        """
        if reading not in get_args(Reading):
            known = get_args(Reading)
            raise UserError(f"no reading {reading!r}.{did_you_mean(reading, known)} Known: {', '.join(known)}.")
        return self.expected if reading == "expected" else self.likeliest


@dataclass(frozen=True)
class FreeBeliefs:
    """Numbers read from free replies."""

    values: tuple[float, ...]
    """NaN where no reply held a number in range."""
    replies: tuple[str, ...]
    """The last reply to each question."""
    retries: int
    """Questions asked again, in all."""

    @property
    def missing(self) -> int:
        """How many stayed without a number."""
        return sum(math.isnan(value) for value in self.values)


def ask_numbers(model: LanguageModel, chats: Sequence[Chat], values: Sequence[int]) -> list[Belief]:
    """Ask for numbers by log-probability, each question in a session of its own.

    Args:
        model: Scores the numbers, written in digits.
        chats: One question each.
        values: The possible answers.

    Raises:
        UserError: If a chat holds an earlier reply: what was said or done there would leak into the belief.
    """
    _check_fresh(chats)
    texts = [str(value) for value in values]
    shares = option_probabilities(model, chats, [texts] * len(chats))
    return [Belief(tuple(map(float, values)), tuple((share / share.sum()).tolist())) for share in shares]


def ask_freely(
    model: LanguageModel,
    chats: Sequence[Chat],
    low: float,
    high: float,
    *,
    retries: int = 1,
    seed: int = 0,
    sampling: Sampling = NUMBERS,
) -> FreeBeliefs:
    """Ask for numbers in free text: the first number of a reply counts, if it lies in the range.

    Args:
        model: Replies; for served models that give no log-probabilities.
        chats: One question each.
        low: Lowest number accepted.
        high: Highest number accepted.
        retries: How often a question is asked again, in a new session with another seed; then it is missing.
        seed: Of the replies.
        sampling: How they are drawn.

    Raises:
        UserError: If a chat holds an earlier reply, the range is empty, or `retries` is negative.
    """
    _check_fresh(chats)
    if not low <= high or retries < 0:
        raise UserError(f"expected low <= high and retries of at least 0, got {low}, {high} and {retries}.")
    values, replies, again = [math.nan] * len(chats), [""] * len(chats), 0
    waiting = list(range(len(chats)))
    for attempt in range(retries + 1):
        again += len(waiting) * (attempt > 0)
        seeds = [derive_seed(seed, "belief", place, attempt) for place in waiting]
        answers = model.generate([chats[place] for place in waiting], sampling, seeds=seeds) if waiting else []
        for place, answer in zip(waiting, answers, strict=True):
            replies[place] = answer.text
            found = _NUMBER.search(answer.text)
            if found and low <= float(found[0]) <= high:
                values[place] = float(found[0])
        waiting = [place for place in waiting if math.isnan(values[place])]
    return FreeBeliefs(tuple(values), tuple(replies), again)


def _check_fresh(chats: Sequence[Chat]) -> None:
    for row, one in enumerate(chats):
        if any(message["role"] == "assistant" for message in one):
            raise UserError(
                f"question {row} holds an earlier reply of the model; ask for beliefs in a session of its own, before "
                "the persona has acted."
            )
