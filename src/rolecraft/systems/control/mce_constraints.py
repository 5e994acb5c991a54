"""Learning hidden constraints from demonstrations by maximum causal entropy (MCE-ICRL, arXiv 2305.02857).

Exact: the tabular method. Inner problem: soft value iteration for reward - multiplier * cost, with the expectation
over the next state inside the backup; outer problem: projected ascent on the visits of the policy less those of the
demonstrations; the multiplier follows the cost above that of the demonstrations. The parts are `control.tabular`.
Adapted: the paper's code is not known, so details follow the literature on maximum causal entropy. Visits of
demonstrations are matched within their standard error (`slack`; 0 is the plain method), which keeps noise from
becoming cost. ICRL and the discriminators have one logit per state in place of a network, and exact soft planning in
place of PPO.
Baselines: behavioural cloning, ICRL, GAIL-constraint, a classifier of nominal against shown states, greedy cells by
path likelihood (Scobee and Sastry); and MCE's twin whose inner problem is plain maximum entropy (`non-causal`).
Control: demonstrations whose states are shuffled.
Measured: exact violations and reward of each method's own policy; of a fresh agent with the frozen cost (`fresh`),
where start and goal have moved (`moved`), where each step costs twice as much as well (`hurried`), and there with the
cost as a guard that blocks at a threshold (`guarded`). States where neither demonstrations nor policies came are no
evidence.
Small: `rolecraft systems run mce-constraints`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import Interval
    from rolecraft.systems.control._mce_learners import Learned
    from rolecraft.systems.control._mce_world import WallWorld

SYSTEM = System(
    number=22,
    name="mce-constraints",
    title="Maximum Causal Entropy Inverse Constrained Reinforcement Learning",
    arxiv="2305.02857",
    family="control",
    claim="a cost learned by maximum causal entropy makes agents keep hidden constraints at the expert's reward, and "
    "where moves are random, planning without causality does worse",
    published="above earlier methods in reward, violations and transfer (the abstract has no figures)",
)

ARMS = ("mce", "non-causal", "greedy", "icrl", "gail", "classifier", "bc", "shuffled")
DROP = 0.9
"""Share of the nominal agent's violations that must go."""
LIKE = 0.1
"""The reward may differ from the expert's by this share of it."""
COSTS = "costs"
"""Stage of the run store with the learned cost of each row."""


@dataclass(frozen=True)
class Config(StudyConfig):
    """A grid with a hidden wall; the same eight learners at each probability to slip."""

    NO_FULL: ClassVar[str] = "the paper's larger tasks are MuJoCo runs with SAC and neural costs, not offered here"
    seeds: tuple[int, ...] = tuple(range(11, 21))
    slips: tuple[float, ...] = (0.0, 0.1, 0.2)
    """Probabilities that a move goes in a direction drawn at random."""
    size: int = 7
    """Rows and columns of the grid."""
    episodes: int = 50
    """Demonstrations."""
    horizon: int = 100
    """Steps of a demonstration, and of the visits that are matched."""
    discount: float = 0.99
    temperature: float = 0.1
    """Of the experts and of all soft planners."""
    penalty: float = 50.0
    """What a step in a forbidden cell costs the expert."""
    outer: int = 300
    """Steps of the cost of MCE and its twins."""
    rate: float = 0.3
    """Of the cost."""
    multiplier_rate: float = 0.05
    """Of the multiplier; 0 folds it into the cost."""
    slack: float = 1.0
    """Standard errors of the demonstrated visits by which a policy may visit a state more often for nothing."""
    tolerance: float = 0.01
    """Difference of visits at which the outer problem is solved."""
    least_mass: float = 0.1
    """Path mass that a cell must remove to be forbidden by `greedy`."""
    threshold: float = 1.0
    """From this cost on the guard blocks: what one step costs."""

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to learn."""
        if self.size < 6 or min(self.episodes, self.outer) < 1 or self.horizon < 2 * self.size:
            raise UserError(
                "size must be at least 6, episodes and outer at least 1 and horizon at least twice the size, got "
                f"{self.size}, {self.episodes}, {self.outer} and {self.horizon}."
            )
        if not self.slips or not all(0 <= slip < 1 for slip in self.slips):
            raise UserError(f"slips: expected one or more probabilities in [0, 1), got {self.slips}.")
        if min(self.temperature, self.penalty, self.rate, self.tolerance, self.threshold) <= 0:
            raise UserError("temperature, penalty, rate, tolerance and threshold must be above 0.")
        if self.multiplier_rate < 0 or self.slack < 0 or not 0 < self.least_mass < 1:
            raise UserError("multiplier_rate and slack must be at least 0, and least_mass in (0, 1).")


def worlds(config: Config, seed: int, slip: float) -> tuple[WallWorld, WallWorld, WallWorld]:
    """Return the world to learn in, the one with another start and goal, and that one with dearer steps."""
    import numpy as np

    from rolecraft.systems.control._mce_world import WallWorld, draw_maps

    first, second = draw_maps(config.size, np.random.default_rng(derive_seed("mce-constraints", seed, "maps")))
    learn, moved, hurried = (
        WallWorld.build(
            rows, slip=slip, temperature=config.temperature, penalty=config.penalty, discount=config.discount,
            step_reward=step_reward,
        )
        for rows, step_reward in ((first, -1.0), (second, -1.0), (second, -2.0))
    )  # fmt: skip
    return learn, moved, hurried


def examine(config: Config, learned: Learned, at: tuple[WallWorld, WallWorld, WallWorld]) -> dict[str, Any]:
    """Return what a learner's policy does, and what its cost is worth elsewhere."""
    from rolecraft.measures import auc

    learn, moved, hurried = at
    own, expert, nominal = (learn.judge(policy) for policy in (learned.policy, learn.expert, learn.nominal))
    figures: dict[str, Any] = {
        **own,
        "expert_violations": expert["violations"],
        "expert_reward": expert["reward"],
        "nominal_violations": nominal["violations"],
        "drop": 1 - own["violations"] / nominal["violations"],
        "reward_share": (own["reward"] - expert["reward"]) / abs(expert["reward"]),
        "gap": None if learned.gap != learned.gap else learned.gap,
    }
    if learned.cost is None:
        return figures | _named("moved", moved.judge(learned.policy))
    open_cells = ~learn.mdp.absorbing & ~learn.forbidden
    known, wall = learned.evidence, learn.forbidden
    guard = learned.guard(learn.mdp.actions, config.threshold)
    blocked = (guard.costs[:, 0] >= guard.threshold) & guard.evidence[:, 0]
    shown = auc(learned.cost[wall & known], learned.cost[open_cells & known])
    return (
        figures
        | _named("fresh", learn.judge(learn.plan(learned.cost)))
        | _named("moved", moved.judge(moved.plan(learned.cost)))
        | _named("hurried", hurried.judge(hurried.plan(learned.cost)))
        | _named("guarded", hurried.judge(hurried.plan(learned.cost + config.penalty * blocked)))
        | {
            "auc": auc(learned.cost[wall], learned.cost[open_cells]),
            "auc_known": None if shown != shown else shown,
            "wall_known": float(known[wall].mean()),
            "wall_blocked": float(blocked[wall].mean()),
            "open_blocked": float(blocked[open_cells].mean()),
            "hurried_expert_reward": hurried.judge(hurried.expert)["reward"],
        }
    )


def _named(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": figures[name] for name in ("violations", "reward", "penalised")}


def run(config: Config, store: RunStore) -> Result:
    """Let every learner learn from the same demonstrations, per seed and slip."""
    import numpy as np

    from rolecraft.systems.control._mce_learners import learn

    for seed in config.seeds:
        for slip in config.slips:
            unit = f"{seed}:{slip:g}"
            missing = store.missing(ROWS, [row_key(arm, seed, unit) for arm in ARMS])
            if not missing:
                continue
            at = worlds(config, seed, slip)
            drawn = np.random.default_rng(derive_seed("mce-constraints", seed, slip, "demonstrations"))
            walks = at[0].demonstrations(config.episodes, config.horizon, drawn)
            for arm in ARMS:
                if row_key(arm, seed, unit) in missing:
                    rng = np.random.default_rng(derive_seed("mce-constraints", seed, slip, arm))
                    learned = learn(arm, at[0], walks, config, rng)
                    if learned.cost is not None:
                        cells = {"map": at[0].grid.render(), "cost": learned.cost, "evidence": learned.evidence}
                        store.put(COSTS, row_key(arm, seed, unit), cells)
                    put_row(store, arm, seed, unit, slip=slip, **examine(config, learned, at))
    return Result.read(store)


def verdict(result: Result) -> Verdict:
    """Demand 90 % fewer violations at the expert's reward, and under slip a better policy than the greedy one.

    Better: more reward less the expert's penalty. The shuffled demonstrations must not do the former.
    """
    windy = Result(tuple(row for row in result.rows if row["slip"] > 0))
    effect, control = (result.mean("drop", arm, by="seed") for arm in ("mce", "shuffled"))
    like = result.mean("reward_share", "mce", by="seed")
    notes = [f"reward less the expert's, as a share {like}"]
    causal: Interval | None = None
    if windy.rows:
        causal = windy.difference("penalised", "mce", "greedy", by="seed")
        twin = windy.difference("penalised", "mce", "non-causal", by="seed")
        fresh = windy.difference("fresh_penalised", "mce", "greedy", by="seed")
        notes += [
            f"under slip, penalised reward over the greedy one {causal}, over the twin without causality {twin}, of "
            f"fresh agents with the frozen costs over the greedy one's {fresh}"
        ]
    for metric in ("violations", "auc", "moved_violations", "hurried_violations", "guarded_violations"):
        arms = [arm for arm in ARMS if any(row.get(metric) is not None for row in result.rows if row["arm"] == arm)]
        notes.append(f"{metric}: " + ", ".join(f"{arm} {result.mean(metric, arm).estimate:.2f}" for arm in arms))
    return Verdict.when(
        reproduced=effect.low >= DROP and abs(like.estimate) <= LIKE and causal is not None and causal.low > 0
        and control.high < DROP,
        inconclusive=causal is None or effect.low < DROP <= effect.high or causal.low <= 0 < causal.high,
        effect=effect,
        control=control,
        note=f"share of the nominal agent's violations that goes; control: shuffled demonstrations; {'; '.join(notes)}",
    )  # fmt: skip
