"""System 096: the language, the stages, the arms, what is measured, the verdict on made-up rows, and resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning.credit import Carry, CreditBatch, NoSignalWarning, Whiten, assign_credit
from rolecraft.systems import Result, put_row
from rolecraft.systems.learning import cory
from rolecraft.systems.learning._cory_training import (
    KlCharge,
    StrangersReward,
    Task,
    credit_rule,
    make_trainer,
    merge,
    new_policy,
    pretrain,
)
from rolecraft.systems.learning._language_step import distinct_share
from rolecraft.systems.learning._word_chain import WordChain
from rolecraft.systems.learning.cory import ARMS, CORNER, CURVES, Config, areas, examine, frontier, run, train, verdict

TINY = Config(
    seeds=(1,), etas=(0.1,), words=8, successors=2, query=2, answer=3, queries=16, tests=8, corpus=40, pretraining=2,
    layers=1, hidden=16, updates=2, batch=4, exchange=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def task():
    return Task.draw(TINY, 1)


@pytest.fixture(scope="module")
def base(task):
    policy, _ = pretrain(TINY, task, 1)
    policy.keep_reference()
    return policy


def batch(reward, agents=2, value=0.0, tokens=3, **token):
    n = len(reward)
    shape = (n, tokens)
    keys = {
        "traj": np.arange(n) // agents,
        "agent": np.arange(n) % agents,
        "policy": np.arange(n) % agents,
    }
    columns = {"value": np.full(shape, value), "logp_old": np.zeros(shape), "logp_ref": np.zeros(shape), **token}
    return CreditBatch(np.ones(shape, dtype=bool), keys, {"outcome": np.array(reward, dtype=float)}, columns)


def test_a_chain_is_sparse_and_its_texts_follow_it() -> None:
    chain = WordChain.draw(60, 6, 3)
    assert ((chain.odds > 0).sum(1) == 6).all()
    assert chain.odds.sum(1) == pytest.approx(np.ones(60))
    assert not chain.odds.diagonal().any()
    assert (chain.liking.mean(), chain.liking.std()) == (pytest.approx(0), pytest.approx(1))
    rng = np.random.default_rng(0)
    texts = chain.sample(20_000, 5, rng)
    counts = np.zeros((60, 60))
    np.add.at(counts, (texts[:, :-1].ravel(), texts[:, 1:].ravel()), 1)
    assert not counts[chain.odds == 0].any()
    seen = counts.sum(1, keepdims=True)
    assert np.abs(counts / seen - chain.odds)[seen[:, 0] > 500].max() < 0.1
    assert set(texts[:, 0]) == set(range(60))
    after = chain.go_on(np.full(50, 7), 2, rng)
    assert (chain.odds[7, after[:, 0]] > 0).all()
    assert (chain.odds[after[:, 0], after[:, 1]] > 0).all()
    assert chain.score("w0 w1 nothing", 4) == pytest.approx((chain.liking[0] + chain.liking[1]) / 4)
    assert chain.score("", 4) == 0
    with pytest.raises(UserError, match="successors"):
        WordChain.draw(5, 5, 0)


def test_the_base_has_learnt_the_chain_in_both_layouts(task) -> None:
    config = replace(TINY, corpus=2000, pretraining=150)
    policy, loss = pretrain(config, task, 1)
    assert loss < 0.6 * np.log(8)
    chain = task.chain
    follow = [chain.words[n] for n in np.flatnonzero(chain.odds[chain.words.index("w2")])]
    for agent, seen in (("pioneer", "w1 w2"), ("observer", merge("w1 w2", "w3 w4 w5"))):
        options = policy.options(task.chain.words)
        (odds,) = policy.odds([policy.encode(agent, None, seen)], [options])
        assert sum(odds[word] for word in follow) > 0.8
    assert policy.codec.unknown == 0


def test_the_sum_is_paid_to_both_at_the_last_token() -> None:
    """Rewards 1 and 3: with lam = 1 and a critic of 0 every token of both has 4; own 1 and 3; competitive -2 and 2."""
    expected = {"cory": [4, 4], "ppo": [1, 3], "competitive": [-2, 2]}
    for arm, values in expected.items():
        rule = credit_rule(replace(TINY, lam=1.0, whiten=False), ARMS[arm], 0.1, 1)
        given = assign_credit(batch([1, 3]), rule)
        assert given.advantages == pytest.approx(np.repeat(np.array(values, dtype=float)[:, None], 3, 1))
        assert given.targets == pytest.approx(given.advantages)
    rule = credit_rule(replace(TINY, lam=0.5, whiten=False), ARMS["cory"], 0.1, 1)
    assert assign_credit(batch([1, 3]), rule).advantages[0] == pytest.approx([1, 2, 4])


def test_the_kl_is_paid_at_every_token() -> None:
    rule = credit_rule(replace(TINY, lam=1.0, whiten=False), ARMS["cory"], 0.1, 1)
    gap = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    given = assign_credit(batch([1, 3], logp_old=-np.ones((2, 3)) + gap, logp_ref=-np.ones((2, 3))), rule)
    assert given.advantages == pytest.approx(np.array([[4 - 0.3, 4 - 0.2, 4 - 0.2], [4, 4, 4]]))


def test_constant_rewards_and_a_critic_that_knows_them_are_no_signal() -> None:
    known = batch([1, 1, 1, 1], value=2.0)
    with pytest.warns(NoSignalWarning):
        given = assign_credit(known, credit_rule(replace(TINY, whiten=True), ARMS["cory"], 0.1, 1))
    assert not given.advantages.any()


def test_each_policy_is_whitened_apart() -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=(8, 3)) * np.where(np.arange(8) % 2, 10.0, 1.0)[:, None] + np.arange(8)[:, None] % 2
    rows = batch(np.zeros(8))
    keep = np.arange(8) < 6
    carry = Carry(np.zeros(8), np.zeros(8), np.ones(8), keep, given)
    *_, last = credit_rule(replace(TINY, whiten=True), ARMS["cory"], 0.1, 1)
    assert last == Whiten("tokens", ("policy",))
    found = last(rows, carry).token_advantage
    for policy in (0, 1):
        own = (np.arange(8) % 2 == policy) & keep
        plain = (given[own] - given[own].mean()) / given[own].std()
        assert found[own] == pytest.approx(plain, rel=1e-6)


def test_a_strangers_reward_is_noise_of_mean_0_and_the_same_spread() -> None:
    rng = np.random.default_rng(1)
    reward = rng.normal(2, 3, size=2000)
    rows = batch(reward)
    carry = Carry(reward, np.zeros(2000), np.ones(2000), np.ones(2000, dtype=bool))
    first = StrangersReward(5)(rows, carry)
    noise = first.reward - reward
    assert noise.mean() == pytest.approx(0, abs=1e-9)
    assert noise.std() == pytest.approx(reward.std())
    assert abs(np.corrcoef(noise, reward)[0, 1]) < 0.08
    again = StrangersReward(5)(rows, replace(carry, state=first.state))
    assert np.array_equal(StrangersReward(5)(rows, carry).reward, first.reward)
    assert not np.array_equal(again.reward, first.reward)
    assert again.state == {"strangers": 2}
    rule = credit_rule(replace(TINY, whiten=False), ARMS["ppo-noise"], 0.1, 1)
    paid = assign_credit(batch([1, 3, 5, 9], agents=1), rule)
    assert sorted(paid.advantages[:, -1] - [1, 3, 5, 9]) == pytest.approx([1 - 4.5, 3 - 4.5, 5 - 4.5, 9 - 4.5])
    assert paid.state["strangers"] == 1


@pytest.mark.parametrize("form", ["full", "k3", "k1"])
def test_what_the_kl_costs(task, base, form) -> None:
    trainer, exchange, charge = make_trainer(replace(TINY, penalty=form, lr=0.05), ARMS["cory"], 0.1, 1, task, base)
    exchange.step(trainer)
    assert charge.divergence == pytest.approx({"first": 0, "second": 0}, abs=1e-5)
    starts = trainer.starts()
    rows = trainer.rows(trainer.collect(starts), starts)
    token, mask = rows.batch.token, rows.batch.mask
    found = (token["logp_old"] - token["logp_ref"])[mask]
    assert np.abs(found).max() > 1e-3
    with torch.no_grad():
        plain = [
            trainer.policies[name].score([reply], reference=True).logp[0].numpy()
            for name, reply in zip(rows.policies, rows.replies, strict=True)
        ]
    gap = token["logp_old"][mask] - np.concatenate(plain)
    exact = np.concatenate(
        [
            trainer.policies[name].divergence([reply])[0].numpy()
            for name, reply in zip(rows.policies, rows.replies, strict=True)
        ]
    )
    assert found == pytest.approx({"k1": gap, "k3": np.exp(-gap) - 1 + gap, "full": exact}[form], abs=1e-5)
    if form == "k1":
        assert found.min() < 0  # on few tokens the log-ratio may say that a policy is nearer than near
    else:
        assert found.min() >= -1e-6
    names = np.array(rows.policies)[np.repeat(np.arange(len(mask)), mask.sum(1))]
    for name, value in charge.divergence.items():
        assert value == pytest.approx(exact[names == name].sum() / rows.policies.count(name), rel=1e-4)


def test_arms_differ_in_what_they_say_they_differ_in(task, base) -> None:
    seen = {}
    for arm in ARMS:
        trainer, exchange, _ = make_trainer(TINY, ARMS[arm], 0.1, 1, task, base)
        assert len(trainer.policies) == ARMS[arm].seats
        assert (exchange is None) == (ARMS[arm].seats == 1)
        for policy in trainer.policies.values():
            for name, parameter in policy.parameters().items():
                assert torch.equal(parameter, base.parameters()[name])
        starts = trainer.starts()
        seen[arm] = [episode.turns for episode in trainer.collect(starts)]
    queries = {arm: [turns[0].observation for turns in found] for arm, found in seen.items()}
    assert queries["ppo-doubled"][:4] == queries["ppo"] == queries["cory"]
    assert len(queries["ppo-doubled"]) == 8
    for pioneer, observer in seen["cory"]:
        assert observer.observation == merge(pioneer.observation, pioneer.action)
    for pioneer, observer in seen["no-transfer"]:
        assert observer.observation == pioneer.observation
    pioneers = {}
    for arm in ("cory", "no-exchange"):
        trainer, exchange, _ = make_trainer(TINY, ARMS[arm], 0.1, 1, task, base)
        pioneers[arm] = [exchange.step(trainer).episodes[0].turns[0].notes["policy"] for _ in range(2)]
    assert pioneers == {"cory": ["first", "second"], "no-exchange": ["first", "first"]}


def test_the_pioneer_of_the_last_update_comes_first(task, base) -> None:
    orders = {
        (arm, updates): list(train(replace(TINY, updates=updates), arm, 0.1, 1, task, base)[0])
        for arm, updates in (("cory", 2), ("cory", 3), ("no-exchange", 2))
    }
    assert orders == {
        ("cory", 2): ["second", "first"],
        ("cory", 3): ["first", "second"],
        ("no-exchange", 2): ["first", "second"],
    }


def test_ppo_learns_what_is_liked(task) -> None:
    config = replace(TINY, corpus=1000, pretraining=60, updates=25, batch=32, lr=5e-3, tests=64, penalty="k1")
    start, _ = pretrain(config, task, 1)
    start.keep_reference()
    before = cory.measure(start, task, task.test, 0.01, 1)
    policies, curves = train(config, "ppo", 0.01, 1, task, start)
    after = examine(config, policies, 0.01, task, 1)
    assert before["kl"] == 0
    assert before["combined"] == before["reward"]
    assert after["reward"] > before["reward"] + 0.3
    assert after["kl"] > 0.5
    assert after["combined"] == pytest.approx(after["reward"] - 0.01 * after["kl"])
    assert len(curves["kl/first"]) == 25
    assert train(config, "ppo", 0.01, 1, task, start)[1] == curves


def test_the_better_copy_is_chosen_on_other_queries(task, base, monkeypatch) -> None:
    copies = {"first": new_policy(TINY, task, 1), "second": new_policy(TINY, task, 1)}
    values = {"first": {"test": 5.0, "held_out": 1.0}, "second": {"test": 2.0, "held_out": 3.0}}

    def measured(policy, given, queries, eta, seed):
        name = next(name for name, each in copies.items() if each is policy)
        kind = "test" if queries is task.test else "held_out"
        return {"combined": values[name][kind], "kl": values[name][kind]}

    monkeypatch.setattr(cory, "measure", measured)
    assert examine(TINY, copies, 0.1, task, 1) == {"combined": 5.0, "kl": 5.0, "kl_gap": 3.0}
    assert examine(replace(TINY, keep="best"), copies, 0.1, task, 1)["combined"] == 2.0


def test_distinct_share_is_over_all_texts() -> None:
    assert distinct_share(["a b c", "a b d"]) == 3 / 4
    assert distinct_share(["a a a a"]) == 1 / 3
    assert distinct_share(["a b c"], 3) == 1
    assert distinct_share(["a", ""]) == 0


def test_an_observer_that_says_the_same_again_is_counted(task) -> None:
    world = task.world()
    for first, second, copied in (("w1 w2", "w1  w2", True), ("w1", "w2", False)):
        world.reset(0)
        world.act({"pioneer": first})
        world.act({"observer": second})
        assert world.outcome()["copied"] is copied
    assert len(set(world.rewards().values())) == 2


def test_all_arms_are_run_and_resumed(tmp_path: Path, monkeypatch) -> None:
    config = replace(TINY, arms=tuple(ARMS), seeds=(1, 2))
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run(config, store)
        curves = store.rows(CURVES)
    assert len(result.rows) == len(curves) == len(ARMS) * 2
    assert all(np.isfinite(value) for row in result.rows for value in row.values() if not isinstance(value, str))
    trained, real = [], cory.train
    monkeypatch.setattr(cory, "train", lambda *given: trained.append(given[1:4]) or real(*given))
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows:
            if row["seed"] == 1 or row["arm"] != "cory":
                put_row(store, **row)
        resumed = run(config, store)
    assert trained == [("cory", 0.1, 2)]
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))
    assert verdict(result).verdict in ("reproduced", "not reproduced", "inconclusive")


OFFSETS = {"ppo": (1, -1, 1, -1), "ppo-noise": (-1, 1, -1, 1), "cory": (1, 1, -1, -1), "no-transfer": (1, -1, -1, 1)}


def made_up(effect=0.0, noise=0.0, transfer=None, spread=0.001):
    """Return rows whose combined reward is above PPO's by these; at a weight of 0.05 everything is the other way."""
    rows = []
    gains = {"ppo": 0.0, "ppo-noise": noise, "cory": effect} | ({} if transfer is None else {"no-transfer": transfer})
    for seed in range(4):
        for eta in (0.05, 0.1, 0.2):
            for arm, gain in gains.items():
                combined = (gain if eta >= 0.1 else -gain) + spread * OFFSETS[arm][seed]
                figures = {"combined": combined, "kl": 10 - gain, "reward": combined + eta * (10 - gain)}
                rows.append(
                    {"arm": arm, "seed": seed, "unit": f"{seed}:{eta}", "eta": eta, **figures, "collapsed": False}
                )
    return Result(tuple(rows))


def test_the_verdict() -> None:
    good = verdict(made_up(effect=0.2, transfer=0.2))
    assert good.verdict == "reproduced"
    assert good.effect.estimate == pytest.approx(0.2, abs=0.01)
    assert good.control.estimate == pytest.approx(0, abs=0.01)
    assert "without transfer over PPO 0.2" in good.note
    assert "transfer" not in verdict(made_up(effect=0.2)).note
    assert verdict(made_up(effect=0.0)).verdict != "reproduced"
    assert verdict(made_up(effect=-0.2)).verdict == "not reproduced"
    assert verdict(made_up(effect=0.2, noise=0.2)).verdict == "not reproduced"
    assert verdict(made_up(effect=0.3, noise=0.1)).verdict == "not reproduced"
    assert verdict(made_up(effect=0.2, noise=-0.1)).verdict == "reproduced"
    assert verdict(made_up(effect=0.1, spread=0.5)).verdict == "inconclusive"


def test_frontier_and_area() -> None:
    rows = [
        {
            "arm": "a",
            "seed": 1,
            "unit": "1:0.1",
            "eta": 0.1,
            "reward": 1.0,
            "kl": 10.0,
            "combined": 0.0,
            "collapsed": False,
        },
        {
            "arm": "a",
            "seed": 1,
            "unit": "1:0.2",
            "eta": 0.2,
            "reward": 0.5,
            "kl": 5.0,
            "combined": 0.0,
            "collapsed": False,
        },
        {
            "arm": "b",
            "seed": 1,
            "unit": "1:0.1",
            "eta": 0.1,
            "reward": 0.9,
            "kl": 12.0,
            "combined": 0.0,
            "collapsed": True,
        },
    ]
    table = frontier(Result(tuple(rows)))
    assert [row["front"] for row in table] == [True, True, False]
    assert [(row["arm"], row["eta"]) for row in table] == [("a", 0.1), ("a", 0.2), ("b", 0.1)]
    assert [row["collapsed"] for row in table] == [0, 0, 1]
    assert CORNER == (0.0, -20.0)
    found = {row["arm"]: row["area"] for row in areas(Result(tuple(rows))).rows}
    assert found == pytest.approx({"a": 1.0 * 10 + 0.5 * 5, "b": 0.9 * 8})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arms": ("ppo", "cori")}, "Did you mean 'cory'"),
        ({"arms": ("ppo", "cory")}, "ppo-noise is left out"),
        ({"etas": (0.05,)}, "one of at least 0.1"),
        ({"etas": ()}, "one of at least 0.1"),
        ({"etas": (0.1, -1.0)}, "above 0"),
        ({"updates": 0}, "at least 1"),
    ],
)
def test_bad_input(wrong, message) -> None:
    with pytest.raises(UserError, match=message):
        replace(TINY, **wrong)


def test_copies_must_read_alike(task, base) -> None:
    trainer, exchange, _ = make_trainer(TINY, ARMS["cory"], 0.1, 1, task, base)
    trainer.policies["second"] = new_policy(replace(TINY, hidden=24), task, 1)
    with pytest.raises(UserError, match="another base"):
        exchange.bind(trainer)
    assert KlCharge({}, "full").divergence == {}
