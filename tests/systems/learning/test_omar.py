"""System 043: exact checks of the credit on played conversations, the arms, the verdict on made-up rows, resuming."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning.credit import BilevelGae, Gae, assign_credit
from rolecraft.learning.trainer import Rows, Trainer
from rolecraft.systems import Result, put_row
from rolecraft.systems.learning import omar
from rolecraft.systems.learning.omar import (
    ARMS,
    CONTROL,
    RULES,
    Config,
    ParticipantsAsGroup,
    credit_rule,
    evaluate,
    judged,
    make_trainer,
    run,
    train,
    verdict,
)
from rolecraft.worlds import Episode

TINY = Config(seeds=(1,), updates=2, episodes=6, epochs=1, tests=4, hidden=16)


@cache
def played(arm: str = "hierarchical", seats: int = 2) -> tuple[Trainer, list[Episode], Rows]:
    """Return a trainer with rows of its first update, whose critic says something else of every token."""
    trainer = make_trainer(replace(TINY, seats=seats, episodes=24), arm, 1)
    starts = trainer.starts()
    episodes = trainer.collect(starts)
    rows = trainer.rows(episodes, starts)
    values = np.random.default_rng(0).normal(size=rows.batch.shape)
    return trainer, episodes, rows.with_tokens(value=values)


def by_participant(rows: Rows) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for row in np.lexsort((rows.batch.keys["turn"], rows.batch.keys["agent"], rows.batch.keys["traj"])):
        found.setdefault((int(rows.batch.keys["traj"][row]), int(rows.batch.keys["agent"][row])), []).append(int(row))
    return found


def slow_bilevel(rows: Rows, turn_lam: float, lam: float) -> np.ndarray[Any, Any]:
    """Write the dossier's two recursions out, participant by participant, turn by turn, token by token."""
    advantage, value = np.zeros(rows.batch.shape), rows.batch.token["value"]
    for own in by_participant(rows).values():
        turn_later, value_later = 0.0, 0.0
        for place, row in enumerate(reversed(own)):
            tokens = np.flatnonzero(rows.batch.mask[row])
            last = value[row, tokens[-1]]
            reward = rows.batch.row["outcome"][row] if place == 0 else 0.0
            turn_later = reward + value_later - last + turn_lam * turn_later
            value_later = last
            later = turn_later
            advantage[row, tokens[-1]] = later
            for token, following in zip(tokens[-2::-1], tokens[:0:-1], strict=True):
                later = value[row, following] - value[row, token] + lam * later
                advantage[row, token] = later
    return advantage


@pytest.mark.parametrize("seats", [2, 3])
@pytest.mark.parametrize(("turn_lam", "lam"), [(0.95, 1.0), (0.5, 0.7)])
def test_the_credit_of_played_conversations_is_the_formula(seats: int, turn_lam: float, lam: float) -> None:
    _, _, rows = played(seats=seats)
    assert (rows.batch.lengths > 0).all()
    assert max(map(len, by_participant(rows).values())) == 6 // seats
    found = assign_credit(rows.batch, [BilevelGae(turn_lam=turn_lam, lam=lam)]).advantages
    np.testing.assert_allclose(found, slow_bilevel(rows, turn_lam, lam), atol=1e-12)


def test_turns_of_one_token_are_turn_gae_and_a_single_turn_is_token_gae() -> None:
    _, _, rows = played()
    last = np.zeros_like(rows.batch.mask)
    last[np.arange(len(last)), rows.batch.mask.shape[1] - 1 - rows.batch.mask[:, ::-1].argmax(1)] = True
    one_token = replace(rows.batch, mask=last)
    own = ("traj", "agent")
    both = assign_credit(one_token, [BilevelGae(turn_lam=0.8)]).advantages
    np.testing.assert_allclose(both, assign_credit(one_token, [Gae(lam=0.8, level="turn", keys=own)]).advantages)
    single = replace(rows.batch, keys={**rows.batch.keys, "agent": np.arange(len(last))})
    both = assign_credit(single, [BilevelGae(turn_lam=0.8)]).advantages
    np.testing.assert_allclose(both, assign_credit(single, [Gae(lam=1.0, keys=own)]).advantages, atol=1e-12)


def test_what_others_say_gets_no_gradient() -> None:
    """Only a seat's own words are in its row's reply, and words that were forced are masked."""
    trainer, _, rows = played()
    codec = trainer.policies["policy"].codec
    for row, turn in enumerate(rows.turns):
        tokens = rows.replies[row].tokens
        assert tokens == tuple(codec.reply(turn.action))
        assert rows.batch.mask[row].sum() == {"offer": 4, "promise": 2}.get(turn.action.split()[0], 1)
    others = replace(rows.batch, valid=rows.batch.keys["agent"] == 0)
    credit = assign_credit(others, trainer.credit)
    assert not credit.advantages[rows.batch.keys["agent"] == 1].any()
    assert credit.advantages[rows.batch.keys["agent"] == 0].any()


def test_rewards_of_one_seat_do_not_reach_the_other() -> None:
    _, _, rows = played()
    richer = rows.batch.row["outcome"] + (rows.batch.keys["agent"] == 1)
    changed = replace(rows.batch, row={**rows.batch.row, "outcome": richer})
    one, other = (assign_credit(batch, [BilevelGae()]).advantages for batch in (rows.batch, changed))
    first = rows.batch.keys["agent"] == 0
    np.testing.assert_array_equal(one[first], other[first])
    assert (one[~first] != other[~first]).any(1).all()


def test_permuting_the_seats_permutes_the_advantages() -> None:
    _, _, rows = played(seats=3)
    turned = replace(rows.batch, keys={**rows.batch.keys, "agent": (rows.batch.keys["agent"] + 1) % 3})
    order = np.random.default_rng(1).permutation(rows.batch.shape[0])
    shuffled = replace(
        rows.batch,
        mask=rows.batch.mask[order],
        keys={name: column[order] for name, column in rows.batch.keys.items()},
        row={name: column[order] for name, column in rows.batch.row.items()},
        token={name: column[order] for name, column in rows.batch.token.items()},
        valid=rows.batch.known[order],
    )
    for rule in RULES:
        stages = credit_rule(TINY, rule)
        plain = assign_credit(rows.batch, stages).advantages
        np.testing.assert_allclose(assign_credit(turned, stages).advantages, plain, atol=1e-12)
        np.testing.assert_allclose(assign_credit(shuffled, stages).advantages, plain[order], atol=1e-12)


def test_participants_as_a_group_make_a_mixed_motive_zero_sum() -> None:
    _, _, rows = played()
    stage = ParticipantsAsGroup(scale=False)
    plain = assign_credit(rows.batch, [stage]).advantages
    paid: dict[int, float] = {}
    for (traj, _), own in by_participant(rows).items():
        (given,) = set(plain[own][rows.batch.mask[own]])
        paid[traj] = paid.get(traj, 0.0) + given
    assert list(paid.values()) == pytest.approx([0.0] * len(paid))
    assert plain.any()
    joint = replace(rows.batch, row={**rows.batch.row, "outcome": rows.batch.row["outcome"] + 5.0})
    np.testing.assert_allclose(assign_credit(joint, [stage]).advantages, plain, atol=1e-12)


def test_at_zero_sum_the_mean_of_the_participants_changes_nothing() -> None:
    _, _, rows = played("zero-sum/grpo")
    assert rows.batch.row["outcome"].any()
    found = assign_credit(rows.batch, [ParticipantsAsGroup(scale=False)]).advantages
    np.testing.assert_allclose(found, rows.batch.row["outcome"][:, None] * rows.batch.mask, atol=1e-12)


def test_each_participant_counts_once_however_often_it_spoke() -> None:
    _, _, rows = played()
    uneven = [own for own in by_participant(rows) if len(by_participant(rows)[own]) == 2]
    pairs = [(traj, agent) for traj, agent in uneven if len(by_participant(rows).get((traj, 1 - agent), [])) == 1]
    assert pairs
    found = assign_credit(rows.batch, [ParticipantsAsGroup()]).advantages
    for traj, agent in pairs:
        one, other = (by_participant(rows)[traj, who][0] for who in (agent, 1 - agent))
        gap = rows.batch.row["outcome"][one] - rows.batch.row["outcome"][other]
        expected = np.sign(gap) / np.sqrt(2)
        assert found[one][rows.batch.mask[one]] == pytest.approx(expected, abs=1e-4)


def test_the_filter_reaches_the_credit_and_stops_a_policy_gone_astray() -> None:
    config = replace(TINY, filter=True, repeats=1)
    _, _, rows = played()
    turns = [replace(turn, action=turn.action.split()[0]) for turn in rows.turns]
    found, share = judged(config, replace(rows, turns=turns))
    assert 0 < share < 0.3
    with_filter = assign_credit(found.batch, credit_rule(config, "hierarchical")[:1]).advantages
    without = assign_credit(found.batch, credit_rule(TINY, "hierarchical")[:1]).advantages
    changed = (with_filter != without).any(1)
    assert changed.any()
    assert not changed[found.batch.row["turn_keep"] == 1].any()
    same = replace(rows, turns=[replace(turn, action="threaten no deal") for turn in rows.turns])
    with pytest.raises(UserError, match="flagged as degenerate"):
        judged(config, same)
    assert judged(replace(TINY, repeats=1), same)[1] > 0.3


def test_training_raises_the_surplus_and_the_group_of_participants_does_not() -> None:
    config = Config(updates=14, episodes=48, tests=64, learning_rate=8e-3, turns=2, epochs=2)
    before = evaluate(config, make_trainer(config, "hierarchical", 1), 1)["surplus"]
    found = {arm: evaluate(config, train(config, arm, 1)[0], 1)["surplus"] for arm in ("hierarchical", "grpo")}
    assert found["hierarchical"] > before + 0.1
    assert found["hierarchical"] > found["grpo"] + 0.1


def test_arms_begin_with_the_same_weights_and_the_same_scenes() -> None:
    first = [make_trainer(TINY, arm, 1) for arm in ARMS]
    weights = [next(iter(trainer.policies["policy"].parameters().values())) for trainer in first]
    assert all((each == weights[0]).all() for each in weights)
    assert all(trainer.starts() == first[0].starts() for trainer in first)
    assert evaluate(TINY, first[0], 1) == evaluate(TINY, first[1], 1)
    assert make_trainer(TINY, "flat", 2).starts() != first[0].starts()


def test_all_arms_are_run_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run(TINY, store)
        curve = store.rows("curves")["flat/1"]
    assert result.arms == list(ARMS)
    assert len(curve["surplus"]) == 2
    for row in result.rows:
        assert (row.get("explained") is not None) == (not row["arm"].endswith("grpo"))
        assert 0 <= row["auc"] <= 1
        assert row["with/fair"] >= 0
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows[:4]:
            put_row(store, **row)
        trained, real = [], omar.train
        monkeypatch.setattr(omar, "train", lambda *given: trained.append(given[1]) or real(*given))
        resumed = run(TINY, store)
    assert trained == list(CONTROL)
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))


def made_up(seeds: int = 5, noise: dict[str, float] | None = None, **shift: float) -> Result:
    """Return rows in which each arm has its own level, and its own noise; the level of `hierarchical` is 0.8."""
    noise_of = noise or {}
    rng = np.random.default_rng(0)
    level = {arm: 0.8 + shift.get(arm, 0.0) for arm in ARMS}
    rows = [
        {
            "arm": arm, "seed": seed, "auc": level[arm] + off, "surplus": level[arm] + off, "agreed": 0.9,
            "reward": 0.7, "pay/random": level[arm] + off,
        }
        for arm in ARMS
        for seed, off in enumerate(rng.normal(0, noise_of.get(arm, 0.005), seeds))
    ]  # fmt: skip
    return Result(tuple(rows))


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        ({"grpo": -0.3}, "reproduced"),
        ({"grpo": -0.3, "flat": -0.2, "turn": -0.1}, "reproduced"),
        ({"grpo": -0.3, "flat": 0.1}, "not reproduced"),
        ({"grpo": -0.3, "turn": 0.1}, "not reproduced"),
        ({"grpo": 0.1}, "not reproduced"),
        ({"grpo": -0.3, "zero-sum/grpo": -0.3}, "not reproduced"),
    ],
)
def test_the_verdict_on_made_up_rows(shift: dict[str, float], expected: str) -> None:
    assert verdict(made_up(**shift)).verdict == expected


@pytest.mark.parametrize("arm", ["flat", "turn", "grpo"])
def test_wide_intervals_decide_nothing(arm: str) -> None:
    assert verdict(made_up(noise={arm: 0.3}, **{"grpo": -0.3, arm: -0.05})).verdict == "inconclusive"


def test_one_seed_decides_nothing() -> None:
    assert verdict(made_up(1, grpo=-0.3)).verdict == "inconclusive"


@pytest.mark.parametrize("field", ["updates", "episodes", "tests", "epochs"])
def test_bad_sizes(field: str) -> None:
    with pytest.raises(UserError, match="at least 1"):
        Config(**{field: 0})


def test_the_papers_size_says_what_it_takes() -> None:
    with pytest.raises(UserError, match=r"Qwen2\.5-7B on SOTOPIA"):
        Config.full()
