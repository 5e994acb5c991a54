"""TRIAGE on a language model: replies are segments, and a rule gives each its role by the distance to the goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.systems._base import Result, Study, Verdict
from rolecraft.systems.learning._language_smoke import (
    Base,
    Log,
    contrast,
    decide,
    figures_of,
    health,
    held,
    part,
    run_arms,
)
from rolecraft.systems.learning._language_step import Taught, take_step
from rolecraft.systems.learning._room_smoke import RoomSmoke, load_rooms, make_trainer, take

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.credit import Stage
    from rolecraft.learning.trainer import Rows
    from rolecraft.worlds import Episode


@dataclass(frozen=True)
class SmokeConfig(RoomSmoke):
    """A language model walks through small rooms in its own words, and each reply is a segment."""

    NO_FULL = (
        "the paper trains Qwen2.5-7B on GPUs with Qwen3-8B as judge and reports, against GRPO, 87.5 / 79.6 on "
        "ALFWorld, 48.1 / 43.3 on Search-QA and 77.2 / 70.1 on WebShop; these benchmarks are not here; the call is "
        "triage_credit"
    )
    KNOWN: ClassVar[tuple[str, ...]] = ("grpo", "triage", "random", "all-n")
    NEEDED: ClassVar[tuple[str, ...]] = ("grpo", "triage", "random")
    arms: tuple[str, ...] = ("grpo", "triage", "random")
    """GRPO; TRIAGE; its control, whose roles are drawn at random. `all-n`: every role N, which is GRPO whitened."""
    model: str = "local:smollm2"
    """Paper: Qwen2.5-7B and Qwen3-1.7B, with Qwen3-8B as the judge. Here a rule judges, as in the study `grid`."""
    horizon: int = 5
    """Replies of an episode. Paper: not known to us."""
    group: int = 4
    """Episodes of a task. The study `grid`: 8."""
    lam: float = 0.5
    """Paper: tuned on the training split; the value is not known."""


def credit_rule(config: SmokeConfig, arm: str) -> list[Stage]:
    """Return an arm's stages."""
    from rolecraft.learning.credit import Group, make_rule

    return [Group(unit="traj")] if arm == "grpo" else make_rule({"name": "triage", "lam": config.lam})


def label(rows: Rows, episodes: Sequence[Episode], arm: str, rng: np.random.Generator) -> Rows:
    """Give every row the role of its reply as the column `label`, as an arm's judge sees it."""
    from rolecraft.learning import SEGMENT_ROLES, noisy_roles
    from rolecraft.systems.learning._spoken_door import judge_rows

    roles = judge_rows(rows, episodes)
    if arm == "random":
        roles = noisy_roles(roles, 1.0, rng)
    elif arm == "all-n":
        roles = np.full_like(roles, SEGMENT_ROLES.index("N"))
    return replace(rows, batch=replace(rows.batch, row={**rows.batch.row, "label": roles.astype(float)}))


def told_apart(taught: Taught) -> dict[int, float]:
    """Return, by episode with both, how much more likely replies that came nearer became than the others of it."""
    from rolecraft.learning import SEGMENT_ROLES
    from rolecraft.systems.learning._spoken_door import judge_rows

    nearer = judge_rows(taught.rows, taught.episodes) == SEGMENT_ROLES.index("D")
    good, other = (taught.by_episode(taught.pushed, where) for where in (nearer, ~nearer))
    return {traj: good[traj] - other[traj] for traj in good if traj in other}


def play(config: SmokeConfig, base: Base, arm: str, seed: int) -> Log:
    """Train an arm, and return its log."""
    trainer, log = make_trainer(config, "triage", base, credit_rule(config, arm), seed), Log()
    rng = np.random.default_rng(derive_seed("triage", seed, "labels"))
    for update in range(config.updates):
        taught = take_step(trainer, lambda rows, episodes: label(rows, episodes, arm, rng))
        take(log, update, taught)
        log.curve(flips=taught.credit.info.get("flip_rate", 0.0))
        for traj, value in told_apart(taught).items():
            log.unit(f"{update}/{traj}", apart=value)
    log.finish(trainer, config.evaluated, seed)
    return log


def run(config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm from the same adapter."""
    return run_arms(config, store, lambda config, seed: load_rooms(config, "triage", seed), play)


def verdict(result: Result) -> Verdict:
    """Demand that the first update tells replies of an episode apart by their role, and random roles do not.

    In the first update all arms have played the same episodes, so that only the credit differs.
    """
    first = part(result, "0")
    effect, control = (contrast(first, "apart", arm, "grpo") for arm in ("triage", "random"))
    claims = {
        **health(result, "triage"),
        "replies that came nearer gained on the others of their episode": held(effect),
        "more than with random roles": held(contrast(first, "apart", "triage", "random")),
    }
    return decide(
        claims, effect, control, contrast(part(result, "final"), "reward", "triage", "grpo"),
        "log-probability that replies which came nearer to the goal gained on the others of their episode in the first "
        "update, TRIAGE less GRPO; control: random roles; of TRIAGE: "
        + figures_of(result, "triage", "format", "nearer", "dead", "flips", "entropy", "followed"),
    )  # fmt: skip


SMOLLM2 = Study(SmokeConfig, run, verdict)
