"""BESO: goal-conditioned imitation of play by diffusion of actions, in few denoising steps (arXiv 2304.02532).

Exact: the preconditioned denoiser and its loss; noise levels from a truncated log-logistic distribution; the causal
transformer over noise level, goal, states and actions; goals from the future of the same play; goals dropped in
training and guided in sampling; exponential levels and the DDIM update; a rolling window at test; averaged weights. As
in the released code, all actions of a training window have one level of noise, while at test those done before have
none (ours stay as they were done; the code's sampler moves them too, and throws the result away).
Adapted: a point in a room with an obstacle, passed on either side to one of two targets, instead of the kitchen and
block pushing, whose data cannot be had offline; a small transformer; one goal state instead of two.
Added: the entropy of the side that is passed, and the energy distance of first actions to the script's.
Small: `rolecraft systems run beso`, a few minutes on one core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.control import DiffusionPolicyConfig

SYSTEM = System(
    number=27,
    name="beso",
    title="Goal-Conditioned Imitation Learning using Score-based Diffusion Policies",
    arxiv="2304.02532",
    family="control",
    claim="a score-based policy keeps the several ways of play that a mean action mixes up, needs three denoising "
    "steps, and follows goals or plays freely from one training",
    published="three denoising steps where other diffusion policies need 30 and more; above the best earlier "
    "goal-conditioned imitation on three benchmarks (the abstract gives no figures)",
)

COMMANDS = "commands"
CLEARLY = 0.1
"""By how much more often the goal must be reached than by the mean action."""
CLOSE = 0.05
"""A few points: within this of the success with the most steps."""
SHARE = 0.2
"""Of the time of the most steps; dossier: about a tenth, 3 / 50 without what every call costs."""
BOTH = 0.6
"""Bits of the side passed, or of the target reached, from which both are kept; 1 is a fair coin."""


@dataclass(frozen=True)
class ObstacleConfig(StudyConfig):
    """One room, one obstacle, two ways round it, two targets."""

    NO_FULL: ClassVar[str] = "the kitchen, block push and CALVIN data are not reachable; the paper trains on a GPU"

    seeds: tuple[int, ...] = (1, 2, 3)
    trajectories: int = 600
    """Play trajectories. Dossier: 1000."""
    updates: int = 3000
    """Paper: 40,000."""
    window: int = 2
    """Paper: 4 in the kitchen."""
    width: int = 48
    layers: int = 2
    """Paper: 6."""
    drop: float = 0.1
    """Share of goals dropped. Paper: 0.1."""
    sigma_min: float = 0.05
    """Paper: 0.05 in block push."""
    sigma_max: float = 1.0
    """Paper: 1."""
    sampler: str = "ddim"
    """Paper: DDIM."""
    denoising: tuple[int, ...] = (1, 3, 10, 50)
    """Steps N. Paper: 3."""
    strengths: tuple[float, ...] = (0.0, 1.0, 2.0)
    """Guidance. With 0 goals are ignored, which is the control."""
    bins: int = 16
    """Clusters of the baseline that draws a cluster and adds an offset."""
    tests: int = 100
    """Test episodes per arm and seed, half of them to either target."""
    steps: int = 30
    """Of an episode."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare."""
        if min(self.trajectories, self.updates, self.tests, self.steps, self.bins) < 2 or len(self.denoising) < 2:
            raise UserError(
                "trajectories, updates, tests, steps and bins must be at least 2 and denoising have two numbers, got "
                f"{self.trajectories}, {self.updates}, {self.tests}, {self.steps}, {self.bins}, {self.denoising}."
            )
        if list(self.denoising) != sorted(set(self.denoising)) or self.denoising[0] < 1:
            raise UserError(f"denoising must rise from 1 or more, got {self.denoising}.")
        if not {0.0, 1.0} <= set(self.strengths) or not 0 < self.drop < 1:
            raise UserError(
                f"strengths must hold 0 and 1, and drop lie in (0, 1), without which there is no guidance, got "
                f"{self.strengths} and {self.drop}."
            )

    @property
    def few(self) -> int:
        """Denoising steps of the claim: 3, or the second number where 3 is not among them."""
        return 3 if 3 in self.denoising else self.denoising[min(1, len(self.denoising) - 2)]

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms: baselines, numbers of steps, and guidance at few steps."""
        guided = (f"beso-{self.few}-w{each:g}" for each in self.strengths if each != 1)
        return ("script", "gcbc", "k-means", *(f"beso-{each}" for each in self.denoising), *guided)

    def policy(self) -> DiffusionPolicyConfig:
        """Return the policy's sizes."""
        from rolecraft.control import DiffusionPolicyConfig

        return DiffusionPolicyConfig(
            window=self.window, width=self.width, layers=self.layers, drop=self.drop, sigma_min=self.sigma_min,
            sigma_max=self.sigma_max, sampler=self.sampler, updates=self.updates,  # type: ignore[arg-type]
        )  # fmt: skip


def run_obstacle(config: ObstacleConfig, store: RunStore) -> Result:
    """Train all missing seeds, and act; a row has the shares of episodes, entropies and the time of an action."""
    missing = missing_rows(store, config.arms, config.seeds)
    if missing:
        from rolecraft.systems.control._beso_arms import obstacle_arms

        for arm, seed, figures, commands in obstacle_arms(config, missing, store.directory / "training"):
            store.put(COMMANDS, row_key(arm, seed), {"rows": commands})
            put_row(store, arm, seed, **figures)
    return Result.read(store)


def verdict_obstacle(result: Result) -> Verdict:
    """Demand all four parts of the claim.

    More success than the mean action, by the whole interval; few steps within a few points of the most steps, in a
    fraction of the time; both sides kept; and the control: without guidance both targets are visited and the commanded
    one is not reached more often than the other, while with it the commanded one is.
    """
    counts = sorted({int(arm.split("-")[1]) for arm in result.arms if arm.startswith("beso-") and arm.count("-") == 1})
    free = next(arm for arm in result.arms if arm.endswith("-w0"))
    few, most = free.removesuffix("-w0"), f"beso-{counts[-1]}"
    effect = result.difference("success", few, "gcbc")
    loss, time = result.difference("success", few, most), result.ratio("milliseconds", few, most)
    sides, visited = result.mean("side_bits", few), result.mean("target_bits", free)
    control, led = result.mean("lead", free), result.mean("lead", few)
    follows = led.low > control.high and control.low <= 0.1 and visited.low > BOTH
    parts = {
        "more success than the mean action": effect.low > CLEARLY,
        f"{few} close to {most}": loss.low > -CLOSE,
        "at a fraction of the time": time.high < SHARE,
        "both sides": sides.low > BOTH,
        "goals followed only where asked": follows,
    }
    failed = [name for name, held in parts.items() if not held]
    means = ", ".join(f"{arm} {result.mean('success', arm).estimate:.1%}" for arm in result.arms)
    return Verdict.when(
        reproduced=not failed,
        inconclusive=failed == [f"{few} close to {most}"] and loss.high > -CLOSE,
        effect=effect,
        control=control,
        note=f"success of {few} less that of the mean action ({means}); {few} less {most} {loss} at {time} of its "
        f"time; bits of the side {sides}, of the target without guidance {visited}; control: commanded less other "
        f"target reached without guidance, {led} with; not met: {', '.join(failed) or 'nothing'}",
    )


STUDIES = {"obstacle": (ObstacleConfig, run_obstacle, verdict_obstacle)}
