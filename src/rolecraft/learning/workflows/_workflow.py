"""What teamwork is for training: roles that answer prompts in turns, and the policies that play them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from rolecraft.errors import UserError

if TYPE_CHECKING:
    from rolecraft.learning.policy import TokenPolicy
    from rolecraft.worlds import World

S = TypeVar("S")
Order = Literal["sequence", "parallel"]


@dataclass(frozen=True)
class Effect(Generic[S]):
    """What an answer leads to."""

    state: S
    team: float
    """The workflow's reward for it, such as what the environment paid."""
    local: float
    """The role's own."""
    done: bool
    success: bool = False


class Workflow(Protocol[S]):
    """Roles that work on one task in turns.

    A state is all that decides how it goes on, and `copy.deepcopy` copies it.
    """

    agents: tuple[str, ...]
    """Roles, in the order in which they act within a turn."""
    order: Order
    """Each acts on what the one before left, or all on what they found at the start of the turn."""
    max_turns: int

    def start(self, task: int) -> S:
        """Return the first state of a task."""
        ...

    def prompt(self, role: str, state: S) -> str:
        """Return what a role is asked in a state."""
        ...

    def apply(self, state: S, role: str, text: str) -> Effect[S]:
        """Return what a role's answer leads to. The state is the callee's own: it may be changed in place."""
        ...


class Answers(NamedTuple):
    """Texts, and the tokens they were drawn as with their log-probabilities: one entry per prompt."""

    texts: Sequence[str]
    tokens: Sequence[Sequence[int]]
    logp: Sequence[Sequence[float]]


class TextPolicy(Protocol):
    """What answers prompts and can be trained: a table, or a language model."""

    def sample(self, prompts: Sequence[str], roles: Sequence[str], seeds: Sequence[int]) -> Answers:
        """Draw one answer per prompt, which depends on its prompt, role and seed alone."""
        ...


@dataclass(frozen=True)
class Routes:
    """Which policy plays which role."""

    policies: Mapping[str, TextPolicy]
    roles: Mapping[str, str]
    """Role to name of its policy."""

    @classmethod
    def shared(cls, policy: TextPolicy, roles: Sequence[str], name: str = "shared") -> Routes:
        """Let one policy play all roles."""
        return cls({name: policy}, dict.fromkeys(roles, name))

    @classmethod
    def own(cls, policies: Mapping[str, TextPolicy]) -> Routes:
        """Let every role be played by the policy of its name."""
        return cls(policies, {role: role for role in policies})

    def swapped(self, a: str, b: str) -> Routes:
        """Let two roles change policies: a team that knew its jobs should fail then."""
        self.check((a, b))
        return replace(self, roles={**self.roles, a: self.roles[b], b: self.roles[a]})

    def check(self, agents: Sequence[str]) -> None:
        """Refuse routes that leave a role without a policy.

        Raises:
            UserError: Naming the role.
        """
        for role in agents:
            if role not in self.roles:
                raise UserError(
                    f"role {role!r} has no policy (roles that have one: {', '.join(self.roles) or 'none'}); add it."
                )
            if self.roles[role] not in self.policies:
                raise UserError(
                    f"role {role!r} is played by policy {self.roles[role]!r}, which is not among "
                    f"{', '.join(self.policies) or 'no policies'}."
                )

    def sample(self, prompts: Sequence[str], roles: Sequence[str], seeds: Sequence[int]) -> Answers:
        """Ask every policy once for all prompts of its roles.

        Raises:
            UserError: If a policy returns another number of answers than it got prompts.
        """
        found: dict[int, tuple[str, Sequence[int], Sequence[float]]] = {}
        for name, policy in self.policies.items():
            at = [place for place, role in enumerate(roles) if self.roles[role] == name]
            if not at:
                continue
            given = policy.sample([prompts[i] for i in at], [roles[i] for i in at], [seeds[i] for i in at])
            if {len(given.texts), len(given.tokens), len(given.logp)} != {len(at)}:
                raise UserError(
                    f"policy {name!r}: {len(given.texts)} answers for {len(at)} prompts; expected one each."
                )
            found.update(zip(at, zip(*given, strict=True), strict=True))
        columns = list(zip(*(found[place] for place in range(len(prompts))), strict=True))
        return Answers(*columns) if columns else Answers((), (), ())


class TextsOf:
    """A `TokenPolicy`, such as a tiny transformer or a language model with an adapter, as a `TextPolicy`.

    The role of an answer is the seat of its prompt.
    """

    def __init__(self, policy: TokenPolicy) -> None:
        """Bind a policy."""
        self.policy = policy

    def sample(self, prompts: Sequence[str], roles: Sequence[str], seeds: Sequence[int]) -> Answers:
        """Draw one answer per prompt, in its own words."""
        encoded = [self.policy.encode(role, None, prompt) for prompt, role in zip(prompts, roles, strict=True)]
        drawn = self.policy.sample(encoded, [None] * len(encoded), seeds)
        texts = [self.policy.codec.text(each.tokens[:-1] if each.ended else each.tokens) for each in drawn]
        return Answers(texts, [each.tokens for each in drawn], [each.logp for each in drawn])


class WorldWorkflow:
    """A world with free text as a workflow: its seats are the roles, and a copy of it is the state.

    The team's part of a reward is the change of the world's `team_reward`, where it has one; the rest of what the
    agent earned is its own. A task is a seed of the world.
    """

    def __init__(self, world: World, max_turns: int) -> None:
        """Wrap a world whose agents act one after the other.

        Args:
            world: Copied for every task.
            max_turns: Most turns, each of which asks every agent once.
        """
        self.agents, self.max_turns = world.agents, max_turns
        self.order: Order = "sequence"
        self._world = world

    def start(self, task: int) -> World:
        """Return a world reset to a seed."""
        world = copy.deepcopy(self._world)
        world.reset(task)
        return world

    def prompt(self, role: str, state: World) -> str:
        """Return what an agent sees."""
        return state.observe(role)

    def apply(self, state: World, role: str, text: str) -> Effect[World]:
        """Let an agent act."""
        team, whole = _team_reward(state), state.rewards()[role]
        state.act({role: text})
        team = _team_reward(state) - team
        return Effect(
            state,
            team,
            state.rewards()[role] - whole - team,
            not state.acting,
            bool(state.outcome().get("success", False)) and not state.acting,
        )


def _team_reward(world: Any) -> float:
    return float(getattr(world, "team_reward", 0.0))
