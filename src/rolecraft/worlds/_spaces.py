"""What both of PettingZoo's interfaces to a world share: its spaces, and observations as arrays."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds._world import World


def text_of(observation: Mapping[str, Any]) -> str:
    """Return the text of an observation of `WorldEnv` or `ParallelWorldEnv`."""
    return bytes(observation["observation"]).rstrip(b"\0").decode(errors="replace")


class WorldSpaces:
    """The spaces of a world of choices.

    An observation is a dict of `observation`, uint8 of shape (longest,), the text as UTF-8 padded with zeros; and
    `action_mask`, int8 of shape (actions,).

    Args:
        world: Whose actions are known.
        longest: Most bytes of an observation; longer ones lose their beginning.
        idle: Whether one action more, the last, stands for doing nothing.

    Raises:
        UserError: If the world's actions are free text.
    """

    def __init__(self, world: World, longest: int, idle: bool = False) -> None:
        if world.actions is None:
            raise UserError(f"{world.name}: its actions are free text, which PettingZoo's discrete spaces cannot hold.")
        self._world, self._longest = world, longest
        self.names = world.actions
        self.idle = len(self.names) if idle else None
        self._index = {action: index for index, action in enumerate(self.names)}
        self.size = len(self.names) + idle
        text = gymnasium.spaces.Box(0, 255, (longest,), np.uint8)
        mask = gymnasium.spaces.Box(0, 1, (self.size,), np.int8)
        self.observations = {
            agent: gymnasium.spaces.Dict({"observation": text, "action_mask": mask}) for agent in world.agents
        }
        self.actions = {agent: gymnasium.spaces.Discrete(self.size) for agent in world.agents}

    def name_of(self, agent: str, action: Any) -> str:
        """Return the action at an index.

        Raises:
            IllegalActionError: If there is none.
        """
        index = int(action)
        if index == self.idle or not 0 <= index < len(self.names):
            meant = "to do nothing" if index == self.idle else f"action {index}"
            raise IllegalActionError(
                f"{self._world.name}: {agent} wants {meant}; expected an index in 0..{len(self.names) - 1} that the "
                "action mask allows."
            )
        return self.names[index]

    def observe(self, agent: str, chosen: Container[str] = ()) -> dict[str, Any]:
        """Return what an agent sees and may do now; nothing where it is not its turn or its choice is made."""
        encoded = self._world.observe(agent).encode()[-self._longest :]
        text = np.frombuffer(encoded.ljust(self._longest, b"\0"), dtype=np.uint8).copy()
        return {"observation": text, "action_mask": self._mask(agent, chosen)}

    def _mask(self, agent: str, chosen: Container[str]) -> NDArray[np.int8]:
        mask = np.zeros(self.size, dtype=np.int8)
        if agent in self._world.acting and agent not in chosen:
            mask[[self._index[action] for action in self._world.legal(agent) or ()]] = 1
        elif self.idle is not None:
            mask[self.idle] = 1
        return mask


def start(world: World, seed: int | None) -> int:
    """Reset a world, without a seed with one drawn from the operating system, and return the seed."""
    used = int(np.random.default_rng().integers(2**31)) if seed is None else seed
    world.reset(used)
    return used
