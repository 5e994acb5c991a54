"""CORY on a language model: two adapters answer sums in turn, the second with the first's answer before it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rolecraft._run import derive_seed
from rolecraft.systems._base import Result, Study, Verdict
from rolecraft.systems.learning._language_smoke import (
    Base,
    LanguageSmoke,
    Log,
    average,
    contrast,
    decide,
    figures_of,
    health,
    held,
    part,
    run_arms,
    train_plan,
)
from rolecraft.systems.learning._language_step import Taught, take_step

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning import RoleExchange
    from rolecraft.learning.trainer import Trainer
    from rolecraft.systems.learning._cory_training import KlCharge
    from rolecraft.worlds import Episode

NAMES = ("first", "second")
_NUMBER = re.compile(r"\d+")
LARGEST = 9
"""Of the numbers that are added."""


def query(a: int, b: int) -> str:
    """Return a sum as a question."""
    return f"What is {a} + {b}? Answer with the number."


QUERIES = tuple(query(a, b) for a in range(1, LARGEST + 1) for b in range(1, LARGEST + 1))


def read_number(text: str) -> int | None:
    """Return the last number of a text; None if there is none."""
    found = _NUMBER.findall(text)
    return int(found[-1]) if found else None


def reward(asked: str, answer: str) -> float:
    """Return 1 if the last number of the answer is the sum, else 0: a rule, as the paper's on GSM8K."""
    a, b = map(int, _NUMBER.findall(asked))
    return float(read_number(answer) == a + b)


@dataclass(frozen=True)
class SmokeConfig(LanguageSmoke):
    """Two adapters on one language model add numbers."""

    NO_FULL = (
        "the paper fine-tunes GPT-2 on IMDB, 100 updates of 256 queries on a GPU, and Llama-2-7b-chat on GSM8K, and "
        "reports PPO's task reward at a far lower KL, and pass@k above PPO's (figures without numbers); those weights "
        "and data are not here; the study smollm2 takes a model of yours: --set model=local:PATH --set device=cuda"
    )
    KNOWN: ClassVar[tuple[str, ...]] = (
        "ppo", "cory", "no-transfer", "no-exchange", "competitive", "ppo-noise", "ppo-doubled",
    )  # fmt: skip
    NEEDED: ClassVar[tuple[str, ...]] = ("ppo", "cory", "no-transfer")
    arms: tuple[str, ...] = ("ppo", "cory", "no-transfer")
    """As in the study `chain`. Control: an observer that does not see the pioneer's answer."""
    model: str = "local:smollm2"
    """Paper: GPT-2 on film reviews; Llama-2-7b-chat on GSM8K."""
    imitated: int = 0
    """The base knows how to answer, and the KL is measured from it."""
    updates: int = 2
    """Paper: about 100."""
    episodes: int = 12
    """Queries per update. Paper: 256."""
    max_tokens: int = 16
    """Paper: 4 to 16."""
    lr: float = 2e-4
    """Of the adapters. Paper: 1.41e-5, of all weights."""
    epochs: int = 2
    clip: float = 0.2
    value: float = 0.1
    """Weight of the critic's loss."""
    eta: float = 0.2
    """Weight of the KL. Paper: 0.3 to 0.4 at the start, adaptive."""
    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True
    exchange: int = 1
    """Updates between exchanges. Paper: 5."""
    evaluated: int = 16
    """Queries that the pioneer of the end answers alone."""


def load(config: SmokeConfig, seed: int) -> Base:
    """Return two adapters with critics, copies of the base."""
    return Base.load(config, "cory", seed, NAMES, critic=True)


def make_trainer(config: SmokeConfig, base: Base, arm: str, seed: int) -> tuple[Trainer, RoleExchange | None, KlCharge]:
    """Return an arm's trainer, who changes seats, and what the KL costs."""
    from rolecraft.learning import RoleExchange
    from rolecraft.learning.trainer import Trainer
    from rolecraft.systems.learning._cory_training import KlCharge, credit_rule
    from rolecraft.systems.learning.cory import ARMS
    from rolecraft.worlds import HintedReply
    from rolecraft.worlds._hinted_reply import OBSERVER, PIONEER

    how = ARMS[arm]
    names = NAMES[: how.seats]
    policies = {name: base.policies[name] for name in names}
    charge = KlCharge(policies, "full")
    plan = train_plan(
        config, episodes=config.episodes * how.batches, epochs=config.epochs, clip=config.clip, value=config.value,
        reference=True,
    )  # fmt: skip
    trainer = Trainer(
        lambda: HintedReply(QUERIES, reward, transfer=how.transfer, seats=how.seats), policies,
        credit_rule(config, how, config.eta, seed), plan, seed=derive_seed("cory", seed, "smollm2"), columns=charge,
    )  # fmt: skip
    exchange = None
    if how.seats > 1:
        exchange = RoleExchange((PIONEER, OBSERVER), names, config.exchange if how.exchange else None)
        exchange.bind(trainer)
    return trainer, exchange, charge


def agreement(episode: Episode, other: Episode) -> float:
    """Return 1 if an episode's observer gives the number of another's pioneer, which there must be, else 0."""
    from rolecraft.worlds._hinted_reply import OBSERVER, PIONEER

    number = read_number(other.outcome["answers"][PIONEER])
    return float(number is not None and read_number(episode.outcome["answers"][OBSERVER]) == number)


def play(config: SmokeConfig, base: Base, arm: str, seed: int) -> Log:
    """Train an arm, and return its log."""
    from rolecraft.worlds._hinted_reply import PIONEER

    trainer, exchange, charge = make_trainer(config, base, arm, seed)
    log = Log()
    for update in range(config.updates):
        first = exchange.seated(update)[PIONEER] if exchange else NAMES[0]
        taught = take_step(trainer)
        log.take(update, taught)
        log.curve(kl=max(charge.divergence.values()), leads=NAMES.index(first), **pooled(taught))
        if exchange:
            episodes = taught.episodes
            for number, (episode, other) in enumerate(zip(episodes, (*episodes[1:], episodes[0]), strict=True)):
                log.unit(f"{update}/{number}", agreed=agreement(episode, episode), stranger=agreement(episode, other))
            log.curve(copied=sum(bool(each.outcome["copied"]) for each in episodes) / len(episodes))
    log.finish(trainer, config.evaluated, seed, (PIONEER,))
    return log


def pooled(taught: Taught) -> dict[str, float]:
    """Return the variance over rows of what an answer earned itself, and of what its episode earned together."""
    from rolecraft.learning.credit import pool_rewards

    batch = taught.rows.batch
    own = batch.row["outcome"]
    return {"own_variance": float(own.var()), "pooled_variance": float(pool_rewards(own, batch.keys["traj"]).var())}


def run(config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm from the same adapters."""
    return run_arms(config, store, load, play)


def verdict(result: Result) -> Verdict:
    """Demand that the pioneer's answer reaches the observer, that both learn, and that they change seats.

    In the first update the pioneers of all arms have said the same.
    """
    first, final = part(result, "0"), part(result, "final")
    effect, control = (contrast(first, metric, "cory", "no-transfer") for metric in ("agreed", "stranger"))
    leads = {row["seed"]: row["leads"] for row in result.rows if row.get("unit") is None and row["arm"] == "cory"}
    claims = {
        **health(result, "cory"),
        "both adapters were pioneer": all(0 < value < 1 for value in leads.values()),
        "the observer gives the pioneer's number more often when it sees it": held(effect),
        "but not another pioneer's": not control.low > 0,
    }
    return decide(
        claims, effect, control, contrast(final, "reward", "cory", "ppo"),
        "share of observers that give their pioneer's number in the first update, with the answer in sight less "
        "without; control: another pioneer's number; of CORY: "
        + figures_of(result, "cory", "agreed", "copied", "kl", "own_variance", "pooled_variance", "entropy", "followed")
        + f"; KL of PPO {average(result, 'kl', 'ppo').estimate:.3g}; right when answering alone: "
        + ", ".join(f"{arm} {average(final, 'reward', arm).estimate:.2f}" for arm in final.arms),
    )  # fmt: skip


SMOLLM2 = Study(SmokeConfig, run, verdict)
