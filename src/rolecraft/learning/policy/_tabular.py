"""A table of logits: the policy whose every number can be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolecraft.errors import UserError


class TabularPolicy(torch.nn.Module):
    """An independent softmax over V tokens at each of P places, for each of C contexts.

    Contexts may be prompts, states or (role, state) pairs; a policy over states and single actions has P = 1.
    """

    def __init__(self, contexts: int, places: int, vocabulary: int) -> None:
        """Start uniform.

        Args:
            contexts: C.
            places: P.
            vocabulary: V.

        Raises:
            UserError: If one is below 1.
        """
        super().__init__()
        if min(contexts, places, vocabulary) < 1:
            raise UserError(f"contexts, places and vocabulary must be at least 1, got {contexts, places, vocabulary}.")
        self.logits = torch.nn.Parameter(torch.zeros(contexts, places, vocabulary, dtype=torch.float64))

    def log_softmax(self, contexts: NDArray[Any] | Tensor) -> Tensor:
        """Return log-probabilities of shape (N, P, V), with gradient."""
        return torch.log_softmax(self.logits[torch.as_tensor(contexts)], -1)

    def log_probs(self, contexts: NDArray[Any] | Tensor, tokens: NDArray[Any] | Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability of tokens (N, P) and the entropy at each place (N, P), with gradient."""
        table = self.log_softmax(contexts)
        chosen = table.gather(-1, torch.as_tensor(tokens)[..., None])[..., 0]
        return chosen, -(table.exp() * table).sum(-1)

    @torch.no_grad()
    def sample(self, contexts: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw tokens, and return them with their log-probabilities; both of shape (N, P)."""
        table = self.log_softmax(contexts).numpy()
        shares = np.cumsum(np.exp(table), -1)
        draws = rng.random(table.shape[:2])[..., None] * shares[..., -1:]
        tokens = np.minimum((draws > shares).sum(-1), table.shape[-1] - 1)
        return tokens, np.take_along_axis(table, tokens[..., None], -1)[..., 0]
