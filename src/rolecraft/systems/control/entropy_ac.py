"""Entropy-regularised actor-critic: an exact critic makes noisy gradients as good as exact ones (arXiv 2605.24357).

Exact: softmax policies of a regularised tabular MDP; the deterministic gradient; single-sample estimators weighted by
the return, by the return less V(s), and by the exact soft advantage, which vanishes at the optimum with its noise;
TD(0) critics, critic first (a warm-up, then K critic steps after each actor step) or both at once. The parts are
`control.tabular`. States are drawn from the exact visits, which is the law of geometric stopping.
Adapted: the algorithm is rebuilt from standard definitions (no code of the paper is known); the warm-up has a fixed
length and its Bellman residual is recorded; returns are cut where the discount is below 0.01; logits stay in a box.
Added: REINFORCE with a step size and a decay of its own, tuned on other seeds; the exact variance of each estimator
along one path of policies. Controls: an exact critic that is never refreshed (`small`), the same for a learned one
(`critics`), the exact V as a baseline only (`variance`).
With temperature 0 the advantages do not vanish and the theorem says nothing: it is refused.
Small: `rolecraft systems run entropy-ac --study small`, and `critics`, `variance`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from rolecraft.errors import UserError
from rolecraft.systems._base import Result, Study, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    import numpy as np

    from rolecraft._run import RunStore
    from rolecraft.systems.control._entropy_ac_training import Problem

SYSTEM = System(
    number=115,
    name="entropy-ac",
    title="Refined Analysis of Entropy-Regularized Actor-Critic",
    arxiv="2605.24357",
    family="control",
    claim="with an exact critic the stochastic policy gradient converges like the exact one, because its noise "
    "vanishes at the regularised optimum; without one, noise sets a floor",
    published="sample complexity of order log(1/eps) with an exact critic (theory; the abstract has no other figures)",
)

CURVES = "curves"
PUBLISHED = {"exact": 2.9e-4, "exact-critic": 2.5e-4, "baseline": 0.65, "reinforce": 2.3}
"""Medians of the suboptimality after 19,000 steps in a pilot of five seeds (no published figures exist)."""
TRACKS = math.log10(2)
"""The exact critic must end within this factor (2, in powers of ten) of the deterministic gradient, no other may."""


@dataclass(frozen=True)
class ProblemConfig(StudyConfig):
    """The problems of all studies."""

    NO_FULL: ClassVar[str] = "the paper is theory on tabular MDPs of this size; there is nothing larger to run"
    task: str = "random"
    """`random` (Dirichlet(0.3) transitions, rewards uniform on [0, 1]) or `frozen-lake` (Gymnasium's table)."""
    states: int = 5
    """Of a random MDP."""
    actions: int = 3
    discount: float = 0.9
    temperature: float = 0.1
    """Weight of the entropy, above 0."""
    rate: float = 0.5
    """Step size of the actor, on the gradient times (1 - discount)."""
    bound: float = 30.0
    """Logits, less their mean, stay within it."""

    def __post_init__(self) -> None:
        """Refuse rates, temperatures, discounts and sizes out of range."""
        if not self.temperature > 0:
            raise UserError(
                f"temperature: expected a number above 0, got {self.temperature}; at 0 the advantages of the optimum "
                "do not vanish, and the claim is about regularised problems."
            )
        if not 0 < self.discount < 1:
            raise UserError(f"discount: expected a number in (0, 1), got {self.discount}.")
        if self.rate <= 0 or self.bound <= 0 or min(self.states, self.actions) < 1:
            raise UserError(
                "rate and bound must be above 0, and states and actions at least 1, got "
                f"{self.rate}, {self.bound}, {self.states}, {self.actions}."
            )

    def problem(self, seeds: Sequence[int]) -> Problem:
        """Return the MDPs of some seeds, as a stack."""
        from rolecraft.systems.control._entropy_ac_training import Problem

        return Problem.of_seeds(self.task, (self.states, self.actions), self.discount, self.temperature, seeds)


@dataclass(frozen=True)
class Config(ProblemConfig):
    """Deterministic gradient, exact critic, V as a baseline, REINFORCE and a stale critic on random MDPs."""

    seeds: tuple[int, ...] = (11, 12, 13, 14, 15)
    steps: int = 19_000
    """Actor steps, one sample each."""
    reinforce_rate: float = 0.05
    """Step size at the start of `reinforce-tuned`, the best of a grid on seeds 1 to 6."""
    reinforce_decay: float = 1e-3
    """Its step size at step t is reinforce_rate / (1 + reinforce_decay * t); tuned likewise."""
    baseline_rate: float = 1.5
    """The same for `baseline-tuned`; the best value was the largest of its grid."""
    baseline_decay: float = 1e-3
    cut: float = 0.01
    """A return is cut after the steps in which the discount falls below this."""

    def __post_init__(self) -> None:
        """Refuse what makes the study meaningless."""
        super().__post_init__()
        if min(self.reinforce_rate, self.baseline_rate) <= 0 or min(self.reinforce_decay, self.baseline_decay) < 0:
            raise UserError("reinforce_rate and baseline_rate must be above 0, and their decays at least 0.")
        if self.steps < 19 or not 0 < self.cut < 1:
            raise UserError(f"steps must be at least 19 and cut lie in (0, 1), got {self.steps} and {self.cut}.")

    @property
    def horizon(self) -> int:
        """Steps of a return."""
        return max(1, math.ceil(math.log(self.cut) / math.log(self.discount)))

    @property
    def marks(self) -> list[int]:
        """Steps at which the suboptimality is taken."""
        return sorted({round(self.steps * share) for share in (0, 1 / 19, 5 / 19, 10 / 19, 0.8, 0.9, 1)})


ARMS = ("exact", "exact-critic", "stale", "baseline", "baseline-tuned", "reinforce", "reinforce-tuned")


def train(config: Config, arm: str, seeds: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the suboptimality of an arm at `config.marks`, of shape (marks, seeds)."""
    import numpy as np

    from rolecraft.systems.control._entropy_ac_training import ascend, exact_step, sampled_step, stale_step, streams

    problem, draws = config.problem(seeds), streams(seeds, arm)
    kind = arm.removesuffix("-tuned")
    rate, decay = config.rate, 0.0
    if arm.endswith("-tuned"):
        rate, decay = getattr(config, f"{kind}_rate"), getattr(config, f"{kind}_decay")
    direction = (
        exact_step(problem)
        if kind == "exact"
        else stale_step(problem, draws)
        if kind == "stale"
        else sampled_step(problem, kind, draws, config.horizon)  # type: ignore[arg-type]
    )
    ones = np.ones(len(seeds))
    return ascend(problem, direction, lambda step: ones * rate / (1 + decay * step), config.marks, config.bound)[0]


def run(config: Config, store: RunStore) -> Result:
    """Train every arm on all seeds at once; a row has the suboptimality at the marks and its logarithm at the end."""
    for arm in ARMS:
        seeds = [seed for _, seed in missing_rows(store, [arm], config.seeds)]
        if not seeds:
            continue
        curve = train(config, arm, seeds)
        for column, seed in enumerate(seeds):
            marked = {f"loss_{mark}": float(value) for mark, value in zip(config.marks, curve[:, column], strict=True)}
            late = float(curve[-3:, column].mean())
            put_row(store, arm, seed, final=late, log_final=log10(late), **marked)
    return Result.read(store)


def log10(value: float) -> float:
    """Return the decimal logarithm, of at least 1e-12."""
    return math.log10(max(value, 1e-12))


def medians(result: Result, metric: str, arms: Sequence[str]) -> dict[str, float]:
    """Return the median of a metric per arm."""
    import statistics

    return {arm: statistics.median(row[metric] for row in result.rows if row["arm"] == arm) for arm in arms}


def verdict(result: Result) -> Verdict:
    """Demand that the exact critic ends within a factor of 2 of the deterministic gradient, and REINFORCE does not.

    The stale critic is as noiseless and must not either.
    """
    effect = result.difference("log_final", "exact-critic", "reinforce-tuned")
    tracks = result.difference("log_final", "exact-critic", "exact")
    control = result.difference("log_final", "stale", "exact-critic")
    against = result.difference("log_final", "exact-critic", "baseline-tuned")
    found = ", ".join(f"{arm} {value:.2g}" for arm, value in medians(result, "final", ARMS).items())
    pilot = ", ".join(f"{arm} {value:.2g}" for arm, value in PUBLISHED.items())
    return Verdict.when(
        reproduced=effect.high < -TRACKS and tracks.high < TRACKS and control.low > TRACKS,
        inconclusive=effect.low < -TRACKS <= effect.high or tracks.low < TRACKS <= tracks.high,
        effect=effect,
        control=control,
        note="powers of ten of the final suboptimality, exact critic over REINFORCE with its own step size; control: "
        f"the never refreshed critic over the exact one; exact critic over the deterministic gradient {tracks}, over "
        f"the baseline with its own step size {against}; medians {found} (a pilot's: {pilot})",
    )


@dataclass(frozen=True)
class CriticConfig(ProblemConfig):
    """Learned critics: K critic steps per actor step, critic first or both at once."""

    seeds: tuple[int, ...] = tuple(range(11, 19))
    steps: int = 4000
    """Actor steps."""
    critic_rate: float = 0.1
    """Of TD(0), constant: its noise sets the floor."""
    per_step: tuple[int, ...] = (1, 10, 100)
    """Critic steps after each actor step (K)."""
    warm_up: int = 3000
    """Critic steps before the first actor step, where the critic is first."""

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to compare."""
        super().__post_init__()
        if len(self.per_step) < 2 or sorted(set(self.per_step)) != list(self.per_step) or self.per_step[0] < 1:
            raise UserError(f"per_step: expected ascending numbers of at least 1, two or more, got {self.per_step}.")
        if not 0 < self.critic_rate <= 1 or self.warm_up < 1 or self.steps < 50:
            raise UserError(
                "critic_rate must lie in (0, 1], warm_up be at least 1 and steps at least 50, got "
                f"{self.critic_rate}, {self.warm_up}, {self.steps}."
            )

    @property
    def marks(self) -> list[int]:
        """Steps at which the suboptimality is taken."""
        return sorted({round(self.steps * share / 50) for share in range(51)})

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms: K, then `-cold` where both learn at once; `td-0` is warmed up and never refreshed."""
        warm = [f"td-{k}" for k in self.per_step]
        return ("exact-critic", *warm, *(f"{arm}-cold" for arm in warm), "td-0")


def train_critic(config: CriticConfig, arm: str, seeds: Sequence[int]) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """Return the suboptimality of an arm at `config.marks`, of shape (marks, seeds), and facts of its critic."""
    import numpy as np

    from rolecraft.control.tabular import softmax
    from rolecraft.systems.control._entropy_ac_training import LearnedCritic, ascend, sampled_step, streams

    problem, draws = config.problem(seeds), streams(seeds, arm)
    rates = np.full(len(seeds), config.rate)
    if arm == "exact-critic":
        direction = sampled_step(problem, "exact-critic", draws, 1)
        return ascend(problem, direction, lambda _: rates, config.marks, config.bound)[0], {}
    per_step, cold = int(arm.split("-")[1]), arm.endswith("-cold")
    critic = LearnedCritic(
        problem, draws, rate=config.critic_rate, per_step=per_step, warm_up=0 if cold else config.warm_up
    )
    curve, logits = ascend(problem, critic.direction, lambda _: rates, config.marks, config.bound)
    error, explained = critic.figures(softmax(logits))
    return curve, {"critic_error": error, "explained": explained, "warm_residual": critic.residual}


def run_critics(config: CriticConfig, store: RunStore) -> Result:
    """Train every arm; a row has the mean suboptimality of the first fifth and of the last fifth of the steps."""
    for arm in config.arms:
        seeds = [seed for _, seed in missing_rows(store, [arm], config.seeds)]
        if not seeds:
            continue
        curve, facts = train_critic(config, arm, seeds)
        fifth = max(1, len(curve) // 5)
        for column, seed in enumerate(seeds):
            early, late = (float(part[:, column].mean()) for part in (curve[:fifth], curve[-fifth:]))
            worst = float(curve[:, column].max())
            store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, "loss": curve[:, column].tolist()})
            put_row(
                store, arm, seed, early=early, final=late, log_early=log10(early), log_final=log10(late), worst=worst,
                **{name: float(values[column]) for name, values in facts.items()},
            )  # fmt: skip
    return Result.read(store)


def verdict_critics(result: Result) -> Verdict:
    """Demand lower floors for more critic steps, and a better start where the critic comes first.

    The critic that is never refreshed must have the highest floor of the warm ones.
    """
    warm = sorted(
        (arm for arm in result.arms if arm.startswith("td-") and not arm.endswith("-cold") and arm != "td-0"),
        key=lambda arm: int(arm.split("-")[1]),
    )
    effect = result.difference("log_final", warm[0], warm[-1])
    middle = [result.difference("log_final", a, b) for a, b in pairwise(warm)]
    control = result.difference("log_final", "td-0", warm[0])
    first = {arm: result.difference("log_early", f"{arm}-cold", arm) for arm in warm}
    late = {arm: result.difference("log_final", f"{arm}-cold", arm) for arm in warm}
    exact = result.difference("log_final", warm[-1], "exact-critic")
    floors = ", ".join(f"{arm} {value:.2g}" for arm, value in medians(result, "final", result.arms).items())
    ordered = all(step.low > 0 for step in middle)
    return Verdict.when(
        reproduced=ordered and control.low > 0 and first[warm[0]].low > 0,
        inconclusive=any(step.low <= 0 < step.high for step in (*middle, first[warm[0]])),
        effect=effect,
        control=control,
        note=f"powers of ten of the floor, {warm[0]} over {warm[-1]}; control: the warmed-up and never refreshed "
        f"critic over {warm[0]}; steps between floors {', '.join(map(str, middle))}; both at once over critic first, "
        f"early: {', '.join(f'{arm} {value}' for arm, value in first.items())}, late: "
        f"{', '.join(f'{arm} {value}' for arm, value in late.items())}; {warm[-1]} over the exact critic {exact}; "
        f"median floors {floors}",
    )


@dataclass(frozen=True)
class VarianceConfig(ProblemConfig):
    """The exact variance of each estimator along the path of the deterministic gradient."""

    seeds: tuple[int, ...] = tuple(range(11, 21))
    steps: int = 20_000
    from_loss: float = 0.1
    """The slope is fitted where the suboptimality is below this: the claim is about the optimum's neighbourhood."""

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to fit."""
        super().__post_init__()
        if not self.from_loss > 0 or self.steps < 2:
            raise UserError(f"from_loss must be above 0 and steps at least 2, got {self.from_loss}, {self.steps}.")


def variance_path(config: VarianceConfig, seeds: Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
    """Return, per mark of a path of policies and seed, the suboptimality and the variances; shape (marks, seeds)."""
    import numpy as np

    from rolecraft.control.tabular import ESTIMATORS, gradient_moments, softmax
    from rolecraft.systems.control._entropy_ac_training import exact_step

    problem = config.problem(seeds)
    direction, logits = exact_step(problem), np.zeros(problem.mdp.rewards.shape)
    wanted = set(np.unique(np.geomspace(1, config.steps, 60).round().astype(int)).tolist())
    found: dict[str, list[Any]] = {name: [] for name in ("loss", "signal", *ESTIMATORS)}
    for step in range(1, config.steps + 1):
        logits = logits + config.rate * direction(softmax(logits), step)
        if step in wanted:
            found["loss"].append(problem.loss(softmax(logits)))
            for estimator in ESTIMATORS:
                moments = gradient_moments(problem.mdp, logits, config.temperature, estimator)
                found[estimator].append(moments.variance)
            found["signal"].append(moments.signal)
    return {name: np.array(values) for name, values in found.items()}


def run_variance(config: VarianceConfig, store: RunStore) -> Result:
    """Fit log variance over log suboptimality, per estimator and seed; all estimators see the same policies."""
    import numpy as np

    from rolecraft.control.tabular import ESTIMATORS
    from rolecraft.measures import slope

    seeds = sorted({seed for _, seed in missing_rows(store, ESTIMATORS, config.seeds)})
    if not seeds:
        return Result.read(store)
    path = variance_path(config, seeds)
    for column, seed in enumerate(seeds):
        loss = path["loss"][:, column]
        near = (loss < config.from_loss) & (loss > 1e-10)
        for estimator in ESTIMATORS:
            variance, signal = path[estimator][:, column], path["signal"][:, column]
            fitted = slope(np.log(loss[near]), np.log(np.maximum(variance[near], 1e-300)))
            figures: Mapping[str, Any] = {
                "slope": None if math.isnan(fitted) else fitted,
                "points": int(near.sum()),
                "variance": float(variance[-1]),
                "loss": float(loss[-1]),
                "growth": float((variance / np.maximum(loss, 1e-12)).max()),
                "noise_to_signal": float(variance[-1] / max(signal[-1], 1e-300)),
            }
            put_row(store, estimator, seed, **figures)
    return Result.read(store)


def verdict_variance(result: Result) -> Verdict:
    """Demand a slope of about 1 or more for the exact critic, and of about 0 for the others."""
    effect, control = result.mean("slope", "exact-critic"), result.mean("slope", "baseline")
    plain = result.mean("slope", "reinforce")
    growth = ", ".join(f"{arm} {value:.2g}" for arm, value in medians(result, "growth", result.arms).items())
    flat = max(control.high, plain.high) < 0.5  # nearer to 0 than to 1
    return Verdict.when(
        reproduced=effect.low > 0.8 and flat,
        inconclusive=effect.low <= 0.8 < effect.high,
        effect=effect,
        control=control,
        note=f"slope of log variance over log suboptimality; control: V as a baseline; REINFORCE {plain}; largest "
        f"variance over suboptimality, medians: {growth}",
    )


STUDIES = {
    "small": Study(Config, run, verdict),
    "critics": Study(CriticConfig, run_critics, verdict_critics),
    "variance": Study(VarianceConfig, run_variance, verdict_variance),
}
