"""VDN: a team's value as the sum of its agents' values, learnt from the team's reward alone (arXiv 1706.05296).

Exact: each agent's recurrent Q-network on its own history, their sum fitted to the team's reward (no agent's own reward
is used), targets from each agent's own argmax; weight sharing with role information; the low and high information
channels; the baselines, independent learners on the team's reward and one centralised learner with |A|^n outputs; the
three games' rules. The parts are `marl.QLearner`, `marl.TeamQ` and `marl.joint_env`.
Adapted: small maps of our own; a GRU for the LSTM, whole episodes for truncated backpropagation, double Q-learning, and
more frequent fits, so that some 1,500 episodes do instead of 50,000 and three seeds fit on one core.
Added: the lazy-agent index (the smallest share of one agent in the events that cause reward), a team that draws its
actions, above which VDN must come, and a control whose role ids are dealt out at random in each episode: they tell
nothing, so they must not help.
Small: `rolecraft systems run vdn --study checkers`, `switch` and `fetch`. Watch a team with
`rolecraft show RUN --checkpoint -1 --episode vdn-role`, or write a picture with `--export team.gif`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.marl import QConfig

SYSTEM = System(
    number=59,
    name="vdn",
    title="Value-Decomposition Networks For Cooperative Multi-Agent Learning",
    arxiv="1706.05296",
    family="marl",
    claim="a team that learns a sum of its agents' values learns faster than independent learners and than one "
    "centralised learner, whose agents grow lazy; shared weights need role information",
    published="over 50,000 episodes of three two-agent games, value decomposition has the larger normalised area under "
    "the learning curve than independent and centralised learners in all of them; best with weight sharing, role "
    "information and information channels (figures in plots only)",
)

CURVES = "curves"
ARMS: dict[str, dict[str, Any]] = {
    "iql": {"mixer": "independent", "share": False, "roles": "none"},
    "central": {"mixer": "independent", "roles": "none"},
    "vdn": {"mixer": "vdn", "share": False, "roles": "none"},
    "vdn-shared": {"mixer": "vdn", "roles": "none"},
    "vdn-role": {"mixer": "vdn", "roles": "agent"},
    "vdn-scrambled": {"mixer": "vdn", "roles": "agent", "scramble": True},
    "vdn-channels": {"mixer": "vdn", "roles": "agent", "channels": ("low", "high")},
}
"""The arms and what is particular to them; `central` learns in the joined world."""
CONTROL = "vdn-scrambled"
RANDOM = "random"
"""A team that draws its actions: what is above it was learned."""
NEEDED = ("iql", "central", "vdn", "vdn-shared", "vdn-role", CONTROL, RANDOM)
"""Arms that the verdict compares."""
LATE = 3
"""Part of the tests, the last 1 / LATE, from which the lazy-agent index is taken."""


@dataclass(frozen=True)
class Config(StudyConfig):
    """What the three games have in common."""

    GAME: ClassVar[str] = ""
    BOUND: ClassVar[float] = 1.0
    """A return that no team can exceed; the area under the curve is given as a part of it."""
    ROLES_MATTER: ClassVar[bool] = False
    """The verdict asks that role ids do not hurt: where the roles' rewards differ."""
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 60_000
    """Of the world. Paper: 50,000 episodes."""
    tests: int = 20
    """Evaluations that make the learning curve."""
    test_episodes: int = 32
    hidden: int = 32
    """Paper: 32."""
    lr: float = 1e-3
    """Paper: 1e-4."""
    gamma: float = 0.99
    """Paper: 0.99."""
    lam: float = 0.8
    """Of the traces' forward view. Paper: 0.9."""
    fits: int = 8
    """Gradient steps after eight stretches of play; with 2, development runs hardly learned Checkers."""
    buffer: int = 400
    """Stretches of one horizon in the replay."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Which arms are trained; without one that the verdict needs it stays inconclusive."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare, and arms that are none."""
        if self.tests < LATE:
            raise UserError(f"tests must be at least {LATE}, got {self.tests}.")
        if not self.arms:
            raise UserError(f"arms: expected some of {', '.join(ARMS)}.")
        if unknown := [arm for arm in self.arms if arm not in ARMS]:
            raise UserError(
                f"there is no arm {unknown[0]!r}; expected some of {', '.join(ARMS)}.{did_you_mean(unknown[0], ARMS)}"
            )

    @classmethod
    def full(cls) -> Self:
        """Return the paper's length, about 50,000 episodes; hours on one core."""
        return cls(seeds=tuple(range(10)), steps=2_000_000, tests=100, lr=1e-4, lam=0.9, buffer=5000)

    def learner(self, arm: str) -> QConfig:
        """Return an arm's settings.

        Raises:
            UserError: If a setting is out of range.
        """
        from rolecraft.marl import QConfig

        return QConfig(
            **ARMS[arm], steps=self.steps, tests=self.tests, test_episodes=self.test_episodes, hidden=self.hidden,
            lr=self.lr, gamma=self.gamma, lam=self.lam, fits=self.fits, buffer=self.buffer,
        )  # fmt: skip


@dataclass(frozen=True)
class CheckersConfig(Config):
    """A sensitive and a less sensitive agent among apples and lemons."""

    GAME: ClassVar[str] = "checkers"
    BOUND: ClassVar[float] = 6.0
    """Six apples, all for the sensitive agent, and no lemon."""
    ROLES_MATTER: ClassVar[bool] = True


@dataclass(frozen=True)
class SwitchConfig(Config):
    """Two rooms and a corridor in which the agents meet."""

    GAME: ClassVar[str] = "switch"
    BOUND: ClassVar[float] = 2.0
    """Both arrive."""


@dataclass(frozen=True)
class FetchConfig(Config):
    """Pick up and deliver, best done in turns."""

    GAME: ClassVar[str] = "fetch"
    BOUND: ClassVar[float] = 59.0
    """One item at a time over seven cells, and one more pick-up at the start: see the test."""


def run(config: Config, store: RunStore) -> Result:
    """Train every arm from all missing seeds at once; a row has the area under the curve and who did the work."""
    import warnings

    import numpy as np

    from rolecraft.marl import RoleWarning, train_kept

    missing = missing_rows(store, config.arms, config.seeds)
    for arm in dict.fromkeys(arm for arm, _ in missing):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RoleWarning)  # `vdn-shared` is the arm that is not told
            metrics = train_kept(
                store.directory, arm, config.GAME, config.learner(arm), config.seeds, joint=arm == "central"
            )
        late = max(1, config.tests // LATE)
        for at, seed in enumerate(config.seeds):
            if (arm, seed) not in missing:
                continue
            returns = metrics["return"][:, at]
            work = metrics["events"][-late:, at].mean(0)
            curve = {name: values[:, at].tolist() for name, values in metrics.items() if values.ndim == 2}
            store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, **curve})
            put_row(
                store, arm, seed,
                auc=float(returns.mean() / config.BOUND),
                late=float(returns[-late:].mean()),
                lazy=float(work.min() / work.sum()) if work.sum() > 0 else 0.0,
                **{f"events_{i}": float(count) for i, count in enumerate(work)},
                loss=float(np.mean(metrics["loss"][-late:, at])),
            )  # fmt: skip
    if unknown := [seed for _, seed in missing_rows(store, [RANDOM], config.seeds)]:
        _play_at_random(config, store, unknown)
    return Result.read(store)


def _play_at_random(config: Config, store: RunStore, seeds: Sequence[int]) -> None:
    """Put a row per seed of a team that draws its actions: as many episodes as the last tests of an arm have."""
    import jax

    from rolecraft.marl import QLearner, evaluate, team_env

    learner = QLearner(team_env(config.GAME), config.learner("vdn"))
    episodes = max(1, config.tests // LATE) * config.test_episodes

    @jax.jit
    def play(key: Any) -> Any:
        first, games = jax.random.split(key)
        return evaluate(learner.env, learner.policy(learner.init(first).params, epsilon=1.0), games, episodes)

    for seed in seeds:
        played = play(jax.random.PRNGKey(derive_seed("vdn", RANDOM, seed) % 2**32))
        mean, work = float(played.returns.mean()), played.events.mean(0)
        lazy = float(work.min() / work.sum()) if work.sum() > 0 else 0.0
        put_row(store, RANDOM, seed, auc=mean / config.BOUND, late=mean, lazy=lazy)


def _verdict(result: Result, roles_matter: bool) -> Verdict:
    """Demand the dossier's rule, and that the intervals do not leave it open.

    VDN's area is above both baselines' in at least two thirds of the seeds, the centralised learner is the lazier one,
    where roles differ telling them does not hurt, and role ids that tell nothing do not help. VDN must have learned
    something: by the interval, its late return is above that of a team which draws its actions. The effect is the
    smaller of the two differences; where its interval holds 0 the study is inconclusive.
    """
    from rolecraft.measures import Interval

    if absent := [arm for arm in NEEDED if arm not in result.arms]:
        nothing = Interval(float("nan"), float("nan"), float("nan"), 0)
        return Verdict.when(reproduced=False, effect=nothing, note=f"not run: {', '.join(absent)}")
    area = {(row["arm"], row["seed"]): row["auc"] for row in result.rows}
    wins = sum(area["vdn", seed] > max(area["iql", seed], area["central", seed]) for seed in result.seeds)
    gains = {other: result.difference("auc", "vdn", other) for other in ("iql", "central")}
    nearest = min(gains, key=lambda name: gains[name].estimate)
    effect = gains[nearest]
    lazy = result.difference("lazy", "vdn", "central")
    told = result.difference("auc", "vdn-role", "vdn-shared")
    control = result.difference("auc", CONTROL, "vdn-shared")
    most = 3 * wins >= 2 * len(result.seeds)
    fails, learned = not control.low > 0, result.difference("late", "vdn", RANDOM)
    notes = [
        f"area under the curve as a part of the best return, vdn less {nearest}, the nearer of the two baselines "
        f"(less iql {gains['iql']}, less central {gains['central']}), ahead of both in {wins} of {len(result.seeds)} "
        "seeds",
        f"lazy-agent index, vdn less central: {lazy}",
        f"late return of vdn less that of a team which draws its actions: {learned}",
        f"told the roles less not: {told}; control: role ids at random less none",
        "late returns: " + ", ".join(f"{arm} {result.mean('late', arm).estimate:.3g}" for arm in result.arms),
    ]
    return Verdict.when(
        reproduced=most and lazy.estimate > 0 and fails and learned.low > 0
        and (told.estimate >= 0 or not roles_matter),
        inconclusive=effect.low <= 0 <= effect.high,
        effect=effect,
        control=control,
        note="; ".join(notes),
    )  # fmt: skip


def verdict(result: Result) -> Verdict:
    """Judge a game in which the roles' rewards are alike; see `_verdict`."""
    return _verdict(result, roles_matter=False)


def verdict_checkers(result: Result) -> Verdict:
    """Judge Checkers, where being told one's role must not hurt; see `_verdict`."""
    return _verdict(result, roles_matter=CheckersConfig.ROLES_MATTER)


STUDIES = {
    "checkers": (CheckersConfig, run, verdict_checkers),
    "switch": (SwitchConfig, run, verdict),
    "fetch": (FetchConfig, run, verdict),
}
