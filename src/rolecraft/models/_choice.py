"""Choosing among options by log-probability, which even a small model does without parsing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rolecraft.errors import UserError
from rolecraft.models._base import Chat, LanguageModel


def choose(
    model: LanguageModel,
    chats: Sequence[Chat],
    options: Sequence[Sequence[str]],
    length_normalised: bool = True,
) -> list[int]:
    """Return, for each chat, the index of the option that the model finds most likely as its reply.

    Args:
        model: Scores the options.
        chats: One chat per row.
        options: The options of each row, one or more, none empty.
        length_normalised: Compare mean log-probabilities per token instead of sums; sums favour short options.

    Raises:
        UserError: If a row has no options, or one that is empty, or the numbers of rows differ.
    """
    if len(chats) != len(options):
        raise UserError(f"got {len(options)} lists of options for {len(chats)} chats; give one per chat.")
    for row, given in enumerate(options):
        if not given or not all(given):
            raise UserError(f"row {row}: options must be one or more non-empty texts, got {list(given)!r}.")
    flat = [(chat, option) for chat, given in zip(chats, options, strict=True) for option in given]
    scores = iter(model.logprobs([chat for chat, _ in flat], [option for _, option in flat]))
    result = []
    for given in options:
        values = [next(scores) for _ in given]
        result.append(int(np.argmax([v.mean() if length_normalised else v.sum() for v in values])))
    return result
