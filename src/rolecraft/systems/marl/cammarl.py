"""CAMMARL: an agent that reads conformal sets over its team-mate's next action (Gupta, Nath, Kahou, arXiv 2306.11128).

Exact: the classifier of the other's action from its observation, the sets (RAPS with lambda 0, which is APS;
temperature, randomised last element, never empty, alpha 0.1), encodings, arms, warm-up, refit and PPO update every
round of episodes, networks and rates. The parts are `marl` conformal sets, `ConformalOpponent` and `Ppo`.
Adapted: episodes are held out to calibrate on, with the correction for their number (the released code calibrates on
what it trained on: `--set published=true`, and its coverage is measured beside ours in any case); rounds are 32
episodes side by side; fewer passes per refit; advantages are GAE's. The ego sees its own observation and the encoding,
so that sets are all that `cammarl` has over `noam`.
Added: coverage and size of the sets on the next round, before the refit; sets of another episode as control.
Small: `rolecraft systems run cammarl`. More arms: `--set arms=noam,taam,toam,giam,eap,cammarl-padded,...`. The paper's
number of episodes: add `--full` (navigation; foraging's 500,000 episodes are not offered).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import Interval

SYSTEM = System(
    number=39,
    name="cammarl",
    title="CAMMARL: Conformal Action Modeling in Multi Agent Reinforcement Learning",
    arxiv="2306.11128",
    family="marl",
    claim="conformal sets over a team-mate's next action keep their coverage and shrink while it learns, and an agent "
    "that reads them does better than one without, and no better than one that knows all",
    published="cooperative navigation and foraging: close to the agent that is told observation and action, above no "
    "modelling, true actions and exact predictions; coverage high and sets shrinking (figures are curves)",
)

ARMS = (
    "noam", "taam", "toam", "giam", "eap", "cammarl", "cammarl-padded", "cammarl-penultimate", "shuffled",
)  # fmt: skip
"""No modelling; the other's true action; its true observation; both; exact prediction; sets as membership, as padded
numbers, features of the classifier; sets of another episode."""
NEEDED = ("noam", "giam", "cammarl", "shuffled")
TOLERANCE = 0.03
"""How far coverage may lie from 1 - alpha."""
CURVES = "curves"
TAIL = 0.1
"""Part of the updates that counts as the start or the end."""


@dataclass(frozen=True)
class NavigationConfig(StudyConfig):
    """Two agents, two landmarks, 25 steps; both learn by PPO, and the ego is told of the other by arm."""

    arms: tuple[str, ...] = ("noam", "eap", "cammarl", "giam", "shuffled")
    """See `ARMS`. The verdict needs noam, giam, cammarl and shuffled."""
    updates: int = 200
    """Rounds of `envs` episodes with a PPO update and a refit each. Paper: 1000 rounds of 30."""
    envs: int = 32
    """Episodes per round, side by side. Paper: 30."""
    warmup: int = 50
    """Episodes without learning before the first fit. Paper: 50."""
    alpha: float = 0.1
    """Share of sets that may miss. Released code: 0.1."""
    penalty: float = 0.0
    """RAPS's lambda. Released code: 0."""
    published: bool = False
    """Calibrate on the training data, as the released code does."""
    fit_epochs: int = 10
    """Passes per refit, going on from the last weights. Paper: 200."""
    fit_lr: float = 0.1
    """Of the classifier's SGD. Paper: 0.1."""
    hidden: int = 64
    """Paper: 64."""
    actor_lr: float = 3e-4
    """Paper: 3e-4."""
    critic_lr: float = 1e-3
    """Paper: 1e-3."""
    gamma: float = 0.95
    """Paper: 0.95."""
    decay: float = 0.95
    """GAE's lambda. Paper: 1 (inferred)."""
    clip: float = 0.2
    """Paper: 0.2."""
    epochs: int = 8
    """Of PPO per round. Paper: 8."""
    entropy: float = 0.01
    """Weight of PPO's entropy bonus."""

    def __post_init__(self) -> None:
        """Refuse unknown arms and sizes that leave nothing to compare; the parts check the rates."""
        for arm in self.arms:
            if arm not in ARMS:
                raise UserError(f"arms: there is no arm {arm!r} (arms: {', '.join(ARMS)}).{did_you_mean(arm, ARMS)}")
        if not self.arms:
            raise UserError(f"arms: expected some of {', '.join(ARMS)}.")
        if self.updates < 10 or self.envs < 4 or self.warmup < 1:
            raise UserError(
                f"updates must be at least 10, envs 4 and warmup 1, got {self.updates}, {self.envs}, {self.warmup}."
            )

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size of navigation: 30,000 episodes, 200 passes per refit."""
        return cls(seeds=tuple(range(5)), arms=ARMS, updates=1000, envs=30, fit_epochs=200)


def run_navigation(config: NavigationConfig, store: RunStore) -> Result:
    """Train every arm; a row has the return at the end and, with a classifier, what its sets did on each next round."""
    from rolecraft.systems.marl import _cammarl_training as training

    missing = missing_rows(store, config.arms, config.seeds)
    for arm in dict.fromkeys(name for name, _ in missing):
        training.Navigation(config, arm)  # what does not fit is refused before the first arm is trained
    for arm in config.arms:
        if arm not in (name for name, _ in missing):
            continue
        figures = training.train(config, arm, store.directory / "training" / arm)
        tail, step = max(1, round(TAIL * config.updates)), max(1, config.updates // 100)
        kept = config.updates // step * step
        for place, seed in enumerate(config.seeds):
            if (arm, seed) not in missing:
                continue
            one = {name: values[:, place] for name, values in figures.items()}
            curves = {name: each[:kept].reshape(-1, step).mean(1).round(5).tolist() for name, each in one.items()}
            store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, "updates": step, **curves})
            row = {"return": float(one["return"][-tail:].mean()), "first_return": float(one["return"][:tail].mean())}
            if "coverage" in one:
                row |= {name: float(one[name].mean()) for name in ("coverage", "coverage_train", "accuracy")}
                row |= {"alpha": config.alpha, "late_accuracy": float(one["accuracy"][-tail:].mean())}
                row |= {
                    "first_size": float(one["size"][:tail].mean()), "late_size": float(one["size"][-tail:].mean()),
                    "late_coverage": float(one["coverage"][-tail:].mean()),
                }  # fmt: skip
            put_row(store, arm, seed, **row)
    return Result.read(store)


def verdict_navigation(result: Result) -> Verdict:
    """Demand coverage within 3 points of 1 - alpha, sets that shrink, and noam <= cammarl <= giam in 2 of 3 seeds.

    The control reads sets of another episode: it must not clearly beat no modelling.
    """
    from rolecraft.measures import Interval, bootstrap_mean

    absent = [arm for arm in NEEDED if arm not in result.arms]
    if absent:
        nothing = Interval(float("nan"), float("nan"), float("nan"), 0)
        return Verdict.when(
            reproduced=False, effect=nothing, note=f"the verdict needs the arms {', '.join(NEEDED)}; no rows of "
            f"{', '.join(absent)}",
        )  # fmt: skip
    rows = {(row["arm"], row["seed"]): row for row in result.rows}
    sets = [rows["cammarl", seed] for seed in result.seeds]
    nominal = 1 - sets[0]["alpha"]
    coverage, trained = result.mean("coverage", "cammarl"), result.mean("coverage_train", "cammarl")
    shrink = bootstrap_mean([row["late_size"] - row["first_size"] for row in sets])
    within = coverage.low >= nominal - TOLERANCE and coverage.high <= nominal + TOLERANCE
    outside = coverage.low > nominal + TOLERANCE or coverage.high < nominal - TOLERANCE
    ordered = sum(
        rows["noam", seed]["return"] <= rows["cammarl", seed]["return"] <= rows["giam", seed]["return"]
        for seed in result.seeds
    )
    effect = result.difference("return", "cammarl", "noam")
    control = result.difference("return", "shuffled", "noam")
    most = 3 * ordered >= 2 * len(result.seeds)
    good = within and shrink.high < 0 and most and control.low <= 0
    unsure = (not within and not outside) or shrink.low < 0 <= shrink.high or (not most and _crosses(effect))
    returns = ", ".join(f"{arm} {result.mean('return', arm)}" for arm in result.arms)
    return Verdict.when(
        reproduced=good,
        inconclusive=not good and unsure and not outside and control.low <= 0,
        effect=effect,
        control=control,
        note=f"return with sets less without; order noam <= cammarl <= giam in {ordered} of {len(result.seeds)} seeds "
        f"(returns: {returns}); coverage of the next round {coverage} (asked {nominal:.2f}; calibrated on training "
        f"data {trained}); mean set size at the end less at the start {shrink}; control: sets of another episode",
    )


def _crosses(interval: Interval) -> bool:
    return interval.low < 0 < interval.high


STUDIES = {"navigation": (NavigationConfig, run_navigation, verdict_navigation)}
