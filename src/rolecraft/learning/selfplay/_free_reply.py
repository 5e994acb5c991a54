"""Worlds whose actions are written in free text, after a thought: what is no legal action ends the episode."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rolecraft.agents import Reader, ThinkAct
from rolecraft.errors import UserError
from rolecraft.worlds import Episode, World


class FreeReply(World):
    r"""Lets a language model think before it acts: a reply is any text, and the action is read out of it.

    With the reader of `ThinkAct("boxed")`, as SPIRAL (arXiv 2506.24119) has it, the action is the text of the last
    `\boxed{...}` outside of thoughts; letters' case does not count. A reply without an action, or with one that is not
    legal, ends the episode: its writer is paid the first of `invalid`, all others the second. The thought reaches
    nobody: others see what the world shows of the action.
    """

    name = "free-reply"
    actions = None

    def __init__(
        self,
        world: World,
        reader: Reader | None = None,
        *,
        invalid: tuple[float, float] = (-1.5, 0.5),
        show_legal: bool = True,
    ) -> None:
        """Wrap a world.

        Args:
            world: Has legal actions at every turn.
            reader: Reads replies; None: `ThinkAct("boxed")`.
            invalid: Rewards of whoever replies without a legal action, and of the others.
            show_legal: Say in the observation what is legal.

        Raises:
            UserError: If a reward is not finite.
        """
        if len(invalid) != 2 or not all(map(math.isfinite, invalid)):
            raise UserError(f"{self.name}: invalid holds two finite rewards, got {invalid}.")
        self.world = world
        self.agents = world.agents
        self.reader: Reader = reader or ThinkAct("boxed")
        self._invalid, self._show = invalid, show_legal
        self._faults: dict[str, str] = {}

    def reset(self, seed: int) -> None:
        """Start the inner world."""
        self.world.reset(seed)
        self._faults = {}

    @property
    def acting(self) -> tuple[str, ...]:
        """Whoever acts in the inner world; nobody after an invalid reply."""
        return () if self._faults else self.world.acting

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
        """Return the inner state, and who replied without a legal action."""
        return {"world": dict(self.world.state()), "faults": dict(self._faults)}

    def rewards(self) -> Mapping[str, float]:
        """Return the inner rewards; after an invalid reply, those of the rule instead."""
        if not self._faults:
            return self.world.rewards()
        return {agent: self._invalid[0 if agent in self._faults else 1] for agent in self.agents}

    def outcome(self) -> Mapping[str, Any]:
        """Return the inner outcome and, by agent, what was wrong with its reply."""
        inner = {} if self._faults else dict(self.world.outcome())
        return {**inner, "invalid": dict(self._faults)}

    def action_of(self, agent: str, reply: str) -> tuple[str, str]:
        """Return the inner action that a reply of an acting agent holds, and what is wrong with it, if anything is."""
        found = self.reader.read(reply)
        if found.status == "failed":
            return "", f"no action: {found.reason}"
        meant = " ".join(found.action.split()).casefold()
        for legal in self._inner(agent):
            if " ".join(legal.split()).casefold() == meant:
                return legal, ""
        return "", f"not legal: {found.action[:80]!r}"

    def _inner(self, agent: str) -> tuple[str, ...]:
        legal = self.world.legal(agent)
        if legal is None:
            raise UserError(f"{self.world.name}: {agent} may say anything there, so that no action can be read.")
        return legal

    def _apply(self, actions: Mapping[str, str]) -> None:
        read = {agent: self.action_of(agent, reply) for agent, reply in actions.items()}
        self._faults = {agent: fault for agent, (_, fault) in read.items() if fault}
        if not self._faults:
            self.world.act({agent: action for agent, (action, _) in read.items()})


def silent_share(episodes: Iterable[Episode], reader: Reader | None = None) -> float:
    """Return the share of turns without a word of reasoning beside the action; above one half is a thinking collapse.

    Args:
        episodes: Played in a `FreeReply`.
        reader: Its reader; None: `ThinkAct("boxed")`.
    """
    reads = reader or ThinkAct("boxed")
    thoughts = [reads.read(turn.action).thought for episode in episodes for turn in episode.turns]
    return sum(not any(map(str.isalnum, thought)) for thought in thoughts) / len(thoughts) if thoughts else 0.0
