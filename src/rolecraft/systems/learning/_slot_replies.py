"""Replies of eight slots and five rubrics that no reply satisfies at once: the world of MOA's small study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError

Tokens = NDArray[np.int64]
SLOTS = 8
VOCABULARY = 12
BLANK = 0
FACTS, STYLES, CUES = slice(0, 4), slice(4, 7), slice(7, 9)
"""Where the meanings stand in a prompt's order of the words 1..11; the last two words mean nothing."""
RUBRICS = ("brevity", "knowledge", "style", "instruction", "no_repeat")
BRIEF = 6
"""Words that a reply may have without losing brevity."""
DENSITY = 1 / 3
"""Share of the words that should be in style."""


@dataclass(frozen=True)
class SlotReplies:
    """Prompts that differ in which words are facts, style words and cues.

    All facts, both cues and a third of the words in style need nine words; a reply has eight slots, and loses brevity
    from the seventh word on. The best mean of the rubrics is 0.9: both cues, two facts and two style words, as the
    guide writes. With the limit at four words facts and brevity would trade one for one, and no mean could differ.
    """

    words: Tokens
    """Shape (prompts, 11): each prompt's order of the words 1..11."""

    @classmethod
    def draw(cls, prompts: int, seed: int) -> SlotReplies:
        """Draw each prompt's meanings.

        Raises:
            UserError: If there is no prompt.
        """
        if prompts < 1:
            raise UserError(f"slot replies: expected one prompt or more, got {prompts}.")
        rng = np.random.default_rng(seed)
        return cls(np.stack([rng.permutation(VOCABULARY - 1) + 1 for _ in range(prompts)]))

    def rate(self, prompts: Tokens, replies: Tokens) -> dict[str, NDArray[np.float64]]:
        """Rate replies by exact rules, each in [0, 1]: the objectives of a credit batch.

        Args:
            prompts: Shape (N,).
            replies: Shape (N, 8), words 0..11; 0 leaves a slot blank.

        Returns:
            `brevity`: 1 for up to six words, 0 for eight; `knowledge`: share of the prompt's four facts; `style`:
            share of the words that are style words, full at a third; `instruction`: the first cue in the first slot
            and the second in the last, half each; `no_repeat`: share of the words that differ, 0 for an empty reply.
        """
        meaning = self.words[prompts]
        written = (replies != BLANK).sum(1)
        counts = (replies[:, :, None] == np.arange(VOCABULARY)).sum(1)
        facts = np.take_along_axis(counts, meaning[:, FACTS], 1)
        styled = np.take_along_axis(counts, meaning[:, STYLES], 1).sum(1)
        cues = replies[:, [0, -1]] == meaning[:, CUES]
        return {
            "brevity": 1 - np.clip(written - BRIEF, 0, None) / (SLOTS - BRIEF),
            "knowledge": (facts > 0).mean(1),
            "style": np.minimum(styled / np.maximum(written, 1) / DENSITY, 1.0),
            "instruction": cues.mean(1),
            "no_repeat": (counts[:, 1:] > 0).sum(1) / np.maximum(written, 1),
        }

    def guide(self, prompts: Tokens, rng: np.random.Generator) -> Tokens:
        """Return good replies, of shape (N, 8): both cues, two facts and two style words, blanks between."""
        meaning = self.words[prompts]
        inner = np.zeros((len(prompts), SLOTS - 2), dtype=np.int64)
        inner[:, :2] = rng.permuted(meaning[:, FACTS], axis=1)[:, :2]
        inner[:, 2:4] = rng.permuted(meaning[:, STYLES], axis=1)[:, :2]
        cues = meaning[:, CUES]
        return np.concatenate([cues[:, :1], rng.permuted(inner, axis=1), cues[:, 1:]], axis=1)


def put_guide(replies: Tokens, guide: Tokens, places: Tokens) -> Tokens:
    """Return the replies with a guide's in some places.

    Args:
        replies: Shape (N, 8).
        guide: Shape (M, 8).
        places: Shape (M,): the rows that are replaced.

    Raises:
        UserError: If a guide's reply has another length, unknown words or none; the reply is named.
    """
    if guide.ndim != 2 or guide.shape != (len(places), replies.shape[1]):
        raise UserError(
            f"guide: expected {len(places)} replies of {replies.shape[1]} slots, got shape {guide.shape}; a longer "
            "reply does not fit the policy's context."
        )
    bad = ((guide < 0) | (guide >= VOCABULARY)).any(1) | (guide == BLANK).all(1)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise UserError(
            f"guide: reply {row} is {guide[row].tolist()}; expected words 0 to {VOCABULARY - 1}, not all blank."
        )
    mixed = replies.copy()
    mixed[places] = guide
    return mixed
