"""DoC: conditioning on what can be controlled, and not on luck (Dichotomy of Control, arXiv 2210.13435).

Exact: a latent of the future given which the environment's outcomes tell nothing new (mutual information given history
and action at 0), prior, value, choice of the latent that promises most, the tables of the bandit (straight-through
categorical latent of A * R values, energies, negatives weighted by the data's outcomes); every policy's return is
computed, not sampled. The parts are `control.TabularDoC`, `control.DoC` and `control.conditional_bound`.
Adapted: a min-max (the energies climb the bound, the encoder descends it), since the published code lets both minimise
the contrastive loss, which raises the information; that is kept as the arm `as-released`. Networks that sum over steps
(deep sets) for the transformer, as FrozenLake is Markov; the negatives' law is the empirical P(s' | s, a), summed
exactly; weights of the information above the code's 1 (see the configurations). Behaviour cloning and the
return-conditioned arm `dt` are counts, the limit that a network of any size converges to.
The control: where nothing is left to luck (slip 0, arms that pay always or never) no arm may have a gap.
Small: `rolecraft systems run doc --study bandit`, and `frozen-lake`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, put_row, row_key

if TYPE_CHECKING:
    import numpy as np

    from rolecraft._run import RunStore

SYSTEM = System(
    number=40,
    name="doc",
    title="Dichotomy of Control: Separating What You Can Control from What You Cannot",
    arxiv="2210.13435",
    family="control",
    claim="conditioning on a latent without information about luck keeps its promise and acts well in stochastic "
    "worlds, where conditioning on returns gambles; in deterministic worlds both do the same",
    published="significantly above the decision transformer in a Bernoulli bandit, slippery FrozenLake and MuJoCo with "
    "noise, and equal to it without noise; the paper's tables hold no figure for our sizes",
)
NO_MUJOCO = "the paper's largest tasks need its own data of MuJoCo with noise, which is not public"
LUCKY, CERTAIN = "lucky", "certain"
"""Worlds: outcomes left to luck, and the control in which none are."""
LATENT_ARMS = ("vae", "doc", "as-released")
CLOSED = 0.1
"""A mean gap below this is closed."""
LEAK, COLLAPSE = 0.05, 0.02
"""Nats: a latent that tells more of luck leaks; one that tells less of the action (or whose KL is less) is ignored."""


@dataclass(frozen=True)
class BanditConfig(StudyConfig):
    """Two arms; the worse one makes up most of the data."""

    NO_FULL: ClassVar[str] = NO_MUJOCO
    seeds: tuple[int, ...] = tuple(range(20))
    good: float = 0.8
    """How often the better arm, A, pays."""
    bad: float = 0.2
    """How often the worse arm, B, pays."""
    share: float = 0.9
    """Of B in the data."""
    episodes: int = 1000
    """Paper: 1000."""
    updates: int = 3000
    weight: float = 5.0
    """Of the information. Paper's code: 1, at which the value's loss pays exactly what the information costs."""

    def __post_init__(self) -> None:
        """Refuse arms that give nothing to learn."""
        if not (0 < self.bad < self.good < 1 and 0 < self.share < 1):
            raise UserError(
                f"expected 0 < bad < good < 1 and share in (0, 1), got {self.bad}, {self.good} and {self.share}."
            )
        if min(self.episodes, self.updates) < 1 or self.weight <= 0:
            raise UserError("episodes and updates must be at least 1 and weight above 0.")

    def success(self, world: str) -> tuple[float, float]:
        """Return how often A and B pay."""
        return (self.good, self.bad) if world == LUCKY else (1.0, 0.0)


def bandit_data(config: BanditConfig, world: str, seed: int) -> np.ndarray[Any, Any]:
    """Return the empirical P(arm, outcome) of a seed's episodes, (2, 2)."""
    import numpy as np

    rng = np.random.default_rng(derive_seed("doc", seed, "bandit", world))
    arm = (rng.random(config.episodes) < config.share).astype(int)
    paid = (rng.random(config.episodes) < np.array(config.success(world))[arm]).astype(int)
    joint = np.zeros((2, 2))
    np.add.at(joint, (arm, paid), 1 / config.episodes)
    return joint


def run_bandit(config: BanditConfig, store: RunStore) -> Result:
    """Fit all seeds of an arm at once; a row has what is promised and what is got, per world."""
    import jax
    import numpy as np

    from rolecraft.control._doc_bandit import TabularDoC, choose, return_posterior

    models = {
        "vae": TabularDoC(weight=0.0, updates=config.updates),
        "doc": TabularDoC(weight=config.weight, updates=config.updates),
        "as-released": TabularDoC(mode="as_released", weight=1.0, updates=config.updates),
    }
    for world in (LUCKY, CERTAIN):
        success = np.array(config.success(world))
        joints = {seed: bandit_data(config, world, seed) for seed in config.seeds}
        for seed, joint in joints.items():
            bayes = return_posterior(success, [1 - config.share, config.share])
            mean = float(joint[:, 1].sum())
            for arm, policy, promise in (("bc", joint.sum(1), mean), ("dt", joint[:, 1] / mean, 1.0)):
                got = float(policy @ success)
                put_row(
                    store, arm, seed, world, good=float(policy[0]), promised=promise, achieved=got,
                    gap=abs(got - promise), bayes_good=float(bayes[0]),
                )  # fmt: skip
        for arm, model in models.items():
            keys = {row_key(arm, seed, world): seed for seed in config.seeds}
            todo = [keys[key] for key in store.missing(ROWS, keys)]
            if not todo:
                continue
            tables = model.fit([joints[seed] for seed in todo], [derive_seed("doc", s, arm) % 2**31 for s in todo])
            for i, seed in enumerate(todo):
                found = choose(jax.tree.map(lambda leaf, i=i: leaf[i], tables), joints[seed])
                got = float(found.policy @ success)
                put_row(
                    store, arm, seed, world, good=float(found.policy[0]), promised=found.value, achieved=got,
                    gap=abs(got - found.value), information=found.information, used=found.used,
                    leaks=found.information > LEAK, collapsed=found.used < COLLAPSE,
                )  # fmt: skip
    return Result.read(store)


def world_of(result: Result, world: str) -> Result:
    """Return the rows of one world, without the world as their unit: seeds are what is resampled."""
    return Result(
        tuple(
            {name: value for name, value in row.items() if name != "unit"}
            for row in result.rows
            if row["unit"] == world
        )
    )


def _latents(result: Result) -> str:
    """Say what the latents hold, and which of them leak or are ignored."""
    said = []
    for arm in LATENT_ARMS:
        rows = [row for row in result.rows if row["arm"] == arm]
        if rows:
            flags = [f"{sum(row[flag] for row in rows)} of {len(rows)} {word}" for flag, word in
                     (("leaks", "leak"), ("collapsed", "collapsed"))]  # fmt: skip
            said.append(f"{arm} {result.mean('information', arm)} nats of luck ({', '.join(flags)})")
    return "; ".join(said)


def verdict_bandit(result: Result) -> Verdict:
    """Demand that DoC gets more than DT and has the smaller gap, and that without luck neither has a gap.

    DoC must choose A with the lower bound of its mean probability above 1/2, and DT with the upper bound below 1/2, as
    Bayes' rule says.
    """
    lucky, certain = world_of(result, LUCKY), world_of(result, CERTAIN)
    effect = lucky.difference("achieved", "doc", "dt")
    gaps = lucky.difference("gap", "dt", "doc")
    control = certain.mean("gap", "dt")
    quiet = control.high < CLOSED and certain.mean("gap", "doc").high < CLOSED
    right = lucky.mean("good", "doc").low > 0.5 > lucky.mean("good", "dt").high
    bayes = lucky.mean("bayes_good", "dt").estimate
    return Verdict.when(
        reproduced=effect.low > 0 and gaps.low > 0 and quiet and right,
        inconclusive=quiet and effect.low <= 0 <= effect.high,
        effect=effect,
        control=control,
        note="return, doc (min-max) less dt; control: dt's gap where nothing is left to luck; P(A): "
        + ", ".join(f"{arm} {lucky.mean('good', arm)}" for arm in lucky.arms)
        + f" (Bayes' rule says {bayes:.3f} for dt); gaps: "
        + ", ".join(f"{arm} {lucky.mean('gap', arm)}" for arm in lucky.arms)
        + f"; {_latents(lucky)}",
    )


@dataclass(frozen=True)
class FrozenLakeConfig(StudyConfig):
    """The 4 x 4 lake, dry and slippery; part of the data follows the plan."""

    NO_FULL: ClassVar[str] = NO_MUJOCO
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    slip: float = 1 / 3
    """Probability of each side in the lucky world; Gymnasium's slippery lake. The other world has 0."""
    alpha: float = 0.5
    """Share of the plan in the data, the rest being any action. Paper: a sweep."""
    mixture: str = "episode"
    """`episode`: a share of the episodes follows the plan throughout, so that they differ in something that can be
    controlled; `step`: every step is the plan's with that probability, so that all episodes come from one policy, and a
    latent without luck has only single actions to hold."""
    episodes: int = 1000
    """Paper: 100 of 100 steps."""
    horizon: int = 50
    """Steps per episode at most. Paper: 100."""
    updates: int = 1000
    """Paper: 10000."""
    information: float = 10.0
    """Weight of the information. Paper's code: 1; it must outweigh what knowing the return saves the value."""
    samples: int = 100
    """Latents drawn from the prior, of which the one that promises most is taken. Paper: 100."""
    released: bool = False
    """Run the arm `as-released` as well."""

    def __post_init__(self) -> None:
        """Refuse a world without luck, and sizes that leave nothing."""
        if not 0 < self.slip <= 0.5 or not 0 < self.alpha < 1:
            raise UserError(f"expected slip in (0, 1/2] and alpha in (0, 1), got {self.slip} and {self.alpha}.")
        if self.mixture not in ("episode", "step"):
            raise UserError(f"mixture: expected 'episode' or 'step', got {self.mixture!r}.")
        if min(self.episodes, self.horizon, self.updates, self.samples) < 1 or self.information <= 0:
            raise UserError("episodes, horizon, updates and samples must be at least 1 and information above 0.")

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms with a latent."""
        return LATENT_ARMS if self.released else LATENT_ARMS[:2]


def run_frozen_lake(config: FrozenLakeConfig, store: RunStore) -> Result:
    """Fit all seeds of an arm at once; a row has success and gap per world, all of them exact returns."""
    from rolecraft.systems.control._doc_lake import count_rows, fit_rows, lake_data

    for world, slip in ((LUCKY, config.slip), (CERTAIN, 0.0)):
        mdp, episodes = lake_data(config, world, slip)
        for seed, data in episodes.items():
            for arm, figures in count_rows(config, mdp, data).items():
                put_row(store, arm, seed, world, **figures)
        for arm in config.arms:
            keys = {row_key(arm, seed, world): seed for seed in config.seeds}
            todo = [keys[key] for key in store.missing(ROWS, keys)]
            for seed, figures in fit_rows(config, arm, mdp, {seed: episodes[seed] for seed in todo}).items():
                flags = {"leaks": figures["information"] > LEAK, "collapsed": figures["kl"] < COLLAPSE}
                put_row(store, arm, seed, world, **figures, **flags)
    return Result.read(store)


def verdict_frozen_lake(result: Result) -> Verdict:
    """Demand the order doc > vae and dt >= bc in success, and gaps that come from luck.

    On the slippery lake DoC succeeds more than DT and the latent without constraint, DT no less than cloning, and DT's
    gap exceeds DoC's; on the dry lake DT's gap is closed and DoC loses less than `CLOSED` of success against DT.
    """
    lucky, certain = world_of(result, LUCKY), world_of(result, CERTAIN)
    order = [lucky.difference("achieved", a, b) for a, b in (("doc", "dt"), ("doc", "vae"), ("dt", "bc"))]
    gaps = lucky.difference("gap", "dt", "doc")
    control = certain.mean("gap", "dt")
    lost = certain.difference("achieved", "dt", "doc")
    quiet = control.high < CLOSED and lost.high < CLOSED
    right = order[0].low > 0 and order[1].low > 0 and order[2].high >= 0
    return Verdict.when(
        reproduced=right and gaps.low > 0 and quiet,
        inconclusive=quiet and gaps.low > 0 and min(order[0].high, order[1].high) > 0 and not right,
        effect=gaps,
        control=control,
        note="gap between promise and return on the slippery lake, dt less doc (min-max, weight of the information as "
        "configured); control: dt's gap on the dry lake; success, slippery: "
        + ", ".join(f"{arm} {lucky.mean('achieved', arm)}" for arm in lucky.arms)
        + f"; doc less dt {order[0]}, doc less vae {order[1]}, dt less bc {order[2]}; gaps: "
        + ", ".join(f"{arm} {lucky.mean('gap', arm)}" for arm in lucky.arms)
        + f"; dry lake, dt's success less doc's {lost}; {_latents(lucky)}",
    )


STUDIES = {
    "bandit": (BanditConfig, run_bandit, verdict_bandit),
    "frozen-lake": (FrozenLakeConfig, run_frozen_lake, verdict_frozen_lake),
}
