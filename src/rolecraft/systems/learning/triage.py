"""TRIAGE: credit for each segment of a rollout by the role that a judge gives it (arXiv 2606.32017).

Exact: segments, the four roles and their constants, the outcome advantage of GRPO plus lambda times the constant,
whitening over all segments of the batch, broadcast to the segment's tokens, a failed judge's 0, the flip rate, the
condition Cov(c, delta) > lambda Var(c) / 2. The parts are `make_rule("triage")` in `learning.credit`, spans and judges
in `learning`, `measures.segment_reliability` and `worlds.KeyDoor`; `triage_credit` puts them together.
Adapted: a table of preferences and a grid for Qwen2.5-7B and ALFWorld, so that true advantages are exact; the judge is
a rule (the distance to the goal), with noise in its labels for a language model's mistakes. The published lambda is not
known; 0.5 here. The step size was chosen on seeds 1 to 4 so that GRPO learns about as fast as in the pilot.
On the grid every action but a bump changes the distance to the goal, so that exploration (E) is a first bump only.
Small: `rolecraft systems run triage` (grid, then loops); `--study smollm2` is a smoke run of a language model. The
paper's size is not offered: Qwen2.5-7B on ALFWorld and WebShop with a served Qwen3-8B as `ModelRoleJudge` needs GPUs
and those benchmarks; the call is `triage_credit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row
from rolecraft.systems.learning._triage_smoke import SMOLLM2

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rolecraft._run import RunStore
    from rolecraft.learning import RoleJudge, SegmentContext, Span
    from rolecraft.measures import Interval
    from rolecraft.systems.learning._key_door_learner import Arm, Curve
    from rolecraft.worlds import KeyDoorTables

SYSTEM = System(
    number=8,
    name="triage",
    title="TRIAGE: Role-Typed Credit Assignment for Agentic Reinforcement Learning",
    arxiv="2606.32017",
    family="learning",
    claim="adding a constant for a segment's role to its outcome advantage learns faster and takes fewer turns than "
    "the outcome alone, and finding regressions inside successes gives most of the gain",
    published="Qwen2.5-7B, TRIAGE against GRPO: ALFWorld 87.5 / 79.6, Search-QA 48.1 / 43.3, WebShop 77.2 / 70.1; "
    "turns of completed rollouts 10.4% (ALFWorld) and 14.8% (WebShop) fewer",
)


# The rule on rollouts of a language policy


@dataclass(frozen=True)
class TriageCredit:
    """What TRIAGE gives a trainer."""

    advantages: NDArray[np.float64]
    """Shape (N, T): that of its segment for each policy token, else 0."""
    table: tuple[Mapping[str, Any], ...]
    """For each segment `rollout`, `outcome_advantage`, `role`, `constant`, `advantage` and `flip`."""
    summary: Mapping[str, Any]
    """The figures of `assign_credit`: frequencies of roles in successes and failures, flip rates, judge failures."""


def triage_credit(
    mask: NDArray[np.bool_],
    spans: Sequence[Span] | NDArray[Any],
    outcome: ArrayLike,
    groups: ArrayLike,
    *,
    labels: Sequence[str | None] | None = None,
    judge: RoleJudge | None = None,
    contexts: Sequence[SegmentContext] = (),
    **options: Any,
) -> TriageCredit:
    """Give credit to the tokens of some rollouts.

    Args:
        mask: Booleans of shape (N, T): the policy's tokens.
        spans: The segments, which part them.
        outcome: Shape (N,), final rewards.
        groups: Whole numbers of shape (N,): rollouts of one task.
        labels: The role of each segment, None where a judge failed.
        judge: Gives the roles instead; it is shown `contexts`.
        contexts: One per segment, in the order of the spans.
        options: Of the rule `triage`, such as `lam`, `constants` or `whiten_unit`.

    Raises:
        UserError: If spans, labels or options do not fit; rollout and segment are named.
    """
    from rolecraft.learning import judge_segments, role_codes, segment_batch, spread_segments
    from rolecraft.learning.credit import TRIAGE_CONSTANTS, assign_credit, group_advantage, label_bonus, make_rule

    if (labels is None) == (judge is None):
        raise UserError("triage: give either labels or a judge (with contexts).")
    if judge is not None:
        labels = judge_segments(judge, contexts).labels
    roles = role_codes(labels or ())
    batch = segment_batch(mask, spans, outcome, groups, label=roles)
    result = assign_credit(batch, make_rule({"name": "triage", **options}))
    segment = result.advantages[:, 0]
    constants = {**TRIAGE_CONSTANTS, **(options.get("constants") or {})}
    base = group_advantage(np.asarray(outcome, dtype=float), np.asarray(groups), ddof=options.get("ddof", 1))[0]
    rollout = batch.keys["traj"]
    bonus = label_bonus(roles, list(constants.values()))
    table = tuple(
        {
            "rollout": int(rollout[place]),
            "outcome_advantage": float(base[rollout[place]]),
            "role": (labels or ())[place],
            "constant": float(bonus[place]),
            "advantage": float(segment[place]),
            "flip": bool(np.sign(segment[place]) != np.sign(base[rollout[place]])),
        }
        for place in range(len(segment))
    )
    return TriageCredit(spread_segments(spans, segment, np.asarray(mask)), table, result.info)


# (a) The grid: does it learn faster, and how much noise can its judge have?

NOISE: Mapping[str, float] = {"triage": 0.0, "noise-30": 0.3, "noise-60": 0.6, "noise-80": 0.8, "noise-100": 1.0}
"""Arms of the noise sweep, by the share of random labels."""
ABLATIONS = ("no-r", "no-e", "no-d", "only-r")
ARMS = ("grpo", *NOISE, "no-r", "no-e", "only-r", "scalar", "value", "random-constants", "all-n")


def make_arm(name: str) -> Arm:
    """Return an arm by name; a role that is taken out counts as N."""
    from rolecraft.learning.credit import TRIAGE_CONSTANTS
    from rolecraft.systems.learning._key_door_learner import Arm

    out = {"no-r": "R", "no-e": "E", "no-d": "D", "only-r": "DE", "all-n": "DER"}
    if name in out:
        return Arm(constants=dict.fromkeys(out[name], TRIAGE_CONSTANTS["N"]))
    if name in NOISE:
        return Arm(noise=NOISE[name])
    others = {"grpo": Arm("none"), "scalar": Arm("scalar"), "value": Arm("value"), "random-constants": Arm(random=True)}
    return others[name]


@dataclass(frozen=True)
class GridConfig(StudyConfig):
    """A new map per seed, one group of rollouts per update."""

    NO_FULL = SMOLLM2.config.NO_FULL
    seeds: tuple[int, ...] = tuple(range(10, 20))
    size: int = 6
    shortest: int = 8
    """Fewest moves that a map needs."""
    walls: int = 0
    horizon: int = 40
    rollouts: int = 8
    """Per group."""
    updates: int = 250
    lam: float = 0.5
    """Paper: tuned on the training split; the value is not known."""
    learning_rate: float = 1.5
    """Of plain gradient ascent on the logits."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare."""
        if self.rollouts < 2 or min(self.updates, self.horizon) < 1 or not 0 < self.lam <= 1:
            raise UserError(
                "expected rollouts of at least 2, updates and horizon of at least 1 and lam in (0, 1], got "
                f"{self.rollouts}, {self.updates}, {self.horizon} and {self.lam}."
            )


def make_tables(config: GridConfig, seed: int) -> KeyDoorTables:
    """Return the map of a seed: the same in every arm.

    Raises:
        UserError: If its door cannot be reached within the horizon.
    """
    from rolecraft.worlds import KeyDoorMap

    tables = KeyDoorMap.draw(config.size, config.walls, seed, shortest=config.shortest).tables()
    if tables.shortest > config.horizon:
        raise UserError(
            f"the map of seed {seed} needs {tables.shortest} moves, but horizon is {config.horizon}; raise it."
        )
    return tables


def run_grid(config: GridConfig, store: RunStore) -> Result:
    """Train every arm from a uniform policy, once per seed."""
    for name, seed in missing_rows(store, ARMS, config.seeds):
        put_row(store, name, seed, **curve_row(_train(config, make_tables(config, seed), name, seed), config.lam))
    return Result.read(store)


def _train(
    config: GridConfig, tables: KeyDoorTables, name: str, seed: int, logits: NDArray[np.float64] | None = None
) -> Curve:
    from rolecraft.systems.learning._key_door_learner import train

    return train(
        tables, make_arm(name), seed, updates=config.updates, size=config.rollouts, horizon=config.horizon,
        lam=config.lam, rate=config.learning_rate, logits=logits,
    )  # fmt: skip


def curve_row(curve: Curve, lam: float) -> dict[str, Any]:
    """Return the figures of a training run.

    `auc` is the mean over updates of the exact chance of success, `margin` Cov(c, delta) less lam Var(c) / 2, `closer`
    how much better than the outcome's the advantages correlate with the true ones.
    """
    covariance, variance = curve.covariance, curve.variance
    return {
        "auc": float(np.mean(curve.success)),
        "success": curve.success[-1],
        "turns": curve.turns[-1],
        "covariance": covariance,
        "variance": variance,
        "margin": None if covariance is None or variance is None else covariance - lam * variance / 2,
        "closer": curve.closer,
        "flips": float(np.mean(curve.flips)),
        "silent": curve.silent / len(curve.flips),
        "gap": curve.gap,
        "curve": [round(value, 5) for value in curve.success],
        "turn_curve": [round(value, 3) for value in curve.turns],
    }


def turns_at_equal_success(result: Result, a: str, b: str) -> Interval:
    """Return the turns of arm a less those of b, each when it first reaches the highest success both reach."""
    from rolecraft.measures import paired_bootstrap
    from rolecraft.systems.learning._key_door_learner import equal_success

    rows = {(row["arm"], row["seed"]): row for row in result.rows}
    gaps = []
    for seed in result.seeds:
        mine, other = rows[a, seed], rows[b, seed]
        here, there = equal_success(mine["curve"], other["curve"])
        gaps.append(mine["turn_curve"][here] - other["turn_curve"][there])
    return paired_bootstrap(gaps, result.seeds)


def verdict_grid(result: Result) -> Verdict:
    """Demand the gain, shorter successes and the noise sweep; the control is all segments labelled N."""
    gain = result.difference("auc", "triage", "grpo")
    gains = {arm: result.difference("auc", arm, "all-n") for arm in NOISE}
    margins = {arm: result.mean("margin", arm) for arm in NOISE}
    steps = [result.difference("auc", after, before) for before, after in zip(NOISE, list(NOISE)[1:], strict=False)]
    auc = {(row["arm"], row["seed"]): row["auc"] for row in result.rows}
    every = all(auc["triage", seed] > auc["grpo", seed] for seed in result.seeds)
    shorter = turns_at_equal_success(result, "triage", "grpo")
    same = max(row["gap"] for row in result.rows if row["arm"] == "all-n")
    return decide_grid(
        gain, every, shorter, gains, margins, steps, result.difference("auc", "all-n", "grpo"), same,
        note="; areas: " + ", ".join(f"{arm} {result.mean('auc', arm).estimate:.3f}" for arm in result.arms)
        + "; correlation with the true advantages gained: "
        + ", ".join(f"{arm} {result.mean('closer', arm).estimate:.3f}" for arm in NOISE),
    )  # fmt: skip


def decide_grid(
    gain: Interval,
    every: bool,
    shorter: Interval,
    gains: Mapping[str, Interval],
    margins: Mapping[str, Interval],
    steps: Sequence[Interval],
    control: Interval,
    same: float,
    note: str = "",
) -> Verdict:
    """Decide from the figures.

    Args:
        gain: Area of TRIAGE less GRPO's.
        every: Whether it is above 0 on every seed.
        shorter: Turns of TRIAGE less GRPO's at equal success.
        gains: Area less that of whitened GRPO (all labels N), by arm of the noise sweep: what the judge alone adds.
        margins: Cov(c, delta) less lam Var(c) / 2, likewise.
        steps: Change of the area from one rate of noise to the next.
        control: Area with all labels N less GRPO's.
        same: Largest difference between those advantages and whitened GRPO's, which must be none.
        note: For the reader.
    """
    falls = not any(step.low > 0 for step in steps) and sum(step.estimate for step in steps) < 0
    agree = all(
        (gains[arm].estimate > 0) == (margins[arm].estimate > 0)
        for arm in gains
        if gains[arm].excludes_zero and margins[arm].excludes_zero
    )
    crosses = agree and not list(gains.values())[-1].low > 0 and not list(margins.values())[-1].low > 0
    parts = {
        "gain above 0.3 on every seed": gain.low > 0.3 and every,
        "shorter at equal success": shorter.high < 0,
        "falls with noise": falls,
        "gain is lost where Cov(c, delta) = lam Var(c) / 2": crosses,
        "the control gains nothing like it": control.high < gain.low and same < 1e-9,
    }
    told = "; ".join(f"{'yes' if held else 'no'}: {part}" for part, held in parts.items())
    figures = ", ".join(f"{arm} {gains[arm]} ({margins[arm]})" for arm in gains)
    return Verdict.when(
        reproduced=all(parts.values()),
        inconclusive=gain.low <= 0.3 < gain.high,
        effect=gain,
        control=control,
        note=f"area under the success curve, TRIAGE less GRPO. {told}. Turns at equal success {shorter}; gain (and "
        f"margin of the covariance) over whitened GRPO by noise: {figures}{note}; control: every segment labelled N",
    )


# (b) Loops: where success is common, does finding regressions give most of the gain?

LOOP_ARMS = ("grpo", "triage", *ABLATIONS, "all-n")


@dataclass(frozen=True)
class LoopsConfig(GridConfig):
    """A policy that succeeds 70 % of the time but walks in circles is trained on."""

    walls: int = 4
    start: float = 0.7
    """Exact chance of success at the start."""
    updates: int = 80


def run_loops(config: LoopsConfig, store: RunStore) -> Result:
    """Train every arm from the same policy, once per seed."""
    from rolecraft.systems.learning._key_door_learner import soften

    for name, seed in missing_rows(store, LOOP_ARMS, config.seeds):
        tables = make_tables(config, seed)
        logits = soften(tables, config.start, config.horizon, seed)
        row = curve_row(_train(config, tables, name, seed, logits), config.lam)
        put_row(store, name, seed, shortest=tables.shortest, saved=1 - row["turns"] / row["turn_curve"][0], **row)
    return Result.read(store)


def verdict_loops(result: Result) -> Verdict:
    """Demand fewer turns than GRPO's, and that taking R out loses most of that, and more than taking out D or E."""
    gain = result.difference("turns", "grpo", "triage")
    lost = {role: result.difference("turns", f"no-{role}", "triage") for role in "rde"}
    most = _beyond(result, "no-r", "triage", "grpo")
    others = {role: result.difference("turns", "no-r", f"no-{role}") for role in "de"}
    return decide_loops(
        gain, most, lost, others, result.difference("turns", "grpo", "all-n"),
        note="; turns: " + ", ".join(f"{arm} {result.mean('turns', arm).estimate:.2f}" for arm in result.arms)
        + "; success: " + ", ".join(f"{arm} {result.mean('success', arm).estimate:.3f}" for arm in result.arms)
        + f"; TRIAGE's turns are {1 - result.ratio('turns', 'triage', 'grpo').estimate:.1%} below GRPO's (paper: 10.4% "
        f"and 14.8%); only R saves {result.difference('turns', 'grpo', 'only-r')}",
    )  # fmt: skip


def decide_loops(
    gain: Interval,
    most: Interval,
    lost: Mapping[str, Interval],
    others: Mapping[str, Interval],
    control: Interval,
    note: str = "",
) -> Verdict:
    """Decide from the turns of successful rollouts.

    Args:
        gain: GRPO's less TRIAGE's.
        most: What is lost without R, less half the gain.
        lost: What is lost without each role.
        others: What is lost without R, less what is lost without D and without E.
        control: GRPO's less those with all labels N.
        note: For the reader.
    """
    fewer = gain.low > 0 and control.high < gain.low
    dominant = most.low > 0 and all(each.low > 0 for each in others.values())
    without = ", ".join(f"{role.upper()} {interval}" for role, interval in lost.items())
    return Verdict.when(
        reproduced=fewer and dominant,
        inconclusive=gain.low <= 0 < gain.high or (most.low <= 0 < most.high and fewer),
        effect=gain,
        control=control,
        note=f"turns of successful rollouts, GRPO less TRIAGE; {'yes' if fewer else 'no'}: fewer turns; "
        f"{'yes' if dominant else 'no'}: most of it from R; lost without {without}; without R less half the gain "
        f"{most}{note}; control: every segment labelled N",
    )


def _beyond(result: Result, without: str, full: str, base: str) -> Interval:
    """Return what is lost without a role, less half of what all roles gain, paired by seed."""
    from rolecraft.measures import paired_bootstrap

    turns = {(row["arm"], row["seed"]): row["turns"] for row in result.rows}
    lost = [turns[without, seed] - (turns[full, seed] + turns[base, seed]) / 2 for seed in result.seeds]
    return paired_bootstrap(lost, result.seeds)


STUDIES = {
    "grid": (GridConfig, run_grid, verdict_grid),
    "loops": (LoopsConfig, run_loops, verdict_loops),
    "smollm2": SMOLLM2,
}
