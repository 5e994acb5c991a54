"""What worlds of other packages share: a state made of seed and actions, observations as text, clear errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from rolecraft.errors import IllegalActionError, MissingDependencyError, UserError
from rolecraft.worlds._world import World

MOST_NUMBERS = 4096
"""Most numbers of an observation that are put into words; a picture has more."""

Describe = Callable[[str, Any], str]
"""Turns (agent, raw observation) into text."""


class ForeignWorld(World):
    """A world whose rules another package holds.

    Such packages seldom have a state that can be written down. So `state` is the seed and every action since: all that
    decides how it goes on, if the package draws chance from its seed alone. `rolecraft.worlds.replay` finds out whether
    it does, for it compares observations and rewards too. Two orders of actions that lead to the same position are two
    states here; and as hashing them takes longer with every step, play long episodes with `hashes=False`.
    """

    def __init__(self, label: str) -> None:
        """Note what is played, as the state tells it."""
        self._label, self._seed = label, 0
        self._history: list[dict[str, str]] = []

    def reset(self, seed: int) -> None:
        """Start an episode.

        Raises:
            UserError: If the package refuses to start.
        """
        self._seed, self._history = seed, []
        self._start(seed)

    @abstractmethod
    def _start(self, seed: int) -> None:
        """Start an episode of the package's own."""

    @abstractmethod
    def _step(self, actions: Mapping[str, str]) -> None:
        """Pass one legal action of every acting agent on."""

    def act(self, actions: Mapping[str, str]) -> None:
        """Let every acting agent act once.

        Raises:
            IllegalActionError: If an agent is missing, acts out of turn, does what it may not, or the episode is over.
        """
        if not self.acting:
            raise IllegalActionError(f"{self.name}: the episode is over; reset it.")
        super().act(actions)

    def _apply(self, actions: Mapping[str, str]) -> None:
        self._step(actions)
        self._history.append({agent: actions[agent] for agent in self.agents if agent in actions})

    def state(self) -> Mapping[str, Any]:
        """Return what is played, the seed, every action, whose turn it is and what everyone has earned."""
        return {
            "plays": self._label,
            "seed": self._seed,
            "history": [dict(actions) for actions in self._history],
            "acting": list(self.acting),
            "rewards": dict(self.rewards()),
        }


def need(module: str, package: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: Such as `pyspiel`.
        package: What pip calls it.

    Raises:
        MissingDependencyError: With the line that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise MissingDependencyError(f"this world needs {package}: pip install '{package}'.") from None


def shown(value: Any) -> str:
    """Return a raw observation as text: strings as they are, numbers with six digits, mappings a line per key.

    Raises:
        UserError: If it holds more numbers than anyone would read.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {shown(item)}" for key, item in value.items())
    if isinstance(value, tuple | list):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    array = np.asarray(value)
    if array.size > MOST_NUMBERS:
        raise UserError(
            f"an observation of shape {array.shape} is no text; pass describe=, a function of agent and observation."
        )
    return _numbers(array)


def _numbers(array: Any) -> str:
    if array.ndim:
        return "[" + ", ".join(_numbers(part) for part in array) + "]"
    value = array.item()
    if isinstance(value, bool):
        return str(int(value))
    return f"{value + 0.0:.6g}" if isinstance(value, float) else str(value)


class Choices:
    """Names for the numbers of a discrete space.

    Args:
        size: How many there are.
        names: One per number; None: the numbers themselves.
        first: The smallest number.

    Raises:
        UserError: If there are not as many different names as numbers.
    """

    def __init__(self, size: int, names: Sequence[str] | None = None, first: int = 0) -> None:
        self.names = tuple(names) if names is not None else tuple(str(first + place) for place in range(size))
        self._first = first
        if len(set(self.names)) != len(self.names) or len(self.names) != size:
            raise UserError(f"expected {size} different names of actions, got {len(self.names)}: {list(self.names)}.")
        self._places = {name: place for place, name in enumerate(self.names)}

    def number(self, name: str) -> int:
        """Return the number that a name stands for."""
        return self._first + self._places[name]

    def allowed(self, mask: Any) -> tuple[str, ...]:
        """Return the names that a mask of zeros and ones allows; all, where there is no mask."""
        if mask is None:
            return self.names
        return tuple(name for name, allowed in zip(self.names, np.asarray(mask).ravel(), strict=True) if allowed)


def in_order(names: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return all names once, in the order of their first appearance."""
    return tuple(dict.fromkeys(name for some in names for name in some))
