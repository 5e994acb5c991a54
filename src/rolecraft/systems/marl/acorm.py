"""ACORM: attention-guided contrastive role representations (Hu, Zhang, Li, Chen, Ding, Wang, arXiv 2312.04819).

Exact: agent embedding with encoder and decoder, role layer with momentum keys, contrastive loss over k-means clusters
of the embeddings, attention of the history of states over roles in the mixer of QMIX, temporal differences into roles
and embedding, the schedule (embedding first, then roles, then learning), rates. The parts are `marl.AcormLearner`,
`marl.contrastive_loss`, `marl.kmeans` and `marl.AttentionMixer`.
Adapted: k-means in JAX from far-apart centres instead of scikit-learn; steps with fewer distinct embeddings than
clusters are skipped; the loss is divided by the active agents and not by all of them; JaxMARL's SMAX for StarCraft;
several worlds side by side; the mean return for the win rate.
Added: a world in which the roles are planted; clusters dealt out at random among the agents as control.
Left out: the MAPPO version, Google football.
Small: `rolecraft systems run acorm --study representation`, `representation-2s3z` and `learning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.marl import AcormConfig

SYSTEM = System(
    number=19,
    name="acorm",
    title="Attention-Guided Contrastive Role Representations for Multi-agent Reinforcement Learning",
    arxiv="2312.04819",
    family="marl",
    claim="a contrastive loss over clusters of agents' behaviour gives role vectors that tell the agents' roles apart, "
    "and attention over them in the mixer helps a team learn",
    published="above QMIX on hard StarCraft maps (2s3z to corridor and MMM2) and football; ties on easy maps (figures "
    "in plots, four seeds)",
)
NO_FULL = "3 to 5 million steps on StarCraft II, five seeds on a GPU; neither StarCraft nor football can run here"
CURVES = "curves"


@dataclass(frozen=True)
class RepresentationConfig(StudyConfig):
    """Do role vectors tell planted roles apart? Six agents of three hidden roles, random play."""

    ARMS: ClassVar[tuple[str, ...]] = ("contrast", "no-contrast", "raw", "shuffled")
    NO_FULL: ClassVar[str] = NO_FULL
    scenario: str = "planted"
    """`planted`, or a map of SMAX."""
    steps: int = 0
    """Of QMIX before its episodes are taken; 0 takes random play."""
    episodes: int = 200
    """Stretches of one horizon that are gathered."""
    cluster_num: int = 3
    """Paper: 3."""
    embedding: int = 64
    """Paper: 128."""
    role_size: int = 32
    """Paper: 64."""
    embed_updates: int = 1000
    """Paper: 120, and more while it trains."""
    contrast_updates: int = 500
    """Paper: 100, and more while it trains."""
    envs: int = 8

    def __post_init__(self) -> None:
        """Refuse sizes of which nothing can be told."""
        if self.steps < 0 or self.episodes < max(2, self.envs):
            raise UserError(f"steps must be at least 0 and episodes at least max(2, envs), got {self}.")

    def learner(self, **own: Any) -> AcormConfig:
        """Return the settings of the learner.

        Raises:
            UserError: If a setting is out of range.
        """
        from rolecraft.marl import AcormConfig

        return AcormConfig(
            cluster_num=self.cluster_num, embedding=self.embedding, role_size=self.role_size, buffer=self.episodes,
            envs=self.envs, steps=max(1, self.steps), tests=1, fits=2, **own,
        )  # fmt: skip


@dataclass(frozen=True)
class UnitConfig(RepresentationConfig):
    """Do role vectors tell stalkers from zealots? 2s3z, episodes of QMIX."""

    scenario: str = "2s3z"
    steps: int = 40_000
    """Paper's study: the whole training. Dossier: 100,000."""


@dataclass(frozen=True)
class LearningConfig(StudyConfig):
    """ACORM against QMIX, without attention, and with shuffled clusters."""

    NO_FULL: ClassVar[str] = NO_FULL
    ARMS: ClassVar[dict[str, dict[str, Any] | None]] = {
        "qmix": None,
        "acorm": {},
        "no-attention": {"attention": False},
        "shuffled": {"labels": "shuffled"},
    }
    seeds: tuple[int, ...] = (0, 1)
    arms: tuple[str, ...] = ("qmix", "acorm", "no-attention", "shuffled")
    """Which are trained; without one of them the study stays inconclusive."""
    scenario: str = "planted"
    """`planted`, or a map of SMAX (the paper's: 2s3z and others, of StarCraft)."""
    steps: int = 30_000
    """Paper: 3 to 5 million."""
    tests: int = 10
    cluster_num: int = 3
    embed_updates: int = 120
    contrast_updates: int = 100
    buffer: int = 500
    """Paper: 5000."""

    def __post_init__(self) -> None:
        """Refuse arms that are none."""
        if not self.arms:
            raise UserError(f"arms: expected some of {', '.join(self.ARMS)}.")
        if unknown := [arm for arm in self.arms if arm not in self.ARMS]:
            raise UserError(
                f"there is no arm {unknown[0]!r}; expected some of {', '.join(self.ARMS)}."
                f"{did_you_mean(unknown[0], self.ARMS)}"
            )

    def shared(self) -> dict[str, Any]:
        """Return the settings that all arms share."""
        return {"steps": self.steps, "tests": self.tests, "buffer": self.buffer, "lr": 6e-4, "epsilon": (1.0, 0.02)}


def run_representation(config: RepresentationConfig, store: RunStore) -> Result:
    """Pre-train once per seed, and measure all arms on the same play."""
    missing = missing_rows(store, config.ARMS, config.seeds)
    for seed in dict.fromkeys(seed for _, seed in missing):
        from rolecraft.systems.marl._acorm_study import represent

        found = represent(config, seed)
        for arm in config.ARMS:
            if (arm, seed) in missing:
                put_row(store, arm, seed, **{name: None if x != x else x for name, x in found[arm].items()})
    return Result.read(store)


def run_learning(config: LearningConfig, store: RunStore) -> Result:
    """Train every arm from all missing seeds at once; a row has the area under the curve of the mean return."""
    missing = missing_rows(store, config.arms, config.seeds)
    for arm in dict.fromkeys(arm for arm, _ in missing):
        from rolecraft.systems.marl._acorm_study import learn

        metrics = learn(config, config.ARMS[arm], store.directory / "marl" / arm)
        for at, seed in enumerate(config.seeds):
            if (arm, seed) in missing:
                curve = metrics["return"][:, at]
                store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, "return": curve.tolist()})
                put_row(store, arm, seed, auc=float(curve.mean()), last=float(curve[-1]))
    return Result.read(store)


def verdict_representation(result: Result) -> Verdict:
    """Demand that contrast raises the silhouette by true kind in every seed, and shuffled clusters do not.

    The dossier's rule: contrast above no contrast in all seeds. The control, silhouette of shuffled less no contrast,
    must stay below half the effect. Where the interval of the effect holds 0 the study is inconclusive.
    """
    effect = result.difference("silhouette", "contrast", "no-contrast")
    control = result.difference("silhouette", "shuffled", "no-contrast")
    value = {(row["arm"], row["seed"]): row["silhouette"] for row in result.rows}
    wins = sum(value["contrast", seed] > value["no-contrast", seed] for seed in result.seeds)
    shown = {
        metric: ", ".join(f"{arm} {result.mean(metric, arm).estimate:.3g}" for arm in result.arms)
        for metric in ("silhouette", "probe", "by_cluster")
        if metric in result.metrics
    }
    return Verdict.when(
        reproduced=effect.low > 0 and wins == len(result.seeds) and control.estimate < effect.estimate / 2,
        inconclusive=effect.low <= 0 <= effect.high,
        effect=effect,
        control=control,
        note=f"contrast ahead in {wins} of {len(result.seeds)} seeds; "
        + "; ".join(f"{metric}: {text}" for metric, text in shown.items()),
    )


def verdict_learning(result: Result) -> Verdict:
    """Demand a larger area under the curve than QMIX's, which shuffled clusters must not have; else it is a tie."""
    from rolecraft.measures import Interval

    if absent := [arm for arm in LearningConfig.ARMS if arm not in result.arms]:
        nothing = Interval(float("nan"), float("nan"), float("nan"), 0)
        return Verdict.when(reproduced=False, effect=nothing, note=f"not run: {', '.join(absent)}")
    effect = result.difference("auc", "acorm", "qmix")
    control = result.difference("auc", "shuffled", "qmix")
    attention = result.difference("auc", "acorm", "no-attention")
    tie = effect.low <= 0 <= effect.high
    return Verdict.when(
        reproduced=effect.low > 0 and not control.low > 0,
        inconclusive=tie,
        effect=effect,
        control=control,
        note=("a tie with QMIX; " if tie else "")
        + f"with attention less without: {attention}; last returns: "
        + ", ".join(f"{arm} {result.mean('last', arm).estimate:.3g}" for arm in result.arms),
    )


STUDIES = {
    "representation": (RepresentationConfig, run_representation, verdict_representation),
    "representation-2s3z": (UnitConfig, run_representation, verdict_representation),
    "learning": (LearningConfig, run_learning, verdict_learning),
}
