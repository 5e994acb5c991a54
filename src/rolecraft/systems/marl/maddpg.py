"""MADDPG: decentralised actors, one centralised critic per agent (Lowe et al., arXiv 1706.02275).

Exact: the losses of critics and actors, soft targets, Gumbel-softmax, networks, Adam with 0.01, clipping, batch,
discount, one update per 100 steps, warm-up; DDPG is the same code whose critics see their own agent alone; sub-policies
drawn per episode, each trained on the rows of its own episodes; agents' guesses at each other's policies
(`--set infer=true`).
Adapted: the particle worlds are JaxMARL's and take whole moves, so that gradients pass straight through the samples
(the released code's worlds take mixed moves: `--set discrete=false`); 25 copies run side by side, 4 steps between
updates; all agents are updated at once from one joint batch; policies start nearly uniform; a time limit is no
terminal state. Sizes are a fraction of the paper's.
Added: listeners that get another episode's message, untrained predators, untrained sides (the controls).
Small: `rolecraft systems run maddpg --study speaker-listener`, `tag`, `ensemble`. Paper's size: add `--full` (60,000
episodes, 10 seeds: hours on two cores; meant for a GPU).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from rolecraft.errors import UserError
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import Interval

SYSTEM = System(
    number=61,
    name="maddpg",
    title="Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments",
    arxiv="1706.02275",
    family="marl",
    claim="critics that see all agents' observations and actions train teams that critics of their own agent alone "
    "cannot: a listener finds the landmark that a speaker names",
    published="cooperative communication: the listener reaches the right landmark in 84% of episodes with MADDPG and "
    "in 32% with DDPG (recalled figures); mixed tasks: MADDPG teams beat DDPG opponents by more than the reverse",
)

ARMS = ("maddpg", "ddpg")
FACTOR = 1.5
"""How many times as often as DDPG's must MADDPG's listener arrive."""
REACHED = 0.1
"""Distance below which it has arrived."""
CURVES = "curves"
PER_CATCH = 10.0
"""What a predator's world pays every predator for a collision."""
PAPER_UPDATES = 15_000
"""60,000 episodes of 25 steps, one update per 100 steps."""


@dataclass(frozen=True)
class TrainingConfig(StudyConfig):
    """What the studies share; the defaults are the paper's unless a field says otherwise."""

    updates: int = 2000
    """One per 100 steps of the world. Paper: 15,000."""
    hidden: int = 64
    """Units per hidden layer. Paper: 64."""
    lr: float = 0.01
    """Of Adam. Paper: 0.01."""
    batch: int = 1024
    """Joint rows per update. Paper: 1024."""
    envs: int = 25
    """Copies of the world. Paper: 1."""
    steps: int = 4
    """Steps of each between updates; envs x steps is the paper's 100."""
    capacity: int = 250_000
    """Rows of the replay. Paper: 1,000,000."""
    warmup: int = 25_600
    """Rows before the first update. Released code: 25,600."""
    temperature: float = 1.0
    """Of the Gumbel-softmax, in play and in the losses. Released code: 1."""
    discrete: bool = True
    """Whole moves, with straight-through gradients. Released code: relaxed ones (`false`)."""
    infer: bool = False
    """Targets use agents' own guesses at the others' policies."""
    episodes: int = 1000
    """Of evaluation, without exploration."""

    def __post_init__(self) -> None:
        """Refuse sizes below 1; the learner checks the rates."""
        for name in ("updates", "hidden", "batch", "envs", "steps", "capacity", "warmup", "episodes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size."""
        return cls(seeds=tuple(range(10)), updates=PAPER_UPDATES, capacity=1_000_000)


def _train(
    config: TrainingConfig,
    store: RunStore,
    pairs: Sequence[tuple[str, int]],
    world: str,
    *,
    ensemble: int = 1,
    held: str = "",
) -> tuple[Any, dict[tuple[str, int], Any]]:
    """Train arms and seeds side by side and keep their curves; return the learner and the actors of each pair.

    It is always all pairs of a study that are trained, so that a resumed run comes to the same numbers; what was
    trained before is read from the run directory.
    """
    from rolecraft.systems.marl import _maddpg_training as training

    learner = training.make(config, world, ensemble)
    # Arms of a seed start from the same weights and worlds, but for those held out.
    names = [(world, seed, *([held] if held else [])) for _, seed in pairs]
    folder = store.directory / "training" / "-".join([world, *dict.fromkeys(arm for arm, _ in pairs)])
    actors, figures = training.train(learner, config.updates, names, [arm == "ddpg" for arm, _ in pairs], folder)
    step = max(1, config.updates // 100)
    kept = config.updates // step * step
    for place, (arm, seed) in enumerate(pairs):
        curves = {
            name: values[:kept, place].reshape(kept // step, step, -1).mean(1).round(5).tolist()
            for name, values in figures.items()
        }
        store.put(CURVES, row_key(arm, seed, world), {"arm": arm, "seed": seed, "updates": step, **curves})
    return learner, {pair: training.one_of(actors, place) for place, pair in enumerate(pairs)}


# (a) Cooperative communication


@dataclass(frozen=True)
class SpeakerListenerConfig(TrainingConfig):
    """A speaker who sees the target's colour, a listener who must go there."""

    updates: int = 3000
    """One per 100 steps of the world. Paper: 15,000."""
    capacity: int = 350_000
    """Rows of the replay: all of the small study's. Paper: 1,000,000."""


def run_speaker_listener(config: SpeakerListenerConfig, store: RunStore) -> Result:
    """Train both arms; a row has the rate of arrival and the mean last distance, heard and with another's message."""
    from rolecraft.systems.marl import _maddpg_training as training

    missing = missing_rows(store, ARMS, config.seeds)
    if not missing:
        return Result.read(store)
    pairs = [(arm, seed) for seed in config.seeds for arm in ARMS]
    learner, actors = _train(config, store, pairs, training.SPEAKER_LISTENER)
    heard, deaf = (training.evaluator(learner, config.episodes, swapped) for swapped in (None, 0))
    for arm, seed in missing:
        team, key = actors[arm, seed], training.key_of("evaluation", seed)
        played, control = heard(team, key), deaf(team, key)
        distance, without = training.listener_distances(played), training.listener_distances(control)
        put_row(
            store, arm, seed,
            reach=float((distance < REACHED).mean()), distance=float(distance.mean()),
            nearest=float(training.nearest_landmark(played).mean()), reward=float(played.returns[:, 1].mean()),
            reach_deaf=float((without < REACHED).mean()), distance_deaf=float(without.mean()),
        )  # fmt: skip
    return Result.read(store)


def margin(result: Result, metric: str, factor: float) -> Interval:
    """Return MADDPG's metric less `factor` times DDPG's, over seeds."""
    from rolecraft.measures import bootstrap_mean

    found = {(row["arm"], row["seed"]): float(row[metric]) for row in result.rows}
    return bootstrap_mean([found["maddpg", seed] - factor * found["ddpg", seed] for seed in result.seeds])


def verdict_speaker_listener(result: Result) -> Verdict:
    """Demand a smaller mean distance in every seed and an arrival rate 1.5 times DDPG's.

    The control is the arrival rate of MADDPG's listener with another episode's message: it must lose more than half.
    """
    effect = margin(result, "reach", FACTOR)
    distances = {(row["arm"], row["seed"]): row["distance"] for row in result.rows}
    nearer = [distances["maddpg", seed] < distances["ddpg", seed] for seed in result.seeds]
    control, reach = result.mean("reach_deaf", "maddpg"), result.mean("reach", "maddpg")
    fails = control.estimate < reach.estimate / 2
    rates = ", ".join(f"{arm} {result.mean('reach', arm)}" for arm in ARMS)
    far = ", ".join(f"{arm} {result.mean('distance', arm)}" for arm in ARMS)
    right = ", ".join(f"{arm} {result.mean('nearest', arm)}" for arm in ARMS)
    return Verdict.when(
        reproduced=all(nearer) and effect.low > 0 and fails,
        inconclusive=fails and effect.low <= 0 < effect.high,
        effect=effect,
        control=control,
        note=f"arrival rate of MADDPG less {FACTOR} times DDPG's; arrivals: {rates}; mean last distance: {far} (MADDPG "
        f"nearer in {sum(nearer)} of {len(nearer)} seeds); episodes that end nearest the right landmark: {right}; "
        "control: MADDPG's arrivals with another episode's message",
    )


# (b) Predators and prey


@dataclass(frozen=True)
class TagConfig(TrainingConfig):
    """Three predators, one faster prey, two obstacles."""

    updates: int = 2000
    """One per 100 steps of the world. Paper: 15,000."""


PREDATORS = (*ARMS, "untrained")


def run_tag(config: TagConfig, store: RunStore) -> Result:
    """Train a world of MADDPG agents and one of DDPG agents, then play each one's predators against each one's prey.

    A row has the catches per episode of some predators against one prey.
    """
    from rolecraft.systems.marl import _maddpg_training as training

    keys = {
        row_key(arm, seed, f"{seed}:{prey}"): (arm, seed, prey)
        for seed in config.seeds for arm in PREDATORS for prey in ARMS
    }  # fmt: skip
    missing = [keys[key] for key in store.missing(ROWS, keys)]
    if not missing:
        return Result.read(store)
    learner, trained = _train(config, store, [(arm, seed) for seed in config.seeds for arm in ARMS], training.TAG)
    match = training.evaluator(learner, config.episodes)
    predators = [role == "adversaries" for role in learner.env.roles]
    fresh = training.untrained(learner)
    for arm, seed, prey in missing:
        team = training.mixed(predators, fresh if arm == "untrained" else trained[arm, seed], trained[prey, seed])
        returns = match(team, training.key_of("evaluation", seed)).returns
        put_row(
            store, arm, seed, f"{seed}:{prey}",
            catches=float(returns[:, 0].mean()) / PER_CATCH, prey_reward=float(returns[:, -1].mean()),
        )  # fmt: skip
    return Result.read(store)


def verdict_tag(result: Result) -> Verdict:
    """Demand that MADDPG's predators catch more than DDPG's against the same prey, by the interval over seeds.

    The control, predators who were never trained, must catch less than DDPG's.
    """
    effect = result.difference("catches", "maddpg", "ddpg", by="seed")
    control = result.difference("catches", "untrained", "ddpg", by="seed")
    cells = ", ".join(f"{arm} on {prey} {_cell(result, arm, prey):.2f}" for arm in PREDATORS for prey in ARMS)
    return Verdict.when(
        reproduced=effect.low > 0 and control.high < 0,
        inconclusive=effect.low <= 0 < effect.high,
        effect=effect,
        control=control,
        note=f"catches per episode of MADDPG's predators less DDPG's, same prey (predators on prey: {cells}); control: "
        "untrained predators less DDPG's",
    )


def _cell(result: Result, arm: str, prey: str) -> float:
    found = [
        float(row["catches"]) for row in result.rows if row["arm"] == arm and str(row["unit"]).endswith(f":{prey}")
    ]
    return sum(found) / len(found)


# (c) Ensembles against opponents never met


@dataclass(frozen=True)
class EnsembleConfig(TrainingConfig):
    """Two agents who know which landmark counts, one adversary who must guess it."""

    updates: int = 1000
    """One per 100 steps of the world. Paper: 15,000."""
    sub_policies: int = 3
    """Of the arm with ensembles. Paper: 3."""

    def __post_init__(self) -> None:
        """Refuse an ensemble of one."""
        super().__post_init__()
        if self.sub_policies < 2:
            raise UserError(f"sub_policies must be at least 2, got {self.sub_policies}: one is the other arm.")


SIDES = ("agents", "adversaries")
ENSEMBLES = ("ensemble", "single", "untrained")


def run_ensemble(config: EnsembleConfig, store: RunStore) -> Result:
    """Train both arms and, from other seeds, opponents without ensembles; play each side against theirs.

    A row has a side's return per episode against the opponents it trained with and against those it never met; that of
    an untrained side against these only.
    """
    from rolecraft.systems.marl import _maddpg_training as training

    keys = {
        row_key(arm, seed, f"{seed}:{side}"): (arm, seed, side)
        for seed in config.seeds for arm in ENSEMBLES for side in SIDES
    }  # fmt: skip
    missing = [keys[key] for key in store.missing(ROWS, keys)]
    if not missing:
        return Result.read(store)
    pairs = [("held-out", seed) for seed in config.seeds]
    single, strangers = _train(config, store, pairs, training.ADVERSARY, held="held out")
    fresh = training.untrained(single)
    for arm in dict.fromkeys(arm for arm, _, _ in missing):
        size, learner, actors = 1, single, {(arm, seed): fresh for seed in config.seeds}
        if arm != "untrained":
            size = config.sub_policies if arm == "ensemble" else 1
            pairs = [(arm, seed) for seed in config.seeds]
            learner, actors = _train(config, store, pairs, training.ADVERSARY, ensemble=size)
        match = training.evaluator(learner, config.episodes)
        for _, seed, side in (row for row in missing if row[0] == arm):
            own = [role == side for role in learner.env.roles]
            team, key, agent = actors[arm, seed], training.key_of("evaluation", seed), own.index(True)
            others = training.repeated(strangers["held-out", seed], size)
            never = match(training.mixed(own, team, others), key).returns
            met = {} if arm == "untrained" else {"met": float(match(team, key).returns[:, agent].mean())}
            put_row(store, arm, seed, f"{seed}:{side}", never_met=float(never[:, agent].mean()), **met)
    return Result.read(store)


def verdict_ensemble(result: Result) -> Verdict:
    """Demand that ensembles do better against opponents never met, by the interval over seeds (direction only).

    The control, sides that were never trained, must do worse than those without ensembles: otherwise training taught
    nothing that the return shows, and there is nothing to be robust about.
    """
    effect = result.difference("never_met", "ensemble", "single", by="seed")
    control = result.difference("never_met", "untrained", "single", by="seed")
    met = result.difference("met", "ensemble", "single", by="seed")
    fails = control.high < 0
    return Verdict.when(
        reproduced=effect.low > 0 and fails,
        inconclusive=fails and effect.low <= 0 < effect.high,
        effect=effect,
        control=control,
        note="return per episode with ensembles less without, against opponents of other trainings, mean of both "
        f"sides; against the opponents they trained with {met}; control: untrained sides less trained ones without "
        "ensembles",
    )


STUDIES = {
    "speaker-listener": (SpeakerListenerConfig, run_speaker_listener, verdict_speaker_listener),
    "tag": (TagConfig, run_tag, verdict_tag),
    "ensemble": (EnsembleConfig, run_ensemble, verdict_ensemble),
}
