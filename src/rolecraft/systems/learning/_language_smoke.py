"""What the smoke studies on a language model share: the model with its adapters, arms, curves, and the verdict.

A smoke study runs a system's own rule on the system's own world as text, with adapters on the embedded model, for a
few updates. It shows that the mechanism runs and does to a language model what it says. Whether the system then learns
better takes the paper's size, so that the gain in reward is as a rule not settled here, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import Result, StudyConfig, Verdict, missing_rows, put_row, row_key
from rolecraft.systems.learning._language_step import Taught, distinct_share, products

if TYPE_CHECKING:
    from torch import Tensor

    from rolecraft._run import RunStore
    from rolecraft.learning.policy import Reply, TokenPolicy
    from rolecraft.learning.trainer import TrainConfig, Trainer
    from rolecraft.measures import Interval
    from rolecraft.models import LocalModel

CURVES = "curves"
FINAL = "final"
"""Prefix of the units of episodes after training."""


@dataclass(frozen=True)
class LanguageSmoke(StudyConfig):
    """Sizes that all smoke studies have.

    Raises:
        UserError: If an arm is unknown, one that the verdict needs is left out, or a size leaves nothing to train.
    """

    KNOWN: ClassVar[tuple[str, ...]] = ()
    """Arms."""
    NEEDED: ClassVar[tuple[str, ...]] = ()
    """Arms of the verdict: the method, its baseline, its control."""
    seeds: tuple[int, ...] = (11,)
    arms: tuple[str, ...] = ()
    model: str = "local:smollm2"
    device: str = "cpu"
    dtype: Literal["auto", "float32", "bfloat16"] = "float32"
    """Of the frozen weights. Half precision takes two thirds of the time, and moves a log-probability by 0.1 or more,
    which is as much as an update does."""
    rank: int = 8
    """Of the adapters; 0: all weights are trained."""
    blocks: int = 8
    """Last decoder blocks that are adapted; 0: all."""
    imitated: int = 12
    """Steps of imitation of well-formed replies with random content before the training; 0: none."""
    imitation_lr: float = 2e-3
    updates: int = 2
    episodes: int = 8
    """Per update."""
    lr: float = 5e-4
    """Of the adapters."""
    max_tokens: int = 24
    """Of a reply."""
    micro: int = 16
    """Rows per forward pass."""
    evaluated: int = 8
    """Episodes after training, the same starts in every arm."""

    def __post_init__(self) -> None:
        """Refuse what cannot be run or judged."""
        for arm in self.arms:
            if arm not in self.KNOWN:
                raise UserError(f"arms: {arm!r} is none of {', '.join(self.KNOWN)}.{did_you_mean(arm, self.KNOWN)}")
        missing = [arm for arm in self.NEEDED if arm not in self.arms]
        if missing:
            raise UserError(f"arms: the verdict needs {', '.join(self.NEEDED)}; {', '.join(missing)} is left out.")
        least = {name: getattr(self, name) for name in ("updates", "episodes", "max_tokens", "micro", "evaluated")}
        if min(least.values()) < 1 or min(self.rank, self.blocks, self.imitated) < 0:
            given = ", ".join(f"{name} {value}" for name, value in least.items())
            raise UserError(
                f"expected {', '.join(least)} of at least 1, and rank, blocks and imitated of at least 0, got {given}, "
                f"rank {self.rank}, blocks {self.blocks} and imitated {self.imitated}."
            )


# The model


def load_policies(
    spec: str,
    names: Sequence[str],
    *,
    rank: int,
    blocks: int = 0,
    device: str = "cpu",
    dtype: Literal["auto", "float32", "bfloat16"] = "auto",
    seed: int = 0,
    **options: Any,
) -> dict[str, TokenPolicy]:
    """Load a language model with an adapter of its own for each name, or, at rank 0, as one that is trained whole.

    Args:
        spec: `local:smollm2` or `local:PATH`.
        names: Of the policies.
        rank: Of the adapters.
        blocks: Last decoder blocks that are adapted; 0: all.
        device: Where it runs.
        dtype: Of frozen weights; a model that is trained whole has float32.
        seed: Of the adapters.
        options: Such as `temperature`, `max_tokens` and `critic`.

    Raises:
        UserError: If several policies are to be trained whole, or there are not so many blocks.
    """
    from rolecraft.learning.policy import lora_policies, model_policy
    from rolecraft.models import _load

    if rank:
        model = _load.load_local(spec, device=device, dtype=dtype)
        return lora_policies(model, names, rank=rank, blocks=last_blocks(model, blocks), seed=seed, **options)
    if len(names) > 1:
        raise UserError(f"rank: {len(names)} policies share one model, so each needs an adapter; set rank above 0.")
    return {names[0]: model_policy(_load.load_local(spec, dtype="float32", device=device), **options)}


def last_blocks(model: LocalModel, count: int) -> range | None:
    """Return the numbers of a model's last decoder blocks; None, which is all, for 0.

    Raises:
        UserError: If there are not so many.
    """
    sites = model.n_sites
    if count > sites:
        raise UserError(f"blocks: {model.name} has {sites}, got {count}; 0 is all of them.")
    return range(sites - count, sites) if count else None


def weights_of(policy: TokenPolicy) -> dict[str, Tensor]:
    """Return a copy of what is trained."""
    return {name: each.detach().clone() for name, each in policy.parameters().items()}


def teach_form(policy: TokenPolicy, start: Mapping[str, Any], rows: Sequence[Reply], **options: Any) -> dict[str, Any]:
    """Teach a policy the form of replies from some weights on, and return its weights then.

    Args:
        policy: Changed in place.
        start: Weights to begin with.
        rows: Prompts and replies.
        options: Of `rolecraft.learning.fit_replies`; with `steps=0` nothing is learnt.
    """
    from rolecraft.learning import fit_replies

    policy.load(start)
    if options["steps"]:
        fit_replies(policy, rows, **options)
    return weights_of(policy)


@dataclass(frozen=True)
class Base:
    """The policies of a seed, and the weights from which every arm starts."""

    policies: Mapping[str, TokenPolicy]
    start: Mapping[str, Mapping[str, Tensor]]

    @classmethod
    def load(
        cls,
        config: LanguageSmoke,
        system: str,
        seed: int,
        names: Sequence[str] = ("policy",),
        form: Callable[[TokenPolicy], Sequence[Reply]] | None = None,
        **options: Any,
    ) -> Base:
        """Load the model, and let each policy imitate the form of replies.

        Args:
            config: Sizes.
            system: Whose study it is; decides the draws.
            seed: Likewise.
            names: Of the policies.
            form: From a policy to well-formed replies; None: there is nothing to imitate.
            options: Such as `critic`.
        """
        policies = load_policies(
            config.model, names, rank=config.rank, blocks=config.blocks, device=config.device, dtype=config.dtype,
            seed=derive_seed(system, seed, "adapter") % 2**31, max_tokens=config.max_tokens, **options,
        )  # fmt: skip
        start = {}
        for name, policy in policies.items():
            rows, steps = form(policy) if form else (), config.imitated if form else 0
            start[name] = teach_form(
                policy, weights_of(policy), rows, steps=steps, lr=config.imitation_lr, batch=8,
                seed=derive_seed(system, seed, "form") % 2**31,
            )  # fmt: skip
        return cls(policies, start)

    @property
    def policy(self) -> TokenPolicy:
        """The only policy."""
        (found,) = self.policies.values()
        return found

    def restore(self) -> None:
        """Put all policies back to where every arm starts."""
        for name, policy in self.policies.items():
            policy.load(self.start[name])

    def moved(self) -> dict[str, float]:
        """Return how far each policy's weights are from their start: root of the mean square; NaN if one is NaN."""
        found = {}
        for name, policy in self.policies.items():
            gaps = [(each.detach() - self.start[name][key]).flatten() for key, each in policy.parameters().items()]
            found[name] = float(np.sqrt(np.mean(np.concatenate([gap.double().cpu().numpy() for gap in gaps]) ** 2)))
        return found


def train_plan(config: LanguageSmoke, **changes: Any) -> TrainConfig:
    """Return what a trainer is told: the study's sizes, and no stop at a collapse, which the curves show."""
    from rolecraft.learning.trainer import MonitorConfig, TrainConfig

    sizes = {"iterations": config.updates, "episodes": config.episodes, "lr": config.lr, "micro": config.micro}
    return TrainConfig(**{**sizes, "rescore": False, "monitor": MonitorConfig(action="off"), **changes})


# Arms


@dataclass
class Log:
    """What an arm leaves behind: curves by update, and figures of single episodes."""

    curves: dict[str, list[float]] = field(default_factory=dict)
    units: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metrics by unit, such as `0/3` for the fourth episode of the first update."""
    trained: set[str] = field(default_factory=set)
    """Policies that got credit."""

    def curve(self, **figures: float | np.floating[Any]) -> None:
        """Add a point to curves."""
        for name, value in figures.items():
            self.curves.setdefault(name, []).append(float(value))

    def unit(self, unit: str, **metrics: float | np.floating[Any]) -> None:
        """Add metrics of a unit."""
        self.units.setdefault(unit, {}).update({name: float(value) for name, value in metrics.items()})

    def take(self, update: int, taught: Taught) -> None:
        """Take in an update: rewards, the collapse monitors, and whether replies went where their credit pushed."""
        figures = taught.figures
        said = [turn.action for turn in taught.rows.turns]
        named = {name: [float(v) for k, v in figures.items() if k.endswith(name)] for name in ("entropy", "grad_norm")}
        self.curve(
            reward=figures["outcome"], length=figures["length"], advantage_square=figures["advantage_square"],
            silent=bool(taught.credit.info["no_signal"]), distinct2=distinct_share(said),
            repeated=1 - len(set(said)) / len(said), **{name: np.mean(found or [0.0]) for name, found in named.items()},
        )  # fmt: skip
        told = (taught.credit.advantages != 0).any(1)
        self.trained |= {name for name, each in zip(taught.rows.policies, told, strict=True) if each}
        followed = products(taught.advantage, taught.pushed)
        rewards = taught.rows.batch.row["outcome"]
        for metric, values in (("reward", rewards), ("followed", followed)):
            for traj, value in taught.by_episode(values).items():
                self.unit(f"{update}/{traj}", **{metric: value})

    def finish(self, trainer: Trainer, count: int, seed: int, agents: Sequence[str] = ()) -> None:
        """Play fresh episodes, each from a start of its own, the same in every arm.

        Args:
            trainer: Of the arm.
            count: Episodes.
            seed: Of the starts.
            agents: Whose rewards are averaged; none: everybody's.
        """
        from rolecraft.learning.trainer import Start

        starts = [Start(0, n, derive_seed("language-smoke", seed, FINAL, n), 0) for n in range(count)]
        for number, episode in enumerate(trainer.collect(starts)):
            paid = [episode.rewards[agent] for agent in agents or episode.rewards]
            self.unit(f"{FINAL}/{number}", reward=float(np.mean(paid)))


def run_arms(
    config: LanguageSmoke,
    store: RunStore,
    load: Callable[[Any, int], Base],
    play: Callable[[Any, Base, str, int], Log],
) -> Result:
    """Train every arm of a seed from the same weights; rows by arm and episode, the row of the arm last.

    Args:
        config: Sizes and arms.
        store: Keeps curves and rows.
        load: Makes the policies of a seed.
        play: Trains an arm, and returns its log.
    """
    for seed, arms in _by_seed(missing_rows(store, config.arms, config.seeds)):
        base = load(config, seed)
        for arm in arms:
            base.restore()
            log = play(config, base, arm, seed)
            store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, **log.curves})
            for unit, metrics in log.units.items():
                put_row(store, arm, seed, f"{seed}:{unit}", **metrics)
            moved = base.moved()
            means = {name: float(np.mean(values)) for name, values in log.curves.items() if name != "reward"}
            put_row(
                store, arm, seed, updates=len(log.curves["reward"]),
                moved=min([moved[name] for name in log.trained], default=None),
                finite=bool(np.isfinite([*means.values(), *moved.values()]).all()), **means,
            )  # fmt: skip
    return Result.read(store)


def _by_seed(pairs: Sequence[tuple[str, int]]) -> Iterator[tuple[int, list[str]]]:
    for seed in dict.fromkeys(seed for _, seed in pairs):
        yield seed, [arm for arm, own in pairs if own == seed]


# The verdict


def held(interval: Interval, above: float = 0.0) -> bool | None:
    """Return whether an interval lies above a bound; None if it holds the bound or has no ends."""
    return True if interval.low > above else False if interval.high <= above else None


def average(result: Result, metric: str, arm: str) -> Interval:
    """Return the mean of a metric over units; without any, an interval of nothing, whose claim stays open."""
    return _or_nothing(lambda: result.mean(metric, arm))


def contrast(result: Result, metric: str, a: str, b: str) -> Interval:
    """Return the mean of a - b over units that both have; without any, an interval of nothing."""
    return _or_nothing(lambda: result.difference(metric, a, b))


def _or_nothing(find: Callable[[], Interval]) -> Interval:
    from rolecraft.measures import Interval

    try:
        return find()
    except UserError:  # no unit has the metric: there was nothing to compare
        return Interval(float("nan"), float("nan"), float("nan"), 0)


def part(result: Result, prefix: str) -> Result:
    """Return the rows of some units, by what follows the seed: `final` or the number of an update."""
    return Result(tuple(row for row in result.rows if str(row.get("unit", "")).split(":")[-1].startswith(f"{prefix}/")))


def health(result: Result, method: str) -> dict[str, bool | None]:
    """Return what every smoke study claims: arms ran on finite numbers, adapters moved, replies followed their credit.

    Args:
        result: All rows.
        method: The arm whose replies are looked at.
    """
    whole = [row for row in result.rows if row.get("unit") is None]
    told = [row for row in whole if row["moved"] is not None]
    ran = len({(row["arm"], row["seed"]) for row in whole}) == len(result.arms) * len(result.seeds)
    return {
        "all arms ran, on finite numbers": ran and all(row["finite"] for row in whole),
        "every adapter moved that got credit": bool(told) and all(row["moved"] > 0 for row in told),
        "replies moved where their credit pushed them": held(average(result, "followed", method)),
    }


def decide(
    claims: Mapping[str, bool | None],
    effect: Interval,
    control: Interval | None,
    gain: Interval,
    note: str,
) -> Verdict:
    """Decide a smoke study.

    Reproduced takes the gain in reward as well, whose interval a few updates hardly settle: then it is inconclusive. A
    claim about the mechanism that fails is "not reproduced", whatever else held.

    Args:
        claims: About the mechanism; None: open.
        effect: The rule's own quantity.
        control: The same on the control.
        gain: Reward of the method less its baseline's.
        note: What the effect is, and other figures.
    """
    words = {True: "yes", False: "no", None: "open"}
    told = "; ".join(f"{words[each]}: {claim}" for claim, each in claims.items())
    text = f"{note}. {told}. Reward, method less baseline: {gain}"
    if False in claims.values():
        return Verdict("not reproduced", effect, control, text)
    if all(claims.values()) and gain.low > 0:
        return Verdict("reproduced", effect, control, text)
    return Verdict("inconclusive", effect, control, text + "; so few updates show that the rule runs, and no more")


def figures_of(result: Result, arm: str, *metrics: str) -> str:
    """Return the means of some metrics in an arm, for a note."""
    return ", ".join(f"{name} {average(result, name, arm).estimate:.3g}" for name in metrics)
