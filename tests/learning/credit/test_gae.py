from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    BilevelGae,
    CreditBatch,
    DegenerateTurnsWarning,
    Gae,
    assign_credit,
    bilevel_gae,
    gae,
    make_rule,
)

from ._random import random_batch, take_rows, with_rows

share = st.sampled_from([0.0, 0.3, 0.95, 1.0])


def slow_gae(rewards, values, mask, gamma, lam, bootstrap):
    advantage = np.zeros(values.shape)
    for row in range(len(values)):
        following, later = bootstrap[row], 0.0
        for token in reversed(range(values.shape[1])):
            if not mask[row, token]:
                continue
            delta = rewards[row, token] + gamma * following - values[row, token]
            later = advantage[row, token] = delta + gamma * lam * later
            following = values[row, token]
    return advantage


def drawn(seed, n=4, width=7, turns=3):
    rng = np.random.default_rng(seed)
    return {
        "values": rng.normal(size=(n, width)),
        "mask": rng.random((n, width)) < 0.6,
        "turn_id": np.sort(rng.integers(turns, size=(n, width)), axis=1),
        "turn_rewards": rng.normal(size=(n, turns)),
        "kl_rewards": rng.normal(size=(n, width)),
        "turn_keep": rng.random((n, turns)) < 0.8,
        "bootstrap": rng.normal(size=n),
    }


@given(st.integers(0, 10**6), share, share)
@settings(max_examples=60, deadline=None)
def test_token_gae_is_the_formula(seed, gamma, lam):
    arrays = drawn(seed)
    rewards, values, mask = arrays["kl_rewards"], arrays["values"], arrays["mask"]
    advantage, targets = gae(rewards, values, mask, gamma, lam, bootstrap=arrays["bootstrap"])
    np.testing.assert_allclose(advantage, slow_gae(rewards, values, mask, gamma, lam, arrays["bootstrap"]), atol=1e-10)
    np.testing.assert_allclose(targets, np.where(mask, advantage + values, 0), atol=1e-10)
    ended, _ = gae(rewards, values, mask, gamma, lam)
    np.testing.assert_allclose(ended, slow_gae(rewards, values, mask, gamma, lam, np.zeros(4)), atol=1e-10)


def slow_bilevel(values, mask, turn_id, turn_rewards, kl_rewards, turn_keep, bootstrap, gammas, variant):
    """Steps 5 to 7 of the dossier, token by token; a turn without tokens hands its reward to the one before."""
    turn_gamma, turn_lam, gamma, lam = gammas
    advantage = np.zeros(values.shape)
    for row in range(len(values)):
        tokens = {
            k: [t for t in np.flatnonzero(mask[row]) if turn_id[row, t] == k] for k in range(turn_rewards.shape[1])
        }
        spoken = [k for k in tokens if tokens[k]]
        earned = dict.fromkeys(spoken, 0.0)
        for k in tokens:
            before = [s for s in spoken if s <= k]
            if before:
                earned[before[-1]] += turn_rewards[row, k]
        following, later = bootstrap[row], 0.0
        for k in reversed(spoken):
            last = tokens[k][-1]
            later = earned[k] + turn_gamma * following - values[row, last] + turn_gamma * turn_lam * later
            own = later if turn_keep[row, k] else 0.0
            advantage[row, last] = kl_rewards[row, last] + own
            if variant == "end_value":
                advantage[row, last] += gamma * following - values[row, last]
            for token, after in reversed(list(zip(tokens[k], tokens[k][1:], strict=False))):
                delta = kl_rewards[row, token] + gamma * values[row, after] - values[row, token]
                advantage[row, token] = delta + gamma * lam * advantage[row, after]
            following = values[row, last]
    return advantage


@given(st.integers(0, 10**6), share, share, share, share, st.sampled_from(["plain", "end_value"]))
@settings(max_examples=80, deadline=None)
def test_bilevel_gae_is_the_formula(seed, turn_gamma, turn_lam, gamma, lam, variant):
    arrays = drawn(seed)
    advantage, targets = bilevel_gae(
        **arrays, turn_gamma=turn_gamma, turn_lam=turn_lam, gamma=gamma, lam=lam, variant=variant
    )
    expected = slow_bilevel(**arrays, gammas=(turn_gamma, turn_lam, gamma, lam), variant=variant)
    np.testing.assert_allclose(advantage, expected, atol=1e-10)
    np.testing.assert_allclose(targets, np.where(arrays["mask"], expected + arrays["values"], 0), atol=1e-10)


def test_turns_of_one_token_are_turn_gae():
    rng = np.random.default_rng(0)
    values, rewards = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    mask, turn_id = np.ones((3, 5), dtype=bool), np.tile(np.arange(5), (3, 1))
    both, _ = bilevel_gae(values, mask, turn_id, rewards, turn_gamma=0.9, turn_lam=0.8, gamma=0.3, lam=0.2)
    np.testing.assert_allclose(both, gae(rewards, values, mask, 0.9, 0.8)[0])


def test_a_single_turn_is_token_gae_with_a_terminal_reward():
    values = np.random.default_rng(1).normal(size=(3, 5))
    mask = np.ones((3, 5), dtype=bool)
    rewards = np.zeros((3, 5))
    rewards[:, -1] = [1, 2, 3]
    both, _ = bilevel_gae(values, mask, np.zeros((3, 5), int), rewards[:, -1:], gamma=1, lam=1)
    np.testing.assert_allclose(both, gae(rewards, values, mask, 1, 1)[0])


def test_a_degenerate_turn_gets_no_credit_and_the_turns_before_it_keep_theirs():
    arrays = {**drawn(5), "mask": np.ones((4, 7), dtype=bool), "turn_id": np.tile([0, 0, 1, 1, 1, 2, 2], (4, 1))}
    arrays["kl_rewards"] = np.zeros((4, 7))
    all_kept = bilevel_gae(**{**arrays, "turn_keep": np.ones((4, 3), bool)}, lam=0.5)[0]
    filtered = bilevel_gae(**{**arrays, "turn_keep": np.tile([True, False, True], (4, 1))}, lam=0.5)[0]
    assert (filtered[:, 4] == 0).all()
    np.testing.assert_allclose(filtered[:, :2], all_kept[:, :2])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"turn_id": np.tile([0, 1, 0, 1, 1, 1, 2], (4, 1)), "mask": np.ones((4, 7), bool)}, "turn ids of row 0 fall"),
        (
            {"turn_id": np.full((4, 7), 3), "mask": np.ones((4, 7), bool)},
            "token of turn 3; turn_rewards has turns 0 to 2",
        ),
        ({"values": np.full((4, 7), np.nan)}, "values holds nan in row 0"),
        ({"turn_rewards": np.full((4, 3), np.inf)}, "turn reward of row 0"),
        ({"turn_rewards": np.zeros(4)}, "shape (4, turns)"),
        ({"values": np.zeros((4, 6))}, "values of shape (4, 7)"),
        ({"turn_gamma": 1.2}, "turn_gamma lies in [0, 1], got 1.2"),
    ],
)
def test_bad_input_is_named(change, words):
    with pytest.raises(UserError) as error:
        bilevel_gae(**{**drawn(0), **change})
    assert words in str(error.value)


def as_rows(seed):
    """A batch of turns as rows, and the same as one row per participant, for the array functions."""
    batch = random_batch(seed, trajectories=3, agents=2, turns=3, width=4)
    chains, width = 6, 12
    arrays = {
        "values": batch.token["value"].reshape(chains, width),
        "mask": batch.mask.reshape(chains, width),
        "turn_id": np.tile(np.repeat(np.arange(3), 4), (chains, 1)),
        "kl_rewards": -0.1 * (batch.token["logp_old"] - batch.token["logp_ref"]).reshape(chains, width),
        "bootstrap": batch.row["value_next"].reshape(chains, 3)[:, -1],
    }
    return batch, arrays


@pytest.mark.parametrize("variant", ["plain", "end_value"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_the_stage_over_turns_is_the_function_over_participants(variant, shuffled):
    batch, arrays = as_rows(2)
    good = (np.arange(18) % 5 > 0).astype(float)
    batch = with_rows(batch, good=good)
    rewards = np.zeros((6, 3))
    rewards[:, -1] = batch.row["outcome"].reshape(6, 3)[:, -1]
    order = np.random.default_rng(0).permutation(18) if shuffled else np.arange(18)
    stage = BilevelGae(0.9, 0.8, 0.7, 0.6, kl=0.1, variant=variant, quality="good", bootstrap="value_next")
    result = assign_credit(take_rows(batch, order), [stage])
    advantage, targets = bilevel_gae(
        **arrays, turn_rewards=rewards, turn_keep=good.reshape(6, 3) > 0, variant=variant,
        turn_gamma=0.9, turn_lam=0.8, gamma=0.7, lam=0.6,
    )  # fmt: skip
    np.testing.assert_allclose(result.advantages, advantage.reshape(18, 4)[order], atol=1e-12)
    np.testing.assert_allclose(result.targets, targets.reshape(18, 4)[order], atol=1e-12)
    assert result.info["bilevel_gae/filtered"] == pytest.approx(1 - good.mean())
    flat = targets[arrays["mask"]]
    explained = 1 - np.var(flat - arrays["values"][arrays["mask"]]) / np.var(flat)
    assert result.info["bilevel_gae/explained_variance"] == pytest.approx(explained)


@pytest.mark.parametrize("shuffled", [False, True])
def test_tokens_of_a_chain_of_rows_are_one_sequence(shuffled):
    batch, arrays = as_rows(3)
    order = np.random.default_rng(0).permutation(18) if shuffled else np.arange(18)
    rewards, mask = arrays["kl_rewards"].copy(), arrays["mask"]
    last = 11 - mask[:, ::-1].argmax(1)
    rewards[np.arange(6), last] += batch.row["outcome"].reshape(6, 3)[:, -1]
    expected, targets = gae(rewards, arrays["values"], mask, 0.9, 0.8, bootstrap=arrays["bootstrap"])
    stage = Gae(0.9, 0.8, keys=("traj", "agent"), kl=0.1, bootstrap="value_next")
    result = assign_credit(take_rows(batch, order), [stage])
    np.testing.assert_allclose(result.advantages, expected.reshape(18, 4)[order], atol=1e-12)
    np.testing.assert_allclose(result.targets, targets.reshape(18, 4)[order], atol=1e-12)


def test_turn_level_gae_gives_a_turns_tokens_its_advantage():
    batch, _ = as_rows(4)
    rewards = batch.row["reward"].reshape(6, 3)
    result = assign_credit(with_rows(batch, outcome=batch.row["reward"]), [
        Gae(0.9, 0.8, level="turn", keys=("traj", "agent"), terminal=False)
    ])  # fmt: skip
    end = np.array([row.nonzero()[0][-1] for row in batch.mask])
    values = batch.token["value"][np.arange(18), end].reshape(6, 3)
    expected, _ = gae(rewards, values, np.ones((6, 3), bool), 0.9, 0.8)
    np.testing.assert_allclose(result.advantages, expected.reshape(18, 1) * batch.mask, atol=1e-12)
    np.testing.assert_allclose(result.targets, (expected + values).reshape(18, 1) * batch.mask, atol=1e-12)


def test_a_silent_rows_reward_goes_to_the_turn_before_it():
    batch, _ = as_rows(5)
    mask = batch.mask.copy()
    mask[batch.keys["turn"] == 2] = False
    silent = replace(batch, mask=mask)
    last = BilevelGae(0.9, 0.8)
    result = assign_credit(silent, [last])
    shorter = assign_credit(take_rows(silent, mask.any(1)), [last])
    np.testing.assert_allclose(result.advantages[mask.any(1)], shorter.advantages)


def test_participants_without_a_known_reward_are_left_out():
    batch, _ = as_rows(6)
    valid = ~((batch.keys["traj"] == 1) & (batch.keys["agent"] == 0))
    result = assign_credit(replace(batch, valid=valid), make_rule("omar"))
    assert result.keep.tolist() == valid.tolist()
    only = assign_credit(take_rows(batch, valid), make_rule("omar"))
    np.testing.assert_allclose(result.advantages[valid], only.advantages)


def test_an_unknown_last_reward_leaves_its_whole_chain_out():
    batch, _ = as_rows(6)
    last = (batch.keys["traj"] == 1) & (batch.keys["agent"] == 0) & (batch.keys["turn"] == 2)
    for stage in (BilevelGae(), Gae(keys=("traj", "agent"))):
        result = assign_credit(replace(batch, valid=~last), [stage])
        assert result.keep.tolist() == (~((batch.keys["traj"] == 1) & (batch.keys["agent"] == 0))).tolist()
    own = assign_credit(replace(batch, valid=~(batch.keys["turn"] == 0)), [BilevelGae(terminal=False)])
    assert own.keep.tolist() == (batch.keys["turn"] > 0).tolist()


def test_permuting_the_seats_permutes_the_advantages():
    batch, _ = as_rows(7)
    turned = replace(batch, keys={**batch.keys, "agent": 1 - batch.keys["agent"]})
    one, other = assign_credit(batch, make_rule("omar")), assign_credit(turned, make_rule("omar"))
    np.testing.assert_allclose(one.advantages, other.advantages)


def test_a_participant_without_a_good_turn_is_warned_of():
    batch, _ = as_rows(8)
    chain = 2 * batch.keys["traj"] + batch.keys["agent"]
    with pytest.warns(DegenerateTurnsWarning):
        result = assign_credit(with_rows(batch, good=(chain != 3).astype(float)), [BilevelGae(quality="good")])
    assert result.info["bilevel_gae/silenced"] == 1
    assert result.info["bilevel_gae/filtered"] == pytest.approx(1 / 6)


def test_a_policy_gone_astray_stops_the_run():
    batch, _ = as_rows(8)
    poor = with_rows(batch, good=(np.arange(18) % 2).astype(float))
    with pytest.raises(UserError, match="50% of the turns are marked as degenerate, more than 30%"):
        assign_credit(poor, make_rule({"name": "omar", "quality": "good"}))


def test_cory_pays_both_agents_the_sum_at_their_last_token():
    batch = CreditBatch(
        np.array([[True, True], [True, False], [True, True]]),
        {"traj": np.array([0, 0, 1]), "agent": np.array([0, 1, 0])},
        {"reward": np.array([1.0, 2, 5])},
        {
            "value": np.zeros((3, 2)),
            "logp_old": np.array([[-1.0, -1], [-2, 0], [0, 0]]),
            "logp_ref": np.array([[-1.5, -1], [-2, 0], [0, 0]]),
        },
    )
    found = {}
    for mode in ("sum", "own", "competitive"):
        found[mode] = assign_credit(batch, make_rule({"name": "cory", "mode": mode, "lam": 1.0, "kl": 0.2})).advantages
    np.testing.assert_allclose(found["sum"], [[3 - 0.2 * 0.5, 3], [3, 0], [5, 5]])
    np.testing.assert_allclose(found["own"], [[1 - 0.2 * 0.5, 1], [2, 0], [5, 5]])
    np.testing.assert_allclose(found["competitive"], [[-1 - 0.2 * 0.5, -1], [1, 0], [5, 5]])


def test_options_that_do_not_fit_are_refused():
    for stage, options in (
        (Gae, {"level": "row"}),
        (Gae, {"level": "turn", "kl": 0.1}),
        (BilevelGae, {"variant": "x"}),
    ):
        with pytest.raises(UserError):
            stage(**options)
    with pytest.raises(UserError, match="kl is 0 or more"):
        Gae(kl=-1)
