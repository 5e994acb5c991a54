"""Decision Diffuser: planning by a conditional diffusion model of states, and an inverse model (arXiv 2211.15657).

Exact: states alone are diffused, with the first one put in place before every call of the noise model; the temporal
U-Net; training with dropped conditions; guidance, its sum over conditions and its negation; low-temperature sampling
with clipped data; the inverse model, trained together with it; the empirical-CDF normaliser; averaged weights.
Adapted: points in a room instead of D4RL, the Kuka arm and gaits, whose data cannot be had offline; a small U-Net that
doubles its steps by a convolution with two outputs; 20 diffusion steps; a plan is followed for some steps before the
next one. Returns are discounted means in which the last reward persists, since these episodes end early.
Added: what a condition of two ones does, which no training label had; shuffled conditions as control.
Small: `rolecraft systems run decision-diffuser --study return`, and `compose`, a few minutes each on one core.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rolecraft._run import RunStore
    from rolecraft.control import DiffusionPlanner, PlannerConfig

SYSTEM = System(
    number=29,
    name="decision-diffuser",
    title="Is Conditional Generative Modeling all you need for Decision-Making?",
    arxiv="2211.15657",
    family="control",
    claim="a diffusion model of states under a condition acts as well as the return it is asked for, and conditions "
    "that were only seen one at a time in training can be asked for together",
    published="as recalled, to be checked: D4RL locomotion 81.8 on average, 77 for the best earlier method; block "
    "stacking under one constraint 58.0 (Diffuser 45.6), under several 60.3 where the others have no way to ask",
)

ARRAYS = "commands"
"""Stage of the run store that keeps what was commanded beside what came out."""
FAR = 0.2
"""By how much composed conditions must be met more often than any other way of asking."""


@dataclass(frozen=True)
class PlanConfig(StudyConfig):
    """What both studies share."""

    NO_FULL: ClassVar[str] = "D4RL's and the Kuka data are not reachable; the paper trains 10^6 steps on a GPU"

    seeds: tuple[int, ...] = (1, 2, 3)
    episodes: int = 500
    """Of the data."""
    updates: int = 1000
    """Paper: 1,000,000."""
    horizon: int = 16
    """States of a plan. Paper: 100."""
    width: int = 24
    """Channels of the U-Net's first level. Paper: 128."""
    multipliers: tuple[int, ...] = (1, 2)
    """Channels of each level, in widths. Paper: 1, 4, 8."""
    diffusion_steps: int = 20
    """Paper: 100 to 200."""
    strength: float = 1.2
    """Guidance. Paper: 1.2 in locomotion."""
    temperature: float = 0.5
    """Of the sampling noise. Paper: 0.5."""
    drop: float = 0.25
    """Share of conditions dropped in training. Paper: 0.25."""
    replan: int = 4
    """Steps that a plan is followed. Paper: 1."""
    tests: int = 100
    """Test episodes per arm and seed."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to train or compare."""
        if min(self.episodes, self.updates, self.tests, self.replan) < 1 or self.horizon < self.replan + 1:
            raise UserError(
                "episodes, updates, tests and replan must be at least 1 and horizon above replan, got "
                f"{self.episodes}, {self.updates}, {self.tests}, {self.replan} and {self.horizon}."
            )
        halvings = 2 ** max(0, len(self.multipliers) - 1)
        if not 0 < self.drop < 1 or self.horizon % halvings or self.diffusion_steps < 2:
            raise UserError(
                f"drop must lie in (0, 1), horizon be a multiple of {halvings} and diffusion_steps at least 2, got "
                f"{self.drop}, {self.horizon}, {self.diffusion_steps}."
            )

    def planner(self) -> PlannerConfig:
        """Return the planner's sizes."""
        from rolecraft.control import PlannerConfig

        return PlannerConfig(
            horizon=self.horizon, width=self.width, multipliers=self.multipliers,
            steps=self.diffusion_steps, temperature=self.temperature,
            strength=self.strength, drop=self.drop, updates=self.updates,
        )  # fmt: skip


def plan_actor(planner: DiffusionPlanner, asked: Any, replan: int, seed: int) -> Any:
    """Return a policy for `PointRoom.rollout`: it samples a plan every `replan` steps and follows it in between."""
    held: dict[str, Any] = {}

    def act(points: NDArray[np.float32], step: int) -> Any:
        place = step % replan
        if not place:
            held["plans"] = planner.plan(points, asked, seed=derive_seed(seed, step))
        return planner.actions(points, held["plans"][:, place + 1])

    return act


# (a) Return: does more come out where more is asked for, and more than the data's average?


@dataclass(frozen=True)
class ReturnConfig(PlanConfig):
    """A room with a target; one episode in ten goes straight there, the others wander."""

    expert: float = 0.1
    """Share of expert episodes."""
    steps: int = 24
    """Of an episode."""
    discount: float = 0.9
    """Of the return that is asked for. Paper: 0.99, over episodes of 1,000 steps."""
    levels: tuple[float, ...] = (0.2, 0.6, 1.0)
    """Returns asked for, as shares of the data's largest. Paper: 0.9 or 1."""

    def __post_init__(self) -> None:
        """Check the levels as well."""
        super().__post_init__()
        if len(self.levels) < 2 or list(self.levels) != sorted(set(self.levels)) or self.levels[-1] > 1:
            raise UserError(f"levels: expected at least two rising numbers up to 1, got {self.levels}.")
        if not 0 <= self.discount < 1 or not 0 <= self.expert <= 1 or self.steps < 2:
            raise UserError(
                "discount must lie in [0, 1), expert in [0, 1] and steps be at least 2, got "
                f"{self.discount}, {self.expert} and {self.steps}."
            )

    @property
    def best(self) -> str:
        """The arm that asks for the highest return."""
        return f"dd-{self.levels[-1]:g}"

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return ("data", "bc", "bc-best", "rcbc", *(f"dd-{level:g}" for level in self.levels), "shuffled")


def lasting_returns(rewards: NDArray[Any], discount: float) -> NDArray[np.float32]:
    """Return the discounted mean of the rewards from each step on, the last one persisting for ever.

    Args:
        rewards: Shape (E, T).
        discount: In [0, 1).

    Returns:
        Shape (E, T).
    """
    import numpy as np

    found = np.array(rewards, dtype=np.float32)
    for step in range(found.shape[1] - 2, -1, -1):
        found[:, step] = (1 - discount) * found[:, step] + discount * found[:, step + 1]
    return found


def run_return(config: ReturnConfig, store: RunStore) -> Result:
    """Train the planners and the cloners of all missing seeds, and act; a row has the mean reward of a step."""
    missing = missing_rows(store, config.arms, config.seeds)
    if missing:
        from rolecraft.systems.control._decision_returns import return_arms

        for arm, seed, figures, commands in return_arms(config, missing, store.directory / "training"):
            if commands:
                store.put(ARRAYS, row_key(arm, seed), {"rows": commands})
            put_row(store, arm, seed, **figures)
    return Result.read(store)


def verdict_return(result: Result) -> Verdict:
    """Demand more than cloning and than the data, and a return that rises with what is asked for, by whole intervals.

    The control is a planner trained on shuffled returns, which must bring less.
    """
    asked = sorted((arm for arm in result.arms if arm.startswith("dd-")), key=lambda arm: float(arm[3:]))
    best = asked[-1]
    effect = result.difference("reward", best, "bc")
    data = result.difference("reward", best, "data")
    steps = [result.difference("reward", high, low) for low, high in pairwise(asked)]
    control = result.difference("reward", "shuffled", "data")
    gap = result.difference("reward", best, "shuffled")
    needed = [effect, data, gap, *steps]
    means = ", ".join(f"{arm} {result.mean('reward', arm).estimate:.3f}" for arm in result.arms)
    span, rise = float(best[3:]) - float(asked[0][3:]), result.difference("achieved", best, asked[0])
    return Verdict.when(
        reproduced=all(each.low > 0 for each in needed),
        inconclusive=any(each.low <= 0 < each.high for each in needed) and all(each.high > 0 for each in needed),
        effect=effect,
        control=control,
        note=f"mean reward of a step, planner asked for the most less behaviour cloning ({means}); where the "
        f"return asked for rises by {span:g}, that which comes rises by {rise}; less the planner of shuffled returns "
        f"{gap}; control: shuffled less the data's mean",
    )


# (b) Composition: can two constraints be asked for, where every label named one?


@dataclass(frozen=True)
class ComposeConfig(PlanConfig):
    """A room with four sides; each episode goes to one, which its label names."""

    steps: int = 15
    """Of an episode."""
    replan: int = 5
    exclusive: bool = False
    """Leave out of the data whatever keeps two sides by chance."""

    def __post_init__(self) -> None:
        """Check the length as well."""
        super().__post_init__()
        if self.steps < 2:
            raise UserError(f"steps must be at least 2, got {self.steps}.")


COMPOSE = ("composed", "first", "second", "two-hot", "avoid", "contradiction", "unconditional", "shuffled")
"""Both sides by added guidance; one of them; both ones in one vector; the first and not the second; left and right at
once; nothing asked; added guidance of a planner whose labels were shuffled."""
PAIRS = ((0, 2), (0, 3), (1, 2), (1, 3))
"""Pairs of sides that can be kept together."""


def run_compose(config: ComposeConfig, store: RunStore) -> Result:
    """Train the planners of all missing seeds, and act; a row has the shares of episodes by where they end."""
    missing = missing_rows(store, COMPOSE, config.seeds)
    if missing:
        from rolecraft.systems.control._decision_compose import compose_arms

        for arm, seed, figures, commands in compose_arms(config, missing, store.directory / "training"):
            store.put(ARRAYS, row_key(arm, seed), {"rows": commands})
            put_row(store, arm, seed, **figures)
    return Result.read(store)


def verdict_compose(result: Result) -> Verdict:
    """Demand that composed guidance keeps both sides far more often than one condition or a vector of two ones does.

    The control is composed guidance of a planner trained on shuffled labels, which must stay far below as well.
    """
    others = {arm: result.difference("both", "composed", arm) for arm in ("first", "second", "two-hot")}
    effect = min(others.values(), key=lambda gap: gap.estimate)
    control, gap = result.mean("both", "shuffled"), result.difference("both", "composed", "shuffled")
    needed = [*others.values(), gap]
    shares = ", ".join(f"{arm} {result.mean('both', arm).estimate:.1%}" for arm in result.arms)
    avoided, single = result.mean("first_only", "avoid"), result.mean("first_only", "first")
    gaps = ", ".join(f"{arm} {each}" for arm, each in others.items())
    return Verdict.when(
        reproduced=all(each.low > FAR for each in needed),
        inconclusive=any(each.low <= FAR < each.high for each in needed) and all(each.high > FAR for each in needed),
        effect=effect,
        control=control,
        note=f"share of episodes that keep both sides ({shares}), smallest lead of composed guidance over others "
        f"({gaps}); the first side and not the second: {avoided} where the second is negated, {single} where only the "
        "first is asked for; control: shuffled labels",
    )


STUDIES = {
    "return": (ReturnConfig, run_return, verdict_return),
    "compose": (ComposeConfig, run_compose, verdict_compose),
}
