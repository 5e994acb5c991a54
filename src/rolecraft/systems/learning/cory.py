"""CORY: a pioneer and an observer, copies of one model, fine-tuned together and exchanged (arXiv 2410.06101).

Exact: two copies with critics and optimisers of their own; the observer sees the query and the pioneer's answer; both
are paid the sum of their task rewards at the last token and the KL to the base at every token, with GAE and clipped
PPO apart; every few updates they change seats; in the end one copy answers alone. The parts are `worlds.HintedReply`,
`learning.RoleExchange`, `learning.Trainer` and the credit rule `cory`.
Adapted: a tiny transformer that has learnt a random Markov chain over 60 words for GPT-2 on film reviews, and the
liking of its words for a classifier of sentiment.
Added: PPO whose reward has a stranger's reward added, of mean 0 and the spread of a partner's: a gain that this has too
needs no partner, so it must not show the gain. And a second study. In `chain` the KL that is paid is exact at each
token, as in the paper's runs; that charges a token for where it leads and never for itself. In `chain-drawn` it is the
log-ratio of the token that was drawn.
Small: `rolecraft systems run cory`; `--set arms=...` and `--set etas=...` for those that are not run by default;
`--study smollm2` is a smoke run of two adapters on a language model that add numbers. The paper's
size (GPT-2 on IMDB, 100 updates of 256 queries; Llama-2-7b-chat on GSM8K) needs GPUs and those weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import ROWS, Result, Study, StudyConfig, System, Verdict, put_row, row_key
from rolecraft.systems.learning._cory_smoke import SMOLLM2

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.policy import TokenPolicy
    from rolecraft.measures import Interval
    from rolecraft.systems.learning._cory_training import Task

SYSTEM = System(
    number=96,
    name="cory",
    title="Coevolving with the Other You: Fine-Tuning LLM with Sequential Cooperative Multi-Agent Reinforcement "
    "Learning",
    arxiv="2410.06101",
    family="learning",
    claim="two copies that answer in turn, share their reward and change seats reach a better task reward less KL than "
    "one model trained by PPO",
    published="GPT-2 on IMDB: the task reward of PPO at a far lower KL, and a frontier of reward and KL above PPO's; "
    "Llama-2-7b-chat on GSM8K: pass@k above PPO's (figures without numbers)",
)


@dataclass(frozen=True)
class Arm:
    """How an arm differs from CORY."""

    seats: Literal[1, 2] = 2
    """1: one model, which is plain PPO."""
    mode: Literal["sum", "own", "competitive"] = "sum"
    """What each is paid."""
    transfer: bool = True
    """Whether the observer sees the pioneer's answer."""
    exchange: bool = True
    batches: int = 1
    """Times the queries per update."""
    noise: bool = False
    """Whether a stranger's reward is added."""


ARMS: Mapping[str, Arm] = {
    "ppo": Arm(1, "own"),
    "ppo-doubled": Arm(1, "own", batches=2),
    "ppo-noise": Arm(1, "own", noise=True),
    "cory": Arm(),
    "no-transfer": Arm(transfer=False),
    "no-exchange": Arm(exchange=False),
    "competitive": Arm(mode="competitive"),
}
NEEDED = ("ppo", "ppo-noise", "cory")
LEAST_ETA = 0.1
"""The claim is tested where the KL costs at least as much."""
CORNER = (0.0, -20.0)
"""Task reward and -KL from which the dominated area is measured: the reward of random text, at a KL of 20 nats."""
CURVES = "curves"


@dataclass(frozen=True)
class Config(StudyConfig):
    """Seeds, arms and weights of the KL; the language, the model, and PPO."""

    NO_FULL = SMOLLM2.config.NO_FULL
    seeds: tuple[int, ...] = (11, 12, 13, 14)
    arms: tuple[str, ...] = ("ppo", "ppo-noise", "cory", "no-transfer")
    """Some of `ARMS`, the three that the verdict needs among them."""
    etas: tuple[float, ...] = (0.1, 0.2)
    """Weights of the KL. Paper: 0.3 to 0.4 at the start, adaptive."""
    words: int = 60
    successors: int = 6
    """Words that can follow a word."""
    query: int = 3
    """Words of a query. Paper: 2 to 8 tokens."""
    answer: int = 8
    """Most words of an answer. Paper: 4 to 16 tokens."""
    queries: int = 4096
    """Of training."""
    tests: int = 512
    """Queries of the test, and as many to choose a copy by."""
    corpus: int = 20_000
    """Texts of pretraining, half of them with a hint."""
    pretraining: int = 400
    """Steps."""
    pretraining_lr: float = 3e-3
    layers: int = 2
    hidden: int = 64
    updates: int = 100
    """Paper: about 100."""
    batch: int = 64
    """Queries per update. Paper: 256."""
    epochs: int = 2
    lr: float = 1e-4
    """Chosen on plain PPO, seeds 2 and 3, which goes about 12 nats from the base with it where a nat costs 0.1. Paper:
    1.41e-5."""
    clip: float = 0.2
    value: float = 0.1
    """Weight of the critic's loss."""
    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True
    """Each policy's advantages, over the tokens of its batch."""
    penalty: Literal["full", "k3", "k1"] = "full"
    """Form of the KL that is paid. Paper: full."""
    exchange: int = 5
    """Updates between exchanges. Paper: 5."""
    rebuild: bool = False
    """New optimisers at every exchange, as in the paper's program."""
    keep: Literal["pioneer", "best"] = "pioneer"
    """Which copy is tested: the one that is pioneer at the end, or the better one on other queries."""
    kl_limit: float = 15.0
    """A model further from the base than this, in nats per answer, counts as collapsed."""
    distinct_limit: float = 0.5
    """So does one with less than this share of the base's distinct-2."""

    def __post_init__(self) -> None:
        """Refuse arms that are unknown, and studies without the arms of the verdict."""
        for arm in self.arms:
            if arm not in ARMS:
                raise UserError(f"arms: {arm!r} is none of {', '.join(ARMS)}.{did_you_mean(arm, ARMS)}")
        missing = [arm for arm in NEEDED if arm not in self.arms]
        if missing:
            raise UserError(f"arms: the verdict needs {', '.join(NEEDED)}; {', '.join(missing)} is left out.")
        if not self.etas or not all(0 < eta < float("inf") for eta in self.etas) or max(self.etas) < LEAST_ETA:
            raise UserError(f"etas: expected numbers above 0, one of at least {LEAST_ETA}, got {self.etas}.")
        if min(self.query, self.answer, self.queries, self.tests, self.corpus, self.updates, self.batch) < 1:
            raise UserError("query, answer, queries, tests, corpus, updates and batch must be at least 1.")


@dataclass(frozen=True)
class DrawnConfig(Config):
    """The same with the log-ratio of each drawn token as what is paid, which charges every token for itself."""

    penalty: Literal["full", "k3", "k1"] = "k1"


def train(
    config: Config, arm: str, eta: float, seed: int, task: Task, base: TokenPolicy
) -> tuple[dict[str, TokenPolicy], dict[str, list[float]]]:
    """Train an arm.

    Returns:
        Its policies by name, the one that is pioneer at the end first; and figures by iteration.
    """
    from rolecraft.systems.learning._cory_training import make_trainer
    from rolecraft.systems.learning._language_step import distinct_share
    from rolecraft.worlds._hinted_reply import PIONEER

    trainer, exchange, charge = make_trainer(config, ARMS[arm], eta, seed, task, base)
    curves: dict[str, list[float]] = {}
    for _ in range(config.updates):
        done = exchange.step(trainer) if exchange else trainer.step()
        said = [turn.action for episode in done.episodes for turn in episode.turns]
        figures = {name: value for name, value in done.figures.items() if name.startswith("outcome/")}
        figures |= {name: value for name, value in done.figures.items() if name.endswith("entropy")}
        figures |= {f"kl/{name}": value for name, value in charge.divergence.items()}
        figures["distinct2"] = distinct_share(said)
        figures["copied"] = sum(bool(episode.outcome["copied"]) for episode in done.episodes) / len(done.episodes)
        for name, value in figures.items():
            curves.setdefault(name, []).append(value)
    first = exchange.seated(trainer.iteration - 1)[PIONEER] if exchange else next(iter(trainer.policies))
    ordered = sorted(trainer.policies, key=lambda name: name != first)
    return {name: trainer.policies[name] for name in ordered}, curves


def examine(config: Config, policies: Mapping[str, TokenPolicy], eta: float, task: Task, seed: int) -> dict[str, Any]:
    """Choose a copy, and return what it scores when it answers test queries alone."""
    tested = {name: measure(policy, task, task.test, eta, seed) for name, policy in policies.items()}
    chosen = next(iter(policies))
    if config.keep == "best":
        judged = {name: measure(policy, task, task.held_out, eta, seed) for name, policy in policies.items()}
        chosen = max(judged, key=lambda name: judged[name]["combined"])
    kls = [figures["kl"] for figures in tested.values()]
    return {**tested[chosen], "kl_gap": max(kls) - min(kls)}


def measure(policy: TokenPolicy, task: Task, queries: Iterable[str], eta: float, seed: int) -> dict[str, float]:
    """Return task reward, exact KL to the base per answer, reward - eta * KL, distinct-2 and words of lone answers."""
    from rolecraft.systems.learning._cory_training import answer_alone
    from rolecraft.systems.learning._language_step import distinct_share

    asked = list(queries)
    texts, rows = answer_alone(policy, task, asked, seed)
    reward = sum(task.reward(query, text) for query, text in zip(asked, texts, strict=True)) / len(asked)
    kl = float(policy.divergence(rows).sum(1).mean())
    return {
        "reward": reward,
        "kl": kl,
        "combined": reward - eta * kl,
        "distinct2": distinct_share(texts),
        "spoken": sum(len(text.split()) for text in texts) / len(texts),
    }


def run(config: Config, store: RunStore) -> Result:
    """Train every arm at every weight of the KL from the base of each seed, and test what it has become."""
    from rolecraft.systems.learning._cory_training import Task, pretrain

    for seed in config.seeds:
        cells = {row_key(arm, seed, _unit(seed, eta)): (arm, eta) for eta in config.etas for arm in config.arms}
        missing = store.missing(ROWS, cells)
        if not missing:
            continue
        task = Task.draw(config, seed)
        base, loss = pretrain(config, task, seed)
        base.keep_reference()
        before = measure(base, task, task.test, 0.0, seed)
        least = config.distinct_limit * before["distinct2"]
        for key in missing:
            arm, eta = cells[key]
            policies, curves = train(config, arm, eta, seed, task, base)
            figures = examine(config, policies, eta, task, seed)
            figures["collapsed"] = figures["kl"] > config.kl_limit or figures["distinct2"] < least
            tail = curves["copied"][-10:]
            facts = {"base_reward": before["reward"], "base_distinct2": before["distinct2"], "base_loss": loss}
            store.put(CURVES, key, {"arm": arm, "seed": seed, "eta": eta, **curves})
            put_row(store, arm, seed, _unit(seed, eta), eta=eta, **figures, copied=sum(tail) / len(tail), **facts)
    return Result.read(store)


def _unit(seed: int, eta: float) -> str:
    """Return what a row is paired and resampled by: a base at a weight of the KL."""
    return f"{seed}:{eta:g}"


def frontier(result: Result) -> list[dict[str, Any]]:
    """Return, per arm and weight of the KL, the mean reward, KL and combined reward, and whether no other beats it."""
    from rolecraft.measures import pareto_front

    cells: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for row in result.rows:
        cells.setdefault((row["arm"], row["eta"]), []).append(row)
    table: list[dict[str, Any]] = [
        {"arm": arm, "eta": eta}
        | {name: sum(row[name] for row in rows) / len(rows) for name in ("reward", "kl", "combined", "collapsed")}
        for (arm, eta), rows in cells.items()
    ]
    best = set(pareto_front([[row["reward"], -row["kl"]] for row in table]).tolist())
    return [{**row, "front": place in best} for place, row in enumerate(table)]


def areas(result: Result) -> Result:
    """Return one row per arm and seed: the area of reward and -KL that its points dominate, from `CORNER`."""
    from rolecraft.measures import hypervolume

    points: dict[tuple[str, int], list[list[float]]] = {}
    for row in result.rows:
        points.setdefault((row["arm"], row["seed"]), []).append([row["reward"], -row["kl"]])
    return Result(
        tuple({"arm": arm, "seed": seed, "area": hypervolume(found, CORNER)} for (arm, seed), found in points.items())
    )


def verdict(result: Result) -> Verdict:
    """Demand a better combined reward than PPO's where the KL is dear, by the whole interval over seeds.

    And the control must not have the gain: PPO with a stranger's reward may not beat PPO for sure, and CORY must beat
    it for sure.
    """
    dear = Result(tuple(row for row in result.rows if row["eta"] >= LEAST_ETA))

    def gain(a: str, b: str) -> Interval:
        return dear.difference("combined", a, b, by="seed")

    effect, control, beyond = gain("cory", "ppo"), gain("ppo-noise", "ppo"), gain("cory", "ppo-noise")
    fails = control.low <= 0
    notes = [f"control: the same gain of PPO with a stranger's reward; CORY over that {beyond}"]
    if "no-transfer" in dear.arms:
        notes.append(f"without transfer over PPO {gain('no-transfer', 'ppo')}")
        notes.append(f"so what transfer adds is {gain('cory', 'no-transfer')}")
    cells = [
        f"{row['arm']} at {row['eta']:g}: {row['reward']:.2f} - {row['eta']:g} * {row['kl']:.1f}"
        + (" (front)" if row["front"] else "")
        + (" (collapsed)" if row["collapsed"] >= 0.5 else "")
        for row in frontier(result)
    ]
    area = areas(result).difference("area", "cory", "ppo")
    return Verdict.when(
        reproduced=effect.low > 0 and fails and beyond.low > 0,
        inconclusive=effect.low <= 0 < effect.high or (effect.low > 0 and fails and beyond.low <= 0),
        effect=effect,
        control=control,
        note=f"gain in reward - eta * KL where eta is at least {LEAST_ETA}; {'; '.join(notes)}; dominated area over "
        f"PPO's {area}; reward and KL: {', '.join(cells)}",
    )


STUDIES = {"chain": Study(Config, run, verdict), "chain-drawn": Study(DrawnConfig, run, verdict), "smollm2": SMOLLM2}
