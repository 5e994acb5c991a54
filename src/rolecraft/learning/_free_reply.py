"""Worlds whose actions are written in free text, after a thought: what is no legal action ends the episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rolecraft.agents import Reader, ThinkAct
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import Episode, World


class FreeReply(World):
    r"""Lets a language model think before it acts: a reply is any text, and the action is read out of it.

    With the reader of `ThinkAct("boxed")`, as SPIRAL (arXiv 2506.24119) has it, the action is the text of the last
    `\boxed{...}` outside of thoughts; letters' case does not count. A reply without an action, or with one that is not
    legal, is illegal itself: `Trainer` ends the episode there, with the rewards of `TrainConfig.illegal`. The thought
    reaches nobody: others see what the world shows of the action.

    State, rewards and outcome are the inner world's.
    """

    name = "free-reply"
    actions = None

    def __init__(self, world: World, reader: Reader | None = None, *, show_legal: bool = True) -> None:
        """Wrap a world.

        Args:
            world: Has legal actions at every turn.
            reader: Reads replies; None: `ThinkAct("boxed")`.
            show_legal: Say in the observation what is legal.
        """
        self.world = world
        self.agents = world.agents
        self.reader: Reader = reader or ThinkAct("boxed")
        self._show = show_legal

    def reset(self, seed: int) -> None:
        """Start the inner world."""
        self.world.reset(seed)

    @property
    def acting(self) -> tuple[str, ...]:
        """Whoever acts in the inner world."""
        return self.world.acting

    def observe(self, agent: str) -> str:
        """Return the inner observation; at the agent's turn also what is legal and how to answer."""
        parts = [self.world.observe(agent)]
        if agent in self.acting:
            if self._show:
                parts.append(f"You may do one of these: {', '.join(self._inner(agent))}.")
            parts.append(self.reader.instruction)
        return "\n".join(part for part in parts if part)

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return that any text may be written."""
        return None if agent in self.acting else ()

    def state(self) -> Mapping[str, Any]:
        """Return the inner state."""
        return self.world.state()

    def rewards(self) -> Mapping[str, float]:
        """Return the inner rewards."""
        return self.world.rewards()

    def outcome(self) -> Mapping[str, Any]:
        """Return the inner outcome."""
        return self.world.outcome()

    def check(self, agent: str, action: str) -> None:
        """Refuse a reply that holds no legal action.

        Raises:
            IllegalActionError: Saying why none could be read, or what would be legal.
        """
        self.action_of(agent, action)

    def action_of(self, agent: str, reply: str) -> str:
        """Return the inner action that a reply of an acting agent holds.

        Raises:
            IllegalActionError: If there is none.
        """
        found = self.reader.read(reply)
        if found.status == "failed":
            raise IllegalActionError(f"{self.world.name}: {agent}'s reply holds no action: {found.reason}.")
        meant = " ".join(found.action.split()).casefold()
        for legal in self._inner(agent):
            if legal.casefold() == meant:
                return legal
        self.world.check(agent, found.action)
        return found.action

    def _inner(self, agent: str) -> tuple[str, ...]:
        legal = self.world.legal(agent)
        if legal is None:
            raise UserError(f"{self.world.name}: {agent} may say anything there, so that no action can be read.")
        return legal

    def _apply(self, actions: Mapping[str, str]) -> None:
        self.world.act({agent: self.action_of(agent, reply) for agent, reply in actions.items()})


def silent_share(episodes: Iterable[Episode], reader: Reader | None = None) -> float:
    """Return the share of turns without a word of reasoning beside the action; above one half is a thinking collapse.

    Args:
        episodes: Played in a `FreeReply`.
        reader: Its reader; None: `ThinkAct("boxed")`.
    """
    reads = reader or ThinkAct("boxed")
    silent = [not any(map(str.isalnum, reads.read(reply).thought)) for reply in _replies(episodes)]
    return sum(silent) / len(silent) if silent else 0.0


def _replies(episodes: Iterable[Episode]) -> list[str]:
    """Return what was written; where it was refused, the record's action is another one, and the receipt has it."""
    return [
        turn.receipts[-1].action if turn.fallback and turn.receipts else turn.action
        for episode in episodes
        for turn in episode.turns
    ]
