"""How a legal action is chosen by log-probability: the likeliest, or one drawn by its probability."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rolecraft.conditioning import Steering
from rolecraft.errors import UserError
from rolecraft.models import Chat, LanguageModel, choose
from rolecraft.models._choice import steered_logprobs


@dataclass(frozen=True)
class Chosen:
    """One choice."""

    index: int
    """Of the option taken."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """For the notes of the act."""


class Choice(Protocol):
    """Chooses one option per row; all rows are scored in one call."""

    def __call__(
        self,
        model: LanguageModel,
        chats: Sequence[Chat],
        options: Sequence[Sequence[str]],
        seeds: Sequence[int],
        steering: Steering | None,
    ) -> Sequence[Chosen]:
        """Choose.

        Args:
            model: Scores the options.
            chats: One chat per row.
            options: The legal actions of each row.
            seeds: One per row; a row's choice depends on its own alone.
            steering: Interventions per row.
        """
        ...


@dataclass(frozen=True)
class Likeliest:
    """Takes the option that the model finds likeliest as its reply, so that the smallest model plays legally."""

    length_normalised: bool = True
    """See `rolecraft.models.choose`."""

    def __call__(
        self,
        model: LanguageModel,
        chats: Sequence[Chat],
        options: Sequence[Sequence[str]],
        seeds: Sequence[int],
        steering: Steering | None,
    ) -> list[Chosen]:
        """Choose; the seeds have no effect."""
        return [Chosen(index) for index in choose(model, chats, options, self.length_normalised, steering)]


LIKELIEST = Likeliest()
"""The default choice."""


@dataclass(frozen=True)
class Drawn:
    """Draws an option by its probability, so that repeats of a game differ; the draw follows from the seed alone.

    Raises:
        UserError: If the temperature is not above 0.
    """

    temperature: float = 1.0
    """Above 0; 1 draws by the model's own probabilities."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise UserError(f"temperature must be finite and above 0, got {self.temperature}.")

    def __call__(
        self,
        model: LanguageModel,
        chats: Sequence[Chat],
        options: Sequence[Sequence[str]],
        seeds: Sequence[int],
        steering: Steering | None,
    ) -> list[Chosen]:
        """Choose, and note the option's probability at temperature 1."""
        chosen = []
        for seed, shares in zip(seeds, option_probabilities(model, chats, options, steering), strict=True):
            weights = np.exp(np.log(np.maximum(shares, 1e-300)) / self.temperature)
            place = int(np.random.default_rng(seed).choice(len(shares), p=weights / weights.sum()))
            chosen.append(Chosen(place, {"probability": float(shares[place])}))
        return chosen


def option_probabilities(
    model: LanguageModel,
    chats: Sequence[Chat],
    options: Sequence[Sequence[str]],
    steering: Steering | None = None,
) -> list[NDArray[np.float64]]:
    """Return, for each chat, the probability of each option given that the reply is one of them.

    A reply of `10` also begins with `1`: where one option is the beginning of others, their probability is taken off
    its own, so that what is left is that of ending there or going on otherwise.

    Args:
        model: Scores the options.
        chats: One chat per row; a chat and options that come again are scored once.
        options: The options of each row, non-empty and all different.
        steering: Interventions per chat, which a local model alone can make.

    Raises:
        UserError: If a row has no options, an empty one or one twice, or the numbers of rows differ.
    """
    if len(chats) != len(options):
        raise UserError(f"got {len(options)} lists of options for {len(chats)} chats; give one per chat.")
    for row, given in enumerate(options):
        if not given or not all(given) or len(set(given)) < len(given):
            raise UserError(f"row {row}: options must be non-empty and all different, got {list(given)!r}.")
    steered = steering.rows if steering else [()] * len(chats)
    keys = [
        (_key(one), tuple(given), tuple(map(id, row))) for one, given, row in zip(chats, options, steered, strict=True)
    ]
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    flat = [(row, option) for key, row in first.items() for option in key[1]]
    rows = [row for row, _ in flat]
    scores = iter(
        steered_logprobs(
            model, [chats[row] for row in rows], [option for _, option in flat], steering and steering.select(rows)
        )
    )
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
