"""LEO: learning about every goal at once from one pass through the network (arXiv 2605.23551).

Exact: a head of N * A values through a sigmoid, one-step targets for all goals by the rollout-time network (no target
network, no replay), reward and end of every goal by the oracle, commands drawn among goals seen and switched inside an
episode, epsilon and RAdam schedules; PQN on the commanded goal, with HER (one goal drawn as commands are, one achieved)
and with all goals relabelled as rows of the batch; Dual LEO, whose teacher never acts and whose PPO student is pulled
to the teacher's actions by a weight annealed to 0. The parts are `control.GoalLearner`, `control.GoalSet` and
`control.goal_grid`.
Adapted: a 12 x 12 grid (the paper's smallest) for Craftax, whose cells a network of two layers of 128 reads as one-hot
numbers (so that input normalisation, which the paper does by batch renormalisation, has nothing to do); the head starts
near 0.05 and not saturated; gamma 0.95; every arm takes the same gradient steps on the same number of transitions.
Exact values of the grid are known: no policy can do better than reach all goals within an episode.
The control: an untrained network, which reaches goals by chance.
Small: `rolecraft systems run leo --study grid`; `--study craftax` is a smoke run of Craftax-Classic with 136 goals, of
which only the order is reported; with `--full` it has the paper's size (1e9 steps, one GPU).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.control._leo import LeoConfig

SYSTEM = System(
    number=51,
    name="leo",
    title="Goal-Conditioned Agents that Learn Everything All at Once",
    arxiv="2605.23551",
    family="control",
    claim="learning about all goals at once by one pass learns as fast per step as relabelling with every goal, at a "
    "small part of its time, and both learn faster than from the commanded goal alone",
    published="more than 250 times as fast as relabelling with all goals; on Craftax-Classic (figure, 1e9 steps) PPO "
    "0.79, PQN 0.48, PQN with HER 0.67, LEO 0.61, Dual LEO 0.75 (PQN) and 0.81 (PPO): plain LEO loses to PPO there",
)
ARMS = ("pqn", "her", "relabel", "leo", "ppo", "dual")
NEAR = 4.0
"""The claim needs an update at least N / 4 times as fast as relabelling's."""


@dataclass(frozen=True)
class GridConfig(StudyConfig):
    """All free cells of a walled grid as goals."""

    NO_FULL: ClassVar[str] = (
        "1e8 steps on 16 x 16 and 24 x 24 maps are a GPU's work; `--set size=16 --set updates=200000` goes there"
    )
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    arms: tuple[str, ...] = ARMS
    """Paper: also Dual LEO with a PQN student."""
    size: int = 12
    """Rows of the map. Paper: 12, 16 and 24."""
    walls: float = 0.3
    """Share of walls. Paper: 0.2 to 0.3."""
    length: int = 64
    """Steps of an episode."""
    updates: int = 200
    """Of 512 steps each. Paper: 1e8 steps in all."""
    early: int = 80
    """Updates after which the arms are compared, and at which relabelling stops: its time grows with the goals."""
    checks: int = 5
    """Evaluations of every goal in the course of training."""
    repeats: int = 2
    """Episodes per goal and evaluation."""
    lr: float = 1e-3
    """Paper: 2e-4."""
    gamma: float = 0.95
    """Paper: 0.99, over 2000 times as many steps; a shorter horizon sets neighbouring actions apart sooner."""
    minibatch: int = 64
    """Transitions. Paper: 512 of 32768; ours of 512."""
    timed_size: int = 16
    """Map on which one gradient step is timed."""
    timed_seconds: float = 2.0
    """Spent on timing each kind of step."""

    def __post_init__(self) -> None:
        """Refuse arms that do not exist, and an early look after the end."""
        for arm in self.arms:
            if arm not in ARMS:
                raise UserError(f"arms: there is no arm {arm!r} (arms: {', '.join(ARMS)}).{did_you_mean(arm, ARMS)}")
        if min(self.checks, self.repeats, self.length, self.early) < 1 or self.updates < self.checks:
            raise UserError("checks, repeats, length and early must be at least 1, and updates at least checks.")
        if min(self.size, self.timed_size) < 2 or not 0 <= self.walls < 1 or self.timed_seconds < 0:
            raise UserError(
                "size and timed_size must be at least 2, walls lie in [0, 1) and timed_seconds be at least 0, got "
                f"{self.size}, {self.timed_size}, {self.walls} and {self.timed_seconds}."
            )
        if self.early > self.updates or self.early % self.chunk or self.updates % self.chunk:
            raise UserError(
                f"early and updates must be multiples of the {self.chunk} updates between two checks, and early no "
                f"more than updates; got {self.early} and {self.updates}."
            )

    @property
    def chunk(self) -> int:
        """Updates between two evaluations."""
        return self.updates // self.checks

    def learner(self) -> LeoConfig:
        """Return the learner's configuration, the same for all arms."""
        from rolecraft.control._leo import LeoConfig

        return LeoConfig(updates=self.updates, lr=self.lr, gamma=self.gamma, minibatch=self.minibatch)


def run_grid(config: GridConfig, store: RunStore) -> Result:
    """Train all seeds of an arm at once and evaluate every goal; then time one gradient step of each kind."""
    from rolecraft.systems.control._leo_training import time_kinds, train_grid

    for arm in config.arms:
        keys = {row_key(arm, seed): seed for seed in config.seeds}
        todo = [keys[key] for key in store.missing(ROWS, keys)]
        if todo:
            for seed, figures in train_grid(config, store, arm, todo).items():
                put_row(store, arm, seed, **figures)
    for seed in config.seeds:
        if store.missing(ROWS, [row_key("timing", seed)]):
            put_row(store, "timing", seed, **time_kinds(config, derive_seed("leo", seed, "timing") % 2**31))
    return Result.read(store)


def verdict_grid(result: Result) -> Verdict:
    """Demand equal learning per step, less time, and more than the commanded goal teaches.

    At the early look LEO and relabelling do not differ by their interval (being ahead of it is a difference too); both
    beat PQN; a gradient step of LEO is at least N / 4 times as fast as relabelling's; and LEO's success is more than an
    untrained network's.
    """
    arms = [arm for arm in result.arms if arm != "timing"]
    if not {"pqn", "relabel", "leo", "timing"} <= set(result.arms):
        raise UserError(f"the verdict needs the arms pqn, relabel and leo, got {', '.join(arms)}.")
    effect = result.difference("early", "leo", "pqn")
    other = result.difference("early", "relabel", "pqn")
    same = result.difference("early", "leo", "relabel")
    chance = result.mean("start", "leo")
    above = result.mean("early", "leo").low > chance.high
    ratio, rows = result.mean("ratio", "timing"), result.mean("ratio_rows", "timing")
    goals = result.mean("timed_goals", "timing").estimate
    fast = ratio.low > goals / NEAR
    early, final = (
        ", ".join(f"{arm} {result.mean(what, arm)}" for arm in arms if what in _fields(result, arm))
        for what in ("early", "final")
    )
    return Verdict.when(
        reproduced=effect.low > 0 and other.low > 0 and same.low <= 0 <= same.high and fast and above,
        inconclusive=fast and above and effect.high > 0 >= min(effect.low, other.low),
        effect=effect,
        control=chance,
        note="success over all goals at the early look, leo less pqn; control: the untrained network; leo less "
        f"relabelling {same}, relabelling less pqn {other}; with {goals:.0f} goals a gradient step of leo is {ratio} "
        f"times as fast as relabelling's and {rows} times as fast as its own loss row by row; early: {early}; at the "
        f"end: {final}",
    )


def _fields(result: Result, arm: str) -> set[str]:
    """Return the metrics that all rows of an arm have."""
    rows = [{name for name, value in row.items() if value is not None} for row in result.rows if row["arm"] == arm]
    return set.intersection(*rows)


@dataclass(frozen=True)
class CraftaxConfig(StudyConfig):
    """Craftax-Classic with its 136 goals: a smoke run, of which the order of the arms is reported and no asymptote."""

    seeds: tuple[int, ...] = (0,)
    """Paper: 2."""
    arms: tuple[str, ...] = ("pqn", "leo")
    """Paper: pqn, her, leo, ppo and dual."""
    envs: int = 16
    """Paper: 1024."""
    updates: int = 20
    """Of 32 steps in each environment. Paper: 1e9 steps."""
    width: int = 128
    """Of two layers. Paper: 1024, four layers behind a convolution."""
    minibatch: int = 128
    """Paper: 512."""
    lr: float = 2e-4
    """Paper: 2e-4."""

    def __post_init__(self) -> None:
        """Refuse arms that do not exist, and a training without a second half."""
        for arm in self.arms:
            if arm not in ARMS:
                raise UserError(f"arms: there is no arm {arm!r} (arms: {', '.join(ARMS)}).{did_you_mean(arm, ARMS)}")
        if self.updates < 2:
            raise UserError(f"updates must be at least 2, got {self.updates}.")

    @classmethod
    def full(cls) -> CraftaxConfig:
        """Return the paper's number of steps, environments and seeds; needs a GPU."""
        return cls(
            seeds=(0, 1), arms=("pqn", "her", "leo", "ppo", "dual"), envs=1024, updates=30518, width=1024, minibatch=512
        )


def run_craftax(config: CraftaxConfig, store: RunStore) -> Result:
    """Train every arm; success is that of commands in the second half of training, averaged over goals."""
    from rolecraft.systems.control._leo_training import train_craftax

    for arm in config.arms:
        keys = {row_key(arm, seed): seed for seed in config.seeds}
        todo = [keys[key] for key in store.missing(ROWS, keys)]
        if todo:
            for seed, figures in train_craftax(config, store, arm, todo).items():
                put_row(store, arm, seed, **figures)
    return Result.read(store)


def verdict_craftax(result: Result) -> Verdict:
    """Report the order; demand Dual LEO at least at PPO, by its interval, where both ran at the paper's size."""
    order = sorted(result.arms, key=lambda arm: -result.mean("success", arm).estimate)
    words = " > ".join(f"{arm} {result.mean('success', arm)}" for arm in order)
    both = {"ppo", "dual"} <= set(result.arms)
    effect = result.difference("success", "dual", "ppo") if both else result.mean("success", order[0])
    steps = result.mean("steps", order[0]).estimate
    return Verdict.when(
        reproduced=both and effect.low >= 0,
        inconclusive=not both or steps < 1e8 or effect.low < 0 <= effect.high,
        effect=effect,
        note=f"order after {steps:.3g} steps: {words}; after 1e9 the paper's is dual 0.81, ppo 0.79, her 0.67, "
        "leo 0.61, pqn 0.48: plain LEO loses to PPO there, and the claim that holds is Dual LEO's",
    )


STUDIES: dict[str, Any] = {
    "grid": (GridConfig, run_grid, verdict_grid),
    "craftax": (CraftaxConfig, run_craftax, verdict_craftax),
}
