"""What every language model offers: the data that goes in and comes out, and the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError

if TYPE_CHECKING:
    from rolecraft.conditioning import Steering

FloatArray = NDArray[np.float32]


class Message(TypedDict):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


Chat = Sequence[Message]


def chat(user: str, system: str | None = "", history: Sequence[Message] = ()) -> list[Message]:
    """Build a chat of an optional system message, earlier messages and one user message.

    Args:
        user: The user's message.
        system: The system text. The empty string is an explicit *empty* system message, which keeps templates
            that insert a default one (SmolLM2 does) from doing so; None leaves the system message out.
        history: Messages between the system and the user message.
    """
    head: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    return [*head, *history, {"role": "user", "content": user}]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Raises:
        UserError: If a value is outside its range.
    """

    max_tokens: int = 32
    """Most new tokens per reply, at least 1."""
    temperature: float = 0.2
    """0 decodes greedily."""
    top_p: float = 0.99
    """Nucleus mass in (0, 1]."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UserError(f"max_tokens must be at least 1, got {self.max_tokens}.")
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"temperature must be finite and at least 0, got {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p must be in (0, 1], got {self.top_p}.")


GREEDY = Sampling(temperature=0.0, top_p=1.0)


@dataclass(frozen=True)
class Completion:
    """One reply."""

    text: str
    finish: Literal["stop", "length", "error"] = "stop"
    """`error`: this row failed (non-finite logits, a refused request); `note` says why and `text` is empty."""
    prompt_tokens: int = 0
    tokens: int = 0
    """New tokens in the reply."""
    note: str = ""
    token_ids: tuple[int, ...] = field(default=(), repr=False)


@runtime_checkable
class LanguageModel(Protocol):
    """Anything that replies to chats and scores replies."""

    @property
    def name(self) -> str:
        """Model string, such as `local:smollm2`."""
        ...

    @property
    def revision(self) -> str:
        """What identifies the weights: a content hash, or what the server reports."""
        ...

    def generate(
        self,
        chats: Sequence[Chat],
        sampling: Sampling,
        steering: Steering | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Reply to each chat.

        Args:
            chats: One chat per row.
            sampling: Shared by all rows.
            steering: Interventions per row (local models only; others raise `UserError`).
            seeds: One seed per row. A row's draw depends on its own seed alone, never on its neighbours. Default: 0.

        Returns:
            One completion per chat, in the same order.
        """
        ...

    def logprobs(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[FloatArray]:
        """Return the log-probability of each token of each reply given its chat, arrays of shape (reply tokens,)."""
        ...
