"""Choosing among options by log-probability, which even a small model does without parsing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rolecraft.errors import UserError
from rolecraft.models._base import Chat, FloatArray, LanguageModel

if TYPE_CHECKING:
    from rolecraft.conditioning import Steering


def choose(
    model: LanguageModel,
    chats: Sequence[Chat],
    options: Sequence[Sequence[str]],
    length_normalised: bool = True,
    steering: Steering | None = None,
) -> list[int]:
    """Return, for each chat, the index of the option that the model finds most likely as its reply.

    Args:
        model: Scores the options.
        chats: One chat per row.
        options: The options of each row, one or more, none empty.
        length_normalised: Compare mean log-probabilities per token instead of sums; sums favour short options.
        steering: Interventions per chat, which a local model alone can make.

    Raises:
        UserError: If a row has no options, or one that is empty, or the numbers of rows differ.
    """
    if len(chats) != len(options):
        raise UserError(f"got {len(options)} lists of options for {len(chats)} chats; give one per chat.")
    for row, given in enumerate(options):
        if not given or not all(given):
            raise UserError(f"row {row}: options must be one or more non-empty texts, got {list(given)!r}.")
    flat = [option for given in options for option in given]
    rows = [row for row, given in enumerate(options) for _ in given]
    scores = iter(steered_logprobs(model, [chats[row] for row in rows], flat, steering and steering.select(rows)))
    result = []
    for given in options:
        values = [next(scores) for _ in given]
        result.append(int(np.argmax([v.mean() if length_normalised else v.sum() for v in values])))
    return result


def steered_logprobs(
    model: LanguageModel, chats: Sequence[Chat], replies: Sequence[str], steering: Steering | None
) -> list[FloatArray]:
    """Return what `LanguageModel.logprobs` does, under steering if there is any.

    Raises:
        UserError: If there is, and the model cannot be steered.
    """
    if steering is None or not any(steering.rows):
        return model.logprobs(chats, replies)
    from rolecraft.models._local import LocalModel

    if not isinstance(model, LocalModel):
        raise UserError(f"{model.name} cannot be steered; steering needs a local model (local:smollm2, local:PATH).")
    return model.logprobs(chats, replies, steering)
