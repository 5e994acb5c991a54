"""Direct and third-party punishment, partner selection and reputation among independent learners (arXiv 2301.08278).

Exact (from the paper's code): the dilemma (3, 0, 4, 1) in matches of ten rounds, the centipede game, the eight
mechanisms, penalties and the punishers' own stream of rewards, the changes of reputations, the order of a turn, what
each network sees, the constants of the deep Q-networks. The parts are `societies.SocialMechanism` and
`societies.train_society`; this file is the studies.
Adapted: batches are drawn with replacement; a partner is an output of its own, and closed ones are masked, so that
caves need no networks of other sizes; inputs of reputations that a decision does not see are 0; ties are broken at
random; with individual views the choice is made on the views as they were at the start of the episode (the paper's
code lets them change underneath). The tabular learners are ours: quick, and with the same rules.
Controls that must fail: no mechanism, and just punishment that costs the punisher.
Small: `rolecraft systems run direct-punishment --study tabular` (eight mechanisms, rewarded and costly), `dqn` (the
networks as published), `reputation` (what it is made of and who sees it). `--set game=centipede` and `--set caves=5`
change the game and the topology; `--full` is 2000 episodes of 20 repetitions.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from rolecraft._run import content_key, derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import Interval
    from rolecraft.societies import SocialMechanism, Society, SocietyLog

SYSTEM = System(
    number=93,
    name="direct-punishment",
    title="Investigating the Impact of Direct Punishment on the Emergence of Cooperation in Multi-Agent Reinforcement "
    "Learning Systems",
    arxiv="2301.08278",
    family="societies",
    claim="punishment that rewards just punishers makes independent learners cooperate, faster if victims and "
    "bystanders both punish; partner selection and reputation alone do not",
    published="a comparison of learning dynamics over all combinations of direct and third-party punishment, partner "
    "selection and reputation; no headline figure in the abstract",
)

MECHANISMS = ("none", "S", "DP", "DP-S", "TPP", "TPP-S", "TPPDP", "TPPDP-S")
PUNISHING = MECHANISMS[2:]
COSTLY = ",costly"
"""Ends the names of arms in which punishing a defector costs the punisher."""
CURVES = "curves"
GAIN = 0.5
"""How much more cooperation the claim needs."""
EARLY = 50
"""Episodes that show how fast a society learns."""


def mechanism_of(arm: str) -> SocialMechanism:
    """Return the mechanism of an arm: `NAME`, `NAME,costly`, or `NAME:INFORMATION:STATE`."""
    from rolecraft.societies import SocialMechanism

    name, *options = arm.removesuffix(COSTLY).split(":")
    changes = dict(zip(("information", "state"), options, strict=False))
    return SocialMechanism.named(name, costly=arm.endswith(COSTLY), **changes)


@dataclass(frozen=True)
class SocietyConfig(StudyConfig):
    """A society of tabular learners under the eight mechanisms, each rewarded and costly."""

    seeds: tuple[int, ...] = tuple(range(1, 11))
    """Paper: 20 repetitions."""
    episodes: int = 1500
    """Paper: 2000."""
    agents: int = 5
    """Paper: 5. In caves, agents in each of them."""
    rounds: int = 10
    """Of a match; most turns in the centipede game. Paper: 10, and 6 in the centipede game."""
    game: Literal["dilemma", "centipede"] = "dilemma"
    caves: int = 0
    """Cliques on a ring, whose agents meet neighbours only; 0: everyone meets everyone. Paper: 5."""
    late: int = 200
    """Last episodes that show where a society ends."""
    chunk: int = 250
    """Episodes between two checkpoints."""

    def __post_init__(self) -> None:
        """Check the sizes, and that every arm has the agents that it needs."""
        if self.episodes < 2 or not 1 <= self.late <= self.episodes or self.chunk < 1:
            raise UserError(
                "episodes must be at least 2, late 1 to episodes, chunk at least 1; got "
                f"{self.episodes}, {self.late} and {self.chunk}."
            )
        if self.caves < 0:
            raise UserError(f"caves: expected 0 (none) or at least 2 cliques, got {self.caves}.")
        society = self.society()
        for arm in self.arms:
            society.check(mechanism_of(arm))

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return (*MECHANISMS, *(f"{name}{COSTLY}" for name in PUNISHING))

    def society(self) -> Society:
        """Return the society, without importing what it is trained with."""
        from rolecraft.societies import Society, caveman

        graph = caveman(self.caves, self.agents) if self.caves else None
        return Society(self.agents * (self.caves or 1), self.rounds, self.game, graph=graph, learning=self.learning())

    def learning(self) -> Any:
        """Return the learners."""
        from rolecraft.societies import Learning

        return Learning()

    @classmethod
    def full(cls) -> Self:
        """Return 2000 episodes of 20 repetitions."""
        return cls(seeds=tuple(range(1, 21)), episodes=2000)


def run_society(config: SocietyConfig, store: RunStore) -> Result:
    """Train the missing societies side by side; a row has the figures of one of them, and its curve lies beside."""
    from rolecraft.societies import train_society

    lanes = missing_rows(store, config.arms, config.seeds)
    if not lanes:
        return Result.read(store)
    # One program trains them all; its checkpoints are kept, so that a killed study goes on where it was.
    folder = store.directory / f"societies-{content_key(lanes=lanes)[:12]}"
    log = train_society(
        config.society(), [mechanism_of(arm) for arm, _ in lanes],
        [derive_seed("direct-punishment", seed) for _, seed in lanes],
        episodes=config.episodes, chunk=config.chunk, folder=folder,
    )  # fmt: skip
    for lane, (arm, seed) in enumerate(lanes):
        store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, "cooperation": log.cooperation[lane].tolist()})
        put_row(store, arm, seed, **figures(log, lane, config.late))
    shutil.rmtree(folder)  # replays are large, and all rows are stored
    return Result.read(store)


def figures(log: SocietyLog, lane: int, late: int) -> dict[str, float | None]:
    """Return what a society did: shares over its last episodes, and cooperation over the first ones."""
    import numpy as np

    last = slice(-late, None)

    def rate(top: str, bottom: str) -> float | None:
        value = float(log.rate(top, bottom, last)[lane])
        return None if np.isnan(value) else value

    def mean(name: str) -> float:
        return float(log.figures[name][lane, last].mean())

    acts, good, chosen = (
        log.figures[f"agent_{name}"][lane, last].sum(0) for name in ("acts", "cooperations", "chosen")
    )
    return {
        "cooperation": float(log.cooperation[lane, last].mean()),
        "early": float(log.cooperation[lane, :EARLY].mean()),
        "direct_rate": rate("direct_punished", "acts"),
        "direct_just": rate("direct_just", "direct_punished"),
        "third_rate": rate("third_punished", "acts"),
        "third_just": rate("third_just", "third_punished"),
        **{name: mean(name) for name in ("chose_cooperator", "chose_just", "chose_unjust", "reputation")},
        "reward": mean("reward"),
        "punisher_reward": mean("punisher_reward"),
        "length": mean("length"),
        "least_cooperative": float((good / np.maximum(acts, 1)).min()),
        "most_chosen": float(chosen.max() / chosen.sum()),
    }


def gains(result: Result, baseline: str = "none", suffix: str = "") -> dict[str, Interval]:
    """Return the cooperation of every punishing mechanism less that of the baseline, over seeds."""
    arms = [f"{name}{suffix}" for name in PUNISHING if f"{name}{suffix}" in result.arms]
    return {arm: result.difference("cooperation", arm, baseline) for arm in arms}


def decide(
    rewarded: Mapping[str, Interval], costly: Mapping[str, Interval], *, faster: bool = True, slower: bool = False,
    note: str,
) -> Verdict:  # fmt: skip
    """Demand a gain above `GAIN` of every rewarded mechanism, by its whole interval, and of no costly one."""
    least = min(rewarded.values(), key=lambda gain: gain.estimate)
    most = max(costly.values(), key=lambda gain: gain.estimate)
    enough = all(gain.low > GAIN for gain in rewarded.values())
    against = slower or any(gain.high <= GAIN for gain in rewarded.values()) or most.low > GAIN
    fails = most.high < GAIN
    return Verdict.when(
        reproduced=enough and faster and fails,
        inconclusive=not (enough and faster and fails) and not against,
        effect=least,
        control=most,
        note=note,
    )


def verdict_tabular(result: Result) -> Verdict:
    """Demand gains of all rewarded mechanisms, of no costly one, and faster learning where both kinds punish."""
    rewarded, costly = gains(result), gains(result, suffix=COSTLY)
    speed = result.difference("early", "TPPDP", "DP")
    means = ", ".join(f"{arm} {result.mean('cooperation', arm).estimate:.2f}" for arm in result.arms)
    early = ", ".join(f"{arm} {result.mean('early', arm).estimate:.2f}" for arm in MECHANISMS)
    selection = result.difference("cooperation", "S", "none")
    return decide(
        rewarded, costly, faster=speed.low >= 0, slower=speed.high < 0,
        note=f"least gain in cooperation over no mechanism among the six; control: the largest where punishing costs; "
        f"selection alone {selection}; first {EARLY} episodes, both kinds less direct: {speed} ({early}); late "
        f"cooperation: {means}",
    )  # fmt: skip


# (b) The networks as published


@dataclass(frozen=True)
class DqnConfig(SocietyConfig):
    """Deep Q-networks under direct and third-party punishment with partner selection."""

    seeds: tuple[int, ...] = (1, 2, 3)
    episodes: int = 300
    late: int = 100
    chunk: int = 50
    mechanisms: tuple[str, ...] = ("S", "DP-S", "TPP-S", "DP-S,costly", "TPP-S,costly")
    """Arms; the first is the baseline."""
    hidden: int = 128
    """Units of each network. Paper: 128."""
    scale: Literal["raw", "standard"] = "raw"
    """Reputations as they are, or as standard scores. Paper: raw."""

    def __post_init__(self) -> None:
        """Refuse arms without a baseline and something to compare with it."""
        super().__post_init__()
        if len(self.mechanisms) < 2 or self.mechanisms[0] in PUNISHING:
            raise UserError(
                "mechanisms: expected a baseline that does not punish, S or none, and others to compare with it, got "
                f"{', '.join(self.mechanisms) or 'nothing'}."
            )

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.mechanisms

    def learning(self) -> Any:
        """Return the networks."""
        from dataclasses import replace

        from rolecraft.societies import Learning

        return replace(Learning.published(), hidden=self.hidden, scale=self.scale)

    @classmethod
    def full(cls) -> Self:
        """Return all mechanisms, 2000 episodes of 20 repetitions: for an accelerator."""
        arms = (*MECHANISMS, *(f"{name}{COSTLY}" for name in PUNISHING))
        return cls(seeds=tuple(range(1, 21)), episodes=2000, late=200, mechanisms=arms)


def verdict_dqn(result: Result) -> Verdict:
    """Demand gains of the rewarded mechanisms over selection alone, and none of the costly ones."""
    rewarded = gains(result, result.arms[0])
    costly = gains(result, result.arms[0], COSTLY)
    if not rewarded or not costly:
        raise UserError("mechanisms: the verdict needs a rewarded and a costly arm, such as DP-S and 'DP-S,costly'.")
    means = ", ".join(f"{arm} {result.mean('cooperation', arm)}" for arm in result.arms)
    just = [
        f"{arm} {result.mean(kind, arm).estimate:.2f}"
        for kind in ("direct_just", "third_just") for arm in rewarded
        if any(row["arm"] == arm and row[kind] is not None for row in result.rows)
    ]  # fmt: skip
    return decide(
        rewarded, costly,
        note=f"least gain in cooperation over {result.arms[0]}; control: the largest where punishing costs; late "
        f"cooperation: {means}; share of punishments that are just: {', '.join(just)}",
    )  # fmt: skip


# (c) What a reputation is made of, and who sees it


@dataclass(frozen=True)
class ReputationConfig(SocietyConfig):
    """Tabular learners: each state with the usual information, and each other information without a state."""

    mechanisms: tuple[str, ...] = ("DP-S", "TPP-S")
    """Each with all options."""

    def __post_init__(self) -> None:
        """Refuse mechanisms that do not punish: these are the controls."""
        super().__post_init__()
        if not self.mechanisms or set(self.mechanisms) - set(PUNISHING):
            raise UserError(
                f"mechanisms: expected some of {', '.join(PUNISHING)}, got {', '.join(self.mechanisms) or 'nothing'}."
            )

    @property
    def options(self) -> tuple[str, ...]:
        """Information and state, joined by a colon."""
        states = tuple(f"play-punish:{state}" for state in ("none", "play", "punish", "both"))
        return (*states, "play:none", "punish:none", "individual:none")

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms; the controls have reputation and selection, or reputation alone, without punishment."""
        alone = ("none", "none:play:play", "S:play:none", "S:play:play")
        return (*alone, *(f"{name}:{option}" for name in self.mechanisms for option in self.options))


def verdict_reputation(result: Result) -> Verdict:
    """Demand that cooperation hangs on punishment and not on reputation.

    Every mechanism that punishes must gain `GAIN` over none whatever its reputation, and reputation without punishment
    must not. The note says where seeing reputations while playing changes something.
    """
    arms = [arm for arm in result.arms if arm.split(":")[0] in PUNISHING]
    alone = [arm for arm in result.arms if arm not in arms and arm != "none"]
    rewarded = {arm: result.difference("cooperation", arm, "none") for arm in arms}
    control = {arm: result.difference("cooperation", arm, "none") for arm in alone}
    changes = []
    for arm in [*arms, *alone]:
        name, information, state = arm.split(":")
        plain = f"{name}:{information}:none"
        if state != "none" and plain in result.arms:
            late, early = (result.difference(metric, arm, plain) for metric in ("cooperation", "early"))
            changes.append(f"{name} {state} {late}, early {early}")
    means = ", ".join(f"{arm} {result.mean('cooperation', arm).estimate:.2f}" for arm in result.arms)
    return decide(
        rewarded, control,
        note="least gain in cooperation over no mechanism among all options; control: the largest of reputation "
        f"without punishment; reputation in a state less in none: {'; '.join(changes)}; late cooperation: {means}",
    )  # fmt: skip


STUDIES = {
    "tabular": (SocietyConfig, run_society, verdict_tabular),
    "dqn": (DqnConfig, run_society, verdict_dqn),
    "reputation": (ReputationConfig, run_society, verdict_reputation),
}
