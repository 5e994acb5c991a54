"""RODE: roles as sets of actions with like effects (Wang, Gupta, Mahajan, Peng, Whiteson, Zhang, arXiv 2010.01523).

Exact: action encoder with context, observation and reward decoders and its loss; k-means on the action latents; the
clean-up of clusters for StarCraft; role latents as means; role selector every c steps, role policies by inner products
with frozen action latents; soft epsilon-greedy with role masks, which restarts when roles are found; two QMIX mixers,
targets over c steps, hard copies when roles are found. The parts are `marl.ActionEffects`, `marl.discover_roles`,
`marl.RodeLearner`, `marl.train_rode`, `marl.transfer_rode` and `marl.trace_roles`.
Adapted: JaxMARL's SMAX for StarCraft, with the clean-up's basic actions its own (four moves and stop); several worlds
side by side; shorter phases. Rare actions (attacks) get hardly any samples in a short phase, so that `balanced` draws
every action alike often, from as many moments of each (rare ones would be learnt by heart, which alone tells them from
frequent ones: with all their moments, even actions dealt out anew were told apart), and predicts standardised changes
and rewards by their mean square with Adam; `published` and `sampling` (balanced draws alone) are arms of their own.
While it learns, the roles in force are those that were played, where the published code chooses them anew; windows
count from an episode's start, and those that play cuts off do not count.
Added: worlds with planted effects and with any number of agents; latents of encoders that learnt nothing, clusters
dealt out at random and unseen actions with latents at random, as controls.
Inferred: in another world agents see their last action in terms of the known actions of its type.
Small: `rolecraft systems run rode --study discovery`, `learning` and `transfer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rolecraft._run import RunStore

SYSTEM = System(
    number=17,
    name="rode",
    title="RODE: Learning Roles to Decompose Multi-Agent Tasks",
    arxiv="2010.01523",
    family="marl",
    claim="clustering actions by their learnt effects finds action types without labels; choosing slowly among roles "
    "that are such clusters, and fast among a role's actions, learns better than QMIX and transfers to larger teams",
    published="above the state of the art on 10 of 14 StarCraft maps; transfers without learning to three times the "
    "agents (figures in plots)",
)
NO_FULL = "5 million steps on each of 14 StarCraft II maps, five seeds on GPUs; StarCraft cannot run here"
CURVES, ROLES = "curves", "roles"
ENOUGH = 0.9
"""Adjusted Rand index that counts as having found the action types."""


@dataclass(frozen=True)
class DiscoveryConfig(StudyConfig):
    """Do clusters of action latents tell moves from attacks? Random play on a map of SMAX."""

    NO_FULL: ClassVar[str] = NO_FULL
    ARMS: ClassVar[tuple[str, ...]] = ("balanced", "sampling", "published", "shuffled", "untrained")
    """Three settings of the encoder; then `balanced` on moves whose actions were dealt out anew, and no training."""
    scenario: str = "2s3z"
    """A map of SMAX, or `planted`."""
    steps: int = 51_200
    """Of random play. Paper: 50,000 of its own play."""
    updates: int = 2500
    """Gradient steps of the encoder."""
    sample: int = 400
    """Moments of each. Paper: 32 episodes."""
    minimum: int = 30
    """An action tried less often stops the study: its latent would be arbitrary."""

    def __post_init__(self) -> None:
        """Refuse sizes of which nothing can be told."""
        for name in ("steps", "updates", "sample"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class LearningConfig(StudyConfig):
    """RODE against QMIX, with the published encoder, and with clusters dealt out at random."""

    NO_FULL: ClassVar[str] = NO_FULL
    ARMS: ClassVar[dict[str, dict[str, Any] | None]] = {
        "qmix": None,
        "rode": {"effects": "balanced"},
        "published": {"effects": "published"},
        "shuffled": {"effects": "balanced", "labels": "shuffled"},
    }
    RANDOM: ClassVar[str] = "random"
    """A team that draws its actions: what is above it was learnt."""
    arms: tuple[str, ...] = ("qmix", "rode", "shuffled")
    """Which are trained; without one of these three the study stays inconclusive."""
    scenario: str = "skirmish"
    """`skirmish`, or a map of SMAX, with rule=smax, clusters=2, role_interval=5 and some 200,000 steps. Paper: 14 maps
    of StarCraft."""
    clusters: int = 4
    """Paper: 2 to 5."""
    rule: str = "identity"
    """How clusters become roles: `identity`, `smax`. Paper: a rule for StarCraft's actions."""
    role_interval: int = 2
    """Paper: 5, in episodes some five times as long."""
    steps: int = 80_000
    """Paper: 5 million."""
    role_steps: int = 8_000
    """Of them before roles are found. Paper: 50,000."""
    anneal: int = 12_000
    """Steps in which exploration falls, in each phase. Paper: 70,000."""
    effect_fits: int = 10
    """Gradient steps of the action encoder for each one of the values. Paper: 1, in a phase of many more steps."""
    tests: int = 10
    test_episodes: int = 32
    hidden: int = 32
    """Paper: 64."""
    lr: float = 1e-3
    """Of Adam, in all arms. Paper: RMSprop with 5e-4."""
    fits: int = 4
    buffer: int = 800
    """Stretches of one horizon. Paper: 5000 episodes."""
    batch: int = 32
    """Paper: 32."""
    target_every: int = 10
    """Stretches of all worlds. Paper: 200 episodes."""

    def __post_init__(self) -> None:
        """Refuse arms that are none."""
        _check_arms(self.arms, self.ARMS)

    def shared(self) -> dict[str, Any]:
        """Return the settings that all arms share."""
        return {
            "steps": self.steps, "tests": self.tests, "test_episodes": self.test_episodes, "hidden": self.hidden,
            "lr": self.lr, "fits": self.fits, "buffer": self.buffer, "batch": self.batch,
            "target_every": self.target_every, "mixer": "qmix", "roles": "agent", "dueling": False,
        }  # fmt: skip


@dataclass(frozen=True)
class TransferConfig(LearningConfig):
    """Train three agents on three targets, and let three times as many play without learning."""

    ARMS: ClassVar[dict[str, dict[str, Any] | None]] = {
        "source": {},
        "transfer": {},
        "random-latents": {},
        "untrained": {},
    }
    """In the small world; in the large one; there with latents at random for unseen actions; there with networks that
    learnt nothing."""
    arms: tuple[str, ...] = ("source", "transfer", "random-latents", "untrained")
    times: int = 3
    """The large world has so many times the agents and targets. Paper: 3."""
    episodes: int = 256
    """Played in each world."""

    def __post_init__(self) -> None:
        """Refuse what cannot be transferred."""
        _check_arms(self.arms, self.ARMS)
        if self.scenario != "skirmish":
            raise UserError(
                f"transfer needs scenario='skirmish', whose observations keep their length; got {self.scenario!r}."
            )
        if self.times < 1 or self.episodes < 1:
            raise UserError(f"times and episodes must be at least 1, got {self.times} and {self.episodes}.")

    def shared(self) -> dict[str, Any]:
        """Return the settings of training; agents are not told who they are, as there will be others."""
        return {**super().shared(), "roles": "none"}


def _check_arms(arms: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    if unknown := [arm for arm in arms if arm not in names]:
        raise UserError(
            f"there is no arm {unknown[0]!r}; expected some of {', '.join(names)}.{did_you_mean(unknown[0], names)}"
        )


def run_discovery(config: DiscoveryConfig, store: RunStore) -> Result:
    """Play at random once per seed, and fit every arm's encoder to the same moves."""
    missing = missing_rows(store, config.ARMS, config.seeds)
    for seed in dict.fromkeys(seed for _, seed in missing):
        from rolecraft.systems.marl._rode_study import gather, score_effects

        moves, kinds = gather(config, seed)
        for arm in config.ARMS:
            if (arm, seed) in missing:
                figures, labels = score_effects(config, arm, seed, moves, kinds)
                store.put(ROLES, row_key(arm, seed), {"arm": arm, "seed": seed, "clusters": labels})
                put_row(store, arm, seed, **figures)
    return Result.read(store)


def run_learning(config: LearningConfig, store: RunStore) -> Result:
    """Train every arm from all seeds at once; a row has the area under the curve of the test win rate."""
    missing = missing_rows(store, [*config.arms, config.RANDOM], config.seeds)
    for arm in dict.fromkeys(arm for arm, _ in missing):
        from rolecraft.systems.marl._rode_study import learn, play_at_random

        trained = arm != config.RANDOM
        found = learn(config, config.ARMS[arm], store.directory / "marl" / arm) if trained else play_at_random(config)
        for at, seed in enumerate(config.seeds):
            if (arm, seed) not in missing:
                continue
            row, curve, roles = found[at]
            if trained:
                store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, **curve})
                store.put(ROLES, row_key(arm, seed), {"arm": arm, "seed": seed, **roles})
            put_row(store, arm, seed, **row)
    return Result.read(store)


def run_transfer(config: TransferConfig, store: RunStore) -> Result:
    """Train in the small world from all seeds at once, and play in both."""
    missing = missing_rows(store, config.arms, config.seeds)
    if missing:
        from rolecraft.systems.marl._rode_study import transferred

        for arm, seed, row in transferred(config, missing, store.directory / "marl" / "source"):
            put_row(store, arm, seed, **row)
    return Result.read(store)


def verdict_discovery(result: Result) -> Verdict:
    """Demand the dossier's rule: ARI of two clusters with the action types at least 0.9 in every seed.

    An encoder that learnt from actions dealt out anew, and one that learnt nothing, must stay below half of that on
    average. Where the interval of balanced less untrained holds 0 the study is inconclusive.
    """
    effect = result.difference("ari", "balanced", "untrained")
    control = result.difference("ari", "shuffled", "untrained")
    found = [row["ari"] for row in result.rows if row["arm"] == "balanced"]
    wins = sum(ari >= ENOUGH for ari in found)
    fails = all(result.mean("ari", arm).estimate < ENOUGH / 2 for arm in ("shuffled", "untrained"))
    return Verdict.when(
        reproduced=wins == len(found) and effect.low > 0 and fails,
        inconclusive=effect.low <= 0 <= effect.high,
        effect=effect,
        control=control,
        note=f"ARI of at least {ENOUGH} in {wins} of {len(found)} seeds with balanced samples; mean ARI: "
        + ", ".join(f"{arm} {result.mean('ari', arm).estimate:.3g}" for arm in result.arms)
        + "; the published form (uniform samples of whole observations) is the arm `published`",
    )


def verdict_learning(result: Result) -> Verdict:
    """Demand a larger area under the win rate's curve, once roles are found, than QMIX's; else it is a tie.

    The control, clusters dealt out at random, must not be above QMIX by its interval, and RODE must end above a team
    that draws its actions.
    """
    from rolecraft.measures import Interval

    if absent := [arm for arm in ("qmix", "rode", "shuffled", LearningConfig.RANDOM) if arm not in result.arms]:
        nothing = Interval(float("nan"), float("nan"), float("nan"), 0)
        return Verdict.when(reproduced=False, effect=nothing, note=f"not run: {', '.join(absent)}")
    effect = result.difference("auc", "rode", "qmix")
    control = result.difference("auc", "shuffled", "qmix")
    roles = result.difference("auc", "rode", "shuffled")
    learned = result.difference("last_return", "rode", LearningConfig.RANDOM)
    tie = effect.low <= 0 <= effect.high
    return Verdict.when(
        reproduced=effect.low > 0 and not control.low > 0 and learned.low > 0,
        inconclusive=tie,
        effect=effect,
        control=control,
        note=("a tie with QMIX; " if tie else "")
        + f"area of RODE less that with clusters at random: {roles}; late return less that of random play: {learned}; "
        + "late win rates: "
        + ", ".join(f"{arm} {result.mean('last', arm).estimate:.3g}" for arm in result.arms),
    )


def verdict_transfer(result: Result) -> Verdict:
    """Demand more in the large world than networks that learnt nothing get, and more than with latents at random.

    Our rule, the dossier has none. Both differences must be above 0 by their intervals.
    """
    from rolecraft.measures import Interval

    if absent := [arm for arm in TransferConfig.ARMS if arm not in result.arms]:
        nothing = Interval(float("nan"), float("nan"), float("nan"), 0)
        return Verdict.when(reproduced=False, effect=nothing, note=f"not run: {', '.join(absent)}")
    effect = result.difference("score", "transfer", "untrained")
    control = result.difference("score", "random-latents", "untrained")
    latents = result.difference("score", "transfer", "random-latents")
    return Verdict.when(
        reproduced=effect.low > 0 and latents.low > 0,
        inconclusive=effect.low <= 0 <= effect.high or latents.low <= 0 <= latents.high,
        effect=effect,
        control=control,
        note=f"score (return as a part of the best) less that with latents at random: {latents}; scores: "
        + ", ".join(f"{arm} {result.mean('score', arm).estimate:.3g}" for arm in result.arms),
    )


STUDIES = {
    "discovery": (DiscoveryConfig, run_discovery, verdict_discovery),
    "learning": (LearningConfig, run_learning, verdict_learning),
    "transfer": (TransferConfig, run_transfer, verdict_transfer),
}
