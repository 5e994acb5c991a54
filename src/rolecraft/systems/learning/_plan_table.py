"""A table that writes whole plans for Plan-Path: it reads the map and the draft from the prompt, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning import Answers
from rolecraft.learning.policy import TabularPolicy

if TYPE_CHECKING:
    from torch import Tensor

Ints = NDArray[np.int64]

WORDS = ("U", "D", "L", "R")
STOP = len(WORDS)
UNSEEN = STOP + 1
"""There is no draft in the prompt; `STOP`: the draft has ended, or cannot be read."""
DRAFT = "The proposer suggests :"


class PlanTable(torch.nn.Module):
    """A softmax over four moves and a stop at every place of a plan.

    Logits are the sum of two rows: one for the map with where the team stands, the place and the drafted move there;
    and one for the place and the drafted move alone, so that it can be learned on all maps at once whether to adopt a
    draft. It plays any role: what is asked of it stands in the prompt. A prompt with another map, or with a draft where
    there was none in training, leads to rows that were never trained.
    """

    def __init__(self, places: int, maps: int, blind: bool = False) -> None:
        """Start uniform.

        Args:
            places: Most moves of a plan.
            maps: How many maps, each with one place to stand, there can be.
            blind: Do not look at the draft, so that all roles share all rows.
        """
        super().__init__()
        self.places, self.maps, self.blind = places, maps, blind
        self.table = TabularPolicy(maps * places * (UNSEEN + 1), 1, len(WORDS) + 1)
        self.general = TabularPolicy(places * (UNSEEN + 1), 1, len(WORDS) + 1)
        self._known: dict[str, int] = {}
        self._read: dict[str, Ints] = {}

    def contexts(self, prompts: Sequence[str]) -> Ints:
        """Return the rows of the table that stand for each prompt and place, of shape (N, places).

        Raises:
            UserError: If a prompt shows no map, or there are more maps than expected.
        """
        for prompt in prompts:
            if prompt not in self._read:
                self._read[prompt] = self._context(prompt)
        return np.stack([self._read[prompt] for prompt in prompts])

    def sample(self, prompts: Sequence[str], roles: Sequence[str], seeds: Sequence[int]) -> Answers:
        """Draw one plan per prompt; its tokens end with the stop, if it comes to one."""
        contexts = self.contexts(prompts)
        with torch.no_grad():
            table = self._log_softmax(contexts).numpy()
        shares = np.cumsum(np.exp(table), -1)
        draws = np.stack([np.random.default_rng(seed).random(self.places) for seed in seeds])
        drawn = np.minimum((draws[..., None] * shares[..., -1:] > shares).sum(-1), STOP)
        logp = np.take_along_axis(table, drawn[..., None], -1)[..., 0]
        stops = (drawn == STOP).argmax(1)
        lengths = np.where((drawn == STOP).any(1), stops + 1, self.places)
        tokens = [row[:length].tolist() for row, length in zip(drawn, lengths, strict=True)]
        texts = [" ".join(WORDS[token] for token in row if token != STOP) for row in tokens]
        return Answers(texts, tokens, [row[:length].tolist() for row, length in zip(logp, lengths, strict=True)])

    def log_probs(self, prompts: Sequence[str], tokens: Ints) -> Tensor:
        """Return the log-probability of tokens of shape (N, T), with gradient."""
        contexts = self.contexts(prompts)[:, : tokens.shape[1]]
        return self._log_softmax(contexts).gather(-1, torch.as_tensor(tokens)[..., None])[..., 0]

    def _log_softmax(self, contexts: Ints) -> Tensor:
        """Return log-probabilities of shape (N, T, words)."""
        at = torch.as_tensor(contexts)
        own, general = self.table.logits[at, 0], self.general.logits[at % len(self.general.logits), 0]
        return torch.log_softmax(own + general, -1)

    def _context(self, prompt: str) -> Ints:
        lines = prompt.splitlines()
        shown = "\n".join(line for line in lines if line and set(line) <= set(".#SG "))
        if "S" not in shown or "G" not in shown:
            raise UserError(f"the prompt shows no map with S and G, so there is nothing to plan: {prompt[:80]!r}.")
        number = self._known.setdefault(shown, len(self._known))
        if number >= self.maps:
            raise UserError(f"the table has room for {self.maps} maps and places to stand, and met one more.")
        draft = next((line[len(DRAFT) :].split() for line in lines if line.startswith(DRAFT)), None)
        seen = np.full(self.places, UNSEEN if draft is None or self.blind else STOP, dtype=np.int64)
        if draft and not self.blind and all(word in WORDS for word in draft):
            seen[: len(draft)] = [WORDS.index(word) for word in draft]
        return (number * self.places + np.arange(self.places)) * (UNSEEN + 1) + seen
