"""What a model believes a number to be, asked apart from any play; and actions drawn from the same kind of answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models import Chat, LanguageModel, Sampling, chat
from rolecraft.worlds import Act, View

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


def option_probabilities(
    model: LanguageModel, chats: Sequence[Chat], options: Sequence[Sequence[str]]
) -> list[NDArray[np.float64]]:
    """Return, for each chat, the probability of each option given that the reply is one of them.

    A reply of `10` also begins with `1`: where one option is the beginning of others, their probability is taken off
    its own, so that what is left is that of ending there or going on otherwise.

    Args:
        model: Scores the options.
        chats: One chat per row; a chat and options that come again are scored once.
        options: The options of each row, non-empty and all different.

    Raises:
        UserError: If a row has no options, an empty one or one twice, or the numbers of rows differ.
    """
    if len(chats) != len(options):
        raise UserError(f"got {len(options)} lists of options for {len(chats)} chats; give one per chat.")
    for row, given in enumerate(options):
        if not given or not all(given) or len(set(given)) < len(given):
            raise UserError(f"row {row}: options must be non-empty and all different, got {list(given)!r}.")
    keys = [(_key(one), tuple(given)) for one, given in zip(chats, options, strict=True)]
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    flat = [(chats[row], option) for key, row in first.items() for option in key[1]]
    scores = iter(model.logprobs([one for one, _ in flat], [option for _, option in flat]))
    found = {key: _shares(key[1], [float(next(scores).sum()) for _ in key[1]]) for key in first}
    return [found[key] for key in keys]


def _key(one: Chat) -> tuple[tuple[str, str], ...]:
    return tuple((message["role"], message["content"]) for message in one)


def _shares(options: tuple[str, ...], logs: list[float]) -> NDArray[np.float64]:
    mass = np.exp(np.array(logs) - max(logs))
    own = mass.copy()
    for place, option in enumerate(options):
        longer = [p for p, other in enumerate(options) if p != place and other.startswith(option)]
        # Only the next longer ones: what is longer still is part of theirs.
        nearest = [p for p in longer if not any(q != p and options[p].startswith(options[q]) for q in longer)]
        own[place] -= mass[nearest].sum()
    own = np.maximum(own, 1e-12 * mass)
    shares: NDArray[np.float64] = own / own.sum()
    return shares


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


class SampledChoicePolicy:
    """A language model that draws a legal action by its probability, so that repeats of a game differ.

    Views are answered in one scoring call; the draw follows from the view's seed alone.
    """

    def __init__(self, model: LanguageModel, systems: Mapping[str, str], temperature: float = 1.0) -> None:
        """Bind a model.

        Args:
            model: Scores the actions.
            systems: System text by role id.
            temperature: Above 0; 1 draws by the model's own probabilities.

        Raises:
            UserError: If the temperature is not above 0.
        """
        if not (math.isfinite(temperature) and temperature > 0):
            raise UserError(f"temperature must be finite and above 0, got {temperature}.")
        self._model, self._systems, self._temperature = model, systems, temperature

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view.

        Raises:
            UserError: If a view names a role without a text, or its actions are free text.
        """
        for view in views:
            if view.role not in self._systems:
                raise UserError(f"no text for the role {view.role!r} of {view.agent}; give one in `systems`.")
            if not view.legal:
                raise UserError(f"{view.agent} may say any text here; a choice needs legal actions.")
        chats = [chat(view.observation, self._systems[view.role or ""]) for view in views]
        options = [view.legal or () for view in views]
        acts = []
        for view, given, shares in zip(views, options, option_probabilities(self._model, chats, options), strict=True):
            weights = np.exp(np.log(np.maximum(shares, 1e-300)) / self._temperature)
            place = int(view.rng().choice(len(given), p=weights / weights.sum()))
            acts.append(Act(given[place], {"probability": float(shares[place])}))
        return acts
