"""Who sanctions whom, what it costs and what it does to a reputation: one mechanism for arrays and for any society.

`SocialMechanism` holds the numbers. `ReputationLedger` applies them event by event to a society of any agents (a
language society as well); the learning populations apply the same numbers to arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from rolecraft.errors import UserError, did_you_mean
from rolecraft.societies._game import Floats

Information = Literal["play", "punish", "play-punish", "individual"]
State = Literal["none", "play", "punish", "both"]
INFORMATION: tuple[str, ...] = get_args(Information)
"""What a reputation is made of: own play, own punishing, both, or both in a view of each agent's own."""
STATES: tuple[str, ...] = get_args(State)
"""Which decisions see the two reputations, beside the choice of a partner, which sees all of them."""


class Sanction(NamedTuple):
    """A punisher's decision about one player."""

    punisher: int
    target: int
    other: int
    """Whom the target played with: the victim if the target defected."""
    punished: bool
    defected: bool
    """What the target had done."""
    direct: bool
    """The punisher is the other player, and no third party."""

    @property
    def just(self) -> bool | None:
        """Whether a punishment hit a defector; None if there was none."""
        return self.defected if self.punished else None


@dataclass(frozen=True)
class SocialMechanism:
    """Punishment, partner selection and reputation (Dasgupta and Musolesi, arXiv 2301.08278)."""

    direct: bool = False
    """Each player's opponent decides whether to punish it."""
    third_party: bool = False
    """A random bystander, drawn for each player, decides whether to punish it."""
    selection: bool = False
    """Agents choose their partners; else partners are drawn."""
    penalty: float = 3.0
    """What a punished player loses. Paper: 3."""
    just_reward: float = 2.0
    """What the punisher of a defector gets, in a stream of its own. Paper: 2, or -3 where punishing is costly."""
    unjust_reward: float = -10.0
    """What the punisher of a cooperator gets. Paper: -10."""
    cooperate: float = 1.0
    """Change of reputation by cooperating."""
    defect: float = -1.0
    just: float = 2.0
    """Change of reputation by punishing a defector; not punishing changes nothing."""
    unjust: float = -3.0
    punisher_seen: float = -5.0
    """More change in the view of the punished, with `individual` information. Paper's code: -5."""
    avenger_seen: float = 5.0
    """More change in the view of the victim whose defector was punished. Paper's code: 5."""
    information: Information = "play-punish"
    state: State = "none"

    COSTLY: ClassVar[float] = -3.0
    """`just_reward` of the paper's costly variant."""

    def __post_init__(self) -> None:
        """Refuse what is no mechanism, and warn where just and unjust punishing cannot be told apart.

        Raises:
            UserError: If a number is not finite, the penalty is negative, or an option is unknown.
        """
        for name, value, known in (
            ("information", self.information, INFORMATION),
            ("state", self.state, STATES),
        ):
            if value not in known:
                raise UserError(
                    f"{name}: expected one of {', '.join(known)}, got {value!r}.{did_you_mean(value, known)}"
                )
        numbers = {name: getattr(self, name) for name, kind in self.__annotations__.items() if kind == "float"}
        for name, value in numbers.items():
            if not np.isfinite(value):
                raise UserError(f"{name}: expected a finite number, got {value}.")
        if self.penalty < 0:
            raise UserError(f"penalty: what a punished player loses, at least 0; got {self.penalty:g}.")
        if (self.direct or self.third_party) and not self.unjust_reward < self.just_reward:
            warnings.warn(
                f"unjust_reward ({self.unjust_reward:g}) is not below just_reward ({self.just_reward:g}): punishers "
                "have no reason to spare cooperators.",
                UserWarning,
                stacklevel=3,
            )

    @property
    def name(self) -> str:
        """The paper's name: none, DP, TPP or TPPDP, with `-S` if partners are chosen; S for selection alone."""
        kind = "TPPDP" if self.direct and self.third_party else "DP" if self.direct else "TPP"
        if not (self.direct or self.third_party):
            return "S" if self.selection else "none"
        return f"{kind}-S" if self.selection else kind

    @classmethod
    def named(cls, name: str, *, costly: bool = False, **changes: object) -> SocialMechanism:
        """Return the mechanism of one of the paper's names.

        Args:
            name: none, S, DP, DP-S, TPP, TPP-S, TPPDP or TPPDP-S.
            costly: Punishing a defector costs the punisher as well.
            changes: Any other field.

        Raises:
            UserError: If the name is unknown.
        """
        if name not in CONDITIONS:
            raise UserError(
                f"there is no mechanism {name!r} (known: {', '.join(CONDITIONS)}).{did_you_mean(name, CONDITIONS)}"
            )
        made = cls(
            direct=name.removesuffix("-S") in ("DP", "TPPDP"),
            third_party=name.startswith("TPP"),
            selection=name.endswith("S"),
            just_reward=cls.COSTLY if costly else 2.0,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    @property
    def counts_play(self) -> bool:
        """Whether play changes reputations."""
        return self.information != "punish"

    @property
    def counts_punishing(self) -> bool:
        """Whether punishing changes reputations."""
        return self.information != "play"

    def sanction_reward(self, event: Sanction) -> float:
        """Return what the punisher gets; no part of what it earns as a player."""
        if event.just is None:
            return 0.0
        return self.just_reward if event.just else self.unjust_reward

    def sanction_loss(self, event: Sanction) -> float:
        """Return what the target loses, at least 0."""
        return self.penalty if event.punished else 0.0


CONDITIONS = ("none", "S", "DP", "DP-S", "TPP", "TPP-S", "TPPDP", "TPPDP-S")
"""The eight conditions of the paper."""


@dataclass
class ReputationLedger:
    """The reputations of a society and the events that made them.

    Nobody needs to be a learner: call `play` and `sanction` as things happen, and show agents `seen_by`.
    """

    agents: int
    mechanism: SocialMechanism
    views: Floats = field(init=False)
    """Shape (agents, agents): row agent's view of column agent; all rows alike unless information is individual."""
    rewards: Floats = field(init=False)
    """Shape (agents,): earned as a player, losses by punishment included."""
    sanction_rewards: Floats = field(init=False)
    """Shape (agents,): earned as a punisher, kept apart."""
    sanctions: list[Sanction] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start with reputations of 0.

        Raises:
            UserError: If there are too few agents.
        """
        check_agents(self.agents, self.mechanism)
        self.views = np.zeros((self.agents, self.agents))
        self.rewards = np.zeros(self.agents)
        self.sanction_rewards = np.zeros(self.agents)

    def seen_by(self, agent: int) -> Floats:
        """Return an agent's view of everyone, shape (agents,)."""
        view: Floats = self.views[agent].copy()
        return view

    def play(self, agents: Sequence[int], defected: Sequence[bool], payoffs: Sequence[float]) -> None:
        """Enter what some agents did and what they got.

        Raises:
            UserError: If the three do not match, or an agent is unknown.
        """
        if not len(agents) == len(defected) == len(payoffs):
            raise UserError(
                "agents, defected and payoffs: expected one length, got "
                f"{len(agents)}, {len(defected)} and {len(payoffs)}."
            )
        for agent, bad, payoff in zip(agents, defected, payoffs, strict=True):
            self._known(agent)
            self.rewards[agent] += payoff
            if self.mechanism.counts_play:
                self._change(agent, self.mechanism.defect if bad else self.mechanism.cooperate)

    def sanction(self, event: Sanction) -> float:
        """Enter a punisher's decision; return its reward.

        Raises:
            UserError: If an agent is unknown, or the roles do not fit the kind of punishment.
        """
        for agent in (event.punisher, event.target, event.other):
            self._known(agent)
        if event.punisher == event.target or event.target == event.other:
            raise UserError(f"a sanction needs a punisher and a partner other than its target, got {event}.")
        if event.direct != (event.punisher == event.other):
            raise UserError(f"a direct punisher is the target's partner and a third party is not, got {event}.")
        self.sanctions.append(event)
        rules, reward = self.mechanism, self.mechanism.sanction_reward(event)
        self.rewards[event.target] -= rules.sanction_loss(event)
        self.sanction_rewards[event.punisher] += reward
        if event.punished and rules.counts_punishing:
            self._change(event.punisher, rules.just if event.defected else rules.unjust)
            if rules.information == "individual":
                self.views[event.target, event.punisher] += rules.punisher_seen
                if event.defected and event.other != event.punisher:
                    self.views[event.other, event.punisher] += rules.avenger_seen
        return reward

    def _change(self, agent: int, change: float) -> None:
        """Change how everyone sees an agent; an individual view of oneself is not kept."""
        seen = np.ones(self.agents, dtype=bool)
        seen[agent] = self.mechanism.information != "individual"
        self.views[seen, agent] += change

    def _known(self, agent: int) -> None:
        if not 0 <= agent < self.agents:
            raise UserError(f"agent {agent} is not in a society of {self.agents} (0 to {self.agents - 1}).")


def check_agents(agents: int, mechanism: SocialMechanism) -> None:
    """Check that a society is large enough for its mechanism.

    Raises:
        UserError: If there are fewer than two agents, or fewer than three with third parties.
    """
    if agents < 2:
        raise UserError(f"agents: expected at least 2, got {agents}.")
    if mechanism.third_party and agents < 3:
        raise UserError(
            f"agents: third-party punishment needs a bystander, so at least 3 agents; got {agents}. "
            "Add agents or use direct punishment."
        )
