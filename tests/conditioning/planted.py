"""A model whose activations hold planted directions, and roles to extract them from."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.conditioning import Steering
from rolecraft.models import Chat, Completion, Sampling
from rolecraft.roles import Role

Array = NDArray[np.float32]


def role(role_id: str, questions: int = 8, instructions: int = 2) -> Role:
    """A role whose texts all name it."""
    return Role(
        id=role_id,
        name=role_id.title(),
        description=f"You are the {role_id} of the village and proud of it.",
        instructions=tuple(f"Speak as the {role_id} would, way {i}." for i in range(instructions)),
        questions=tuple(f"What does the {role_id} think of matter {i}?" for i in range(questions)),
    )


class _Token:
    """Stands for an array that was handed out and is not freed."""


class PlantedModel:
    """Activation = common part + the role's direction + noise that depends on the reply alone.

    A system text that names a role adds the role's direction; one that also says it must not be played (`never`,
    `nothing`, `opposite`, `wrong`, `far`) subtracts it; any other system text adds nothing.
    """

    name = "local:planted"
    revision = "planted-1"

    def __init__(self, roles: Sequence[str], n_sites: int = 4, hidden: int = 24, noise: float = 0.0) -> None:
        generator = np.random.default_rng(0)
        self.n_sites, self.hidden, self.noise = n_sites, hidden, noise
        self.common = 50 * generator.standard_normal((n_sites, hidden))
        self.truth = {name: generator.standard_normal((n_sites, hidden)) for name in roles}
        self.reply: Callable[[Chat, int], str] = self.plain_reply
        self.shift: Callable[[Chat, str], float] = lambda chat, reply: 0.0
        self.batches: list[int] = []
        self.samplings: list[Sampling] = []
        self.alive: set[_Token] = set()
        self.most_alive = 0

    def plain_reply(self, chat: Chat, seed: int) -> str:
        return f"{self.side(chat)} {derive_seed(chat, seed)}"

    def side(self, chat: Chat) -> str:
        system = str(chat[0]["content"]).lower()
        named = next((name for name in self.truth if name in system), "")
        if not named:
            return "nobody"
        against = any(word in system for word in ("nothing", "opposite", "avoid", "wrong", "far as you can"))
        return f"{'anti' if against else 'as'} {named}"

    def generate(
        self,
        chats: Sequence[Chat],
        sampling: Sampling,
        steering: Steering | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        self.batches.append(len(chats))
        self.samplings.append(sampling)
        return [Completion(self.reply(chat, seed)) for chat, seed in zip(chats, seeds or [], strict=True)]

    def activations(
        self,
        chats: Sequence[Chat],
        replies: Sequence[str],
        sites: Sequence[int] | None = None,
        pooling: str = "reply-mean",
    ) -> Iterator[tuple[int, Array]]:
        for row in reversed(range(len(chats))):
            value = self.activation(chats[row], replies[row])[list(sites or [])].astype(np.float32)
            token = _Token()
            weakref.finalize(value, self.alive.discard, token)
            self.alive.add(token)
            self.most_alive = max(self.most_alive, len(self.alive))
            yield row, value
            del value

    def activation(self, chat: Chat, reply: str) -> NDArray[np.float64]:
        side = self.side(chat)
        sign = {"as": 1.0, "anti": -1.0}.get(side.split()[0], 0.0)
        direction = self.truth[side.split()[1]] if sign else np.zeros((self.n_sites, self.hidden))
        noise = np.random.default_rng(derive_seed(reply)).standard_normal((self.n_sites, self.hidden))
        return np.asarray(self.common + sign * direction + self.noise * noise + self.shift(chat, reply))
