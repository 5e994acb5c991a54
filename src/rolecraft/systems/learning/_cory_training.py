"""CORY's training: copies of a base that answer in turn, are paid together, and change seats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.learning.credit import Carry, CreditBatch, Stage, make_rule
from rolecraft.systems.learning._word_chain import WordChain
from rolecraft.worlds import HintedReply
from rolecraft.worlds._hinted_reply import OBSERVER, PIONEER

if TYPE_CHECKING:
    from rolecraft.learning import RoleExchange
    from rolecraft.learning.policy import Reply, TokenPolicy
    from rolecraft.learning.trainer import Rows, Trainer
    from rolecraft.systems.learning._cory_smoke import SmokeConfig
    from rolecraft.systems.learning.cory import Arm, Config

Penalty = Literal["full", "k3", "k1"]
STOP = ";"
"""Stands between the pioneer's answer and the query that is asked again."""


@dataclass(frozen=True)
class Task:
    """What all arms of a seed share."""

    chain: WordChain
    queries: tuple[str, ...]
    """Of training."""
    held_out: tuple[str, ...]
    """To choose a copy by."""
    test: tuple[str, ...]
    length: int
    """Words of an answer."""

    @classmethod
    def draw(cls, config: Config, seed: int) -> Task:
        """Draw the language and the queries of a seed."""
        chain = WordChain.draw(config.words, config.successors, derive_seed("cory", seed, "chain"))
        rng = np.random.default_rng(derive_seed("cory", seed, "queries"))
        training, held_out, test = (
            tuple(chain.text(row) for row in chain.sample(count, config.query, rng))
            for count in (config.queries, config.tests, config.tests)
        )
        return cls(chain, training, held_out, test, config.answer)

    def reward(self, query: str, answer: str) -> float:
        """Return how much the answer's words are liked, per word that it may have."""
        return self.chain.score(answer, self.length)

    def world(self, *, seats: int = 2, transfer: bool = True) -> HintedReply:
        """Return the world of training."""
        return HintedReply(self.queries, self.reward, merge, transfer=transfer, seats=seats)


def merge(query: str, answer: str) -> str:
    """Put the pioneer's answer before the query that is asked again."""
    return f"{query} {answer} {STOP} {query}"


def pretrain(config: Config, task: Task, seed: int) -> tuple[TokenPolicy, float]:
    """Return a tiny transformer that goes on as the chain does, with a hint before the query or without.

    Returns:
        The policy, and its mean loss over the last tenth of the steps, in nats per word.
    """
    from rolecraft.learning import fit_replies
    from rolecraft.learning.policy import Reply

    policy = new_policy(config, task, seed)
    rng = np.random.default_rng(derive_seed("cory", seed, "corpus"))
    asked = task.chain.sample(config.corpus, config.query, rng)
    answers, others = (task.chain.go_on(asked[:, -1], config.answer, rng) for _ in range(2))
    rows = []
    for number, texts in enumerate(zip(asked, answers, others, strict=True)):
        query, answer, other = map(task.chain.text, texts)
        agent, seen = (OBSERVER, merge(query, other)) if number % 2 else (PIONEER, query)
        rows.append(Reply(policy.encode(agent, None, seen), tuple(policy.codec.reply(answer))))
    losses = fit_replies(policy, rows, steps=config.pretraining, lr=config.pretraining_lr, seed=seed)
    return policy, float(np.mean(losses[-max(1, len(losses) // 10) :]))


def new_policy(config: Config, task: Task, seed: int) -> TokenPolicy:
    """Return an untrained policy with a critic over the chain's words."""
    from rolecraft.learning.policy import WordCodec, tiny_policy

    codec = WordCodec([*task.chain.words, STOP, PIONEER, OBSERVER])
    return tiny_policy(
        codec,
        layers=config.layers,
        hidden=config.hidden,
        context=2 * config.query + 2 * config.answer + 8,
        seed=derive_seed("cory", seed, "weights"),
        max_tokens=config.answer,
        critic=True,
    )


@dataclass(frozen=True)
class StrangersReward:
    """Add the reward of another row of the batch, drawn at random, less the batch's mean.

    It has mean 0 and the spread of the rewards, as a partner's has, and nothing to do with what the row's policy did.
    """

    seed: int

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Change the reward; the state counts the batches, so that each has a draw of its own."""
        count = int(carry.state.get("strangers", 0))
        rng = np.random.default_rng(derive_seed("strangers", self.seed, count))
        noise = rng.permutation(carry.reward) - carry.reward.mean()
        return replace(carry, reward=carry.reward + noise, state={**carry.state, "strangers": count + 1})


def credit_rule(config: Config | SmokeConfig, arm: Arm, eta: float, seed: int) -> list[Stage]:
    """Return an arm's stages: the reward pooled, paid at the last token with the KL at each, GAE, whitened apart."""
    options: dict[str, Any] = {"mode": arm.mode, "kl": eta, "gamma": config.gamma, "lam": config.lam}
    options |= {"reward": "outcome", "whiten": config.whiten}
    mix, *rest = make_rule({"name": "cory", **options})
    noise: list[Stage] = [StrangersReward(derive_seed("cory", seed, "noise"))] if arm.noise else []
    return [mix, *noise, *rest]


class KlCharge:
    """Token columns for `Gae.kl`, which pays -(logp_old - logp_ref): `logp_ref` set so that the gap is the penalty.

    The forms are `full`, the exact KL over the vocabulary at each token, never negative; `k3`, an estimate that is
    never negative either; and `k1`, the gap of the drawn token itself.
    """

    def __init__(self, policies: Mapping[str, TokenPolicy], form: Penalty) -> None:
        self._policies = policies
        self._form = form
        self.divergence: dict[str, float] = {}
        """Exact KL per reply of the last batch, by policy, in nats."""

    def __call__(self, rows: Rows) -> dict[str, Any]:
        """Return the column."""
        token = rows.batch.token
        exact = np.zeros(rows.batch.shape)
        for name, policy in self._policies.items():
            own = rows.of(name)
            if own:
                found = policy.divergence([rows.replies[row] for row in own]).numpy()
                exact[own, : found.shape[1]] = found
                self.divergence[name] = float(found.sum(1).mean())
        gap = token["logp_old"] - token["logp_ref"]
        charge = {"full": exact, "k3": np.expm1(-gap) + gap, "k1": gap}[self._form]
        return {"logp_ref": token["logp_old"] - charge}


def make_trainer(
    config: Config, arm: Arm, eta: float, seed: int, task: Task, base: TokenPolicy
) -> tuple[Trainer, RoleExchange | None, KlCharge]:
    """Return a trainer of copies of the base, who changes seats, and what the KL costs."""
    from rolecraft.learning import RoleExchange
    from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer

    names = ("first", "second")[: arm.seats]
    policies = {}
    for name in names:
        policies[name] = new_policy(config, task, seed)
        policies[name].load(base.parameters())
    train = TrainConfig(
        iterations=config.updates,
        episodes=config.batch * arm.batches,
        epochs=config.epochs,
        lr=config.lr,
        clip=config.clip,
        value=config.value,
        reference=True,
        monitor=MonitorConfig(action="off"),
    )
    charge = KlCharge(policies, config.penalty)
    trainer = Trainer(
        lambda: task.world(seats=arm.seats, transfer=arm.transfer),
        policies,
        credit_rule(config, arm, eta, seed),
        train,
        seed=derive_seed("cory", seed, "train"),
        columns=charge,
    )
    exchange = None
    if arm.seats > 1:
        every = config.exchange if arm.exchange else None
        exchange = RoleExchange((PIONEER, OBSERVER), names, every, rebuild=config.rebuild)
        exchange.bind(trainer)
    return trainer, exchange, charge


def answer_alone(policy: TokenPolicy, task: Task, queries: Sequence[str], seed: int) -> tuple[list[str], list[Reply]]:
    """Let a policy answer each query once as the pioneer does, and return the texts and the rows."""
    from rolecraft.learning.policy import Reply

    prompts = [policy.encode(PIONEER, None, query) for query in queries]
    seeds = [derive_seed("cory", seed, "answer", number) for number in range(len(queries))]
    drawn = policy.sample(prompts, [None] * len(prompts), seeds)
    rows = [Reply(tuple(prompt), each.tokens) for prompt, each in zip(prompts, drawn, strict=True)]
    texts = [policy.codec.text(each.tokens[:-1] if each.ended else each.tokens) for each in drawn]
    return texts, rows
