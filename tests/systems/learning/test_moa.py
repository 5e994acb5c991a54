"""System 031: the world's rubrics, the guide's rows, the arms, resuming, and the verdict on made-up rows."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning.credit import CreditBatch, Group, Pivot, assign_credit
from rolecraft.learning.policy import TabularPolicy
from rolecraft.systems import Result, find_entry, put_row
from rolecraft.systems.learning import moa
from rolecraft.systems.learning._slot_replies import RUBRICS, SLOTS, VOCABULARY, SlotReplies, put_guide
from rolecraft.systems.learning.moa import (
    ARMS,
    Config,
    LeaveOneOut,
    ShuffledPivot,
    credit_rule,
    final_figures,
    guided_loss,
    run,
    train,
    verdict,
)

WORLD = SlotReplies(np.arange(1, 12)[None])
"""One prompt: facts 1 to 4, style words 5 to 7, cues 8 and 9, words without meaning 10 and 11."""
TINY = Config(seeds=(5,), prompts=3, rollouts=4, steps=8, rate=0.2)


def rated(*reply):
    return [float(values[0]) for values in WORLD.rate(np.zeros(1, int), np.array([reply])).values()]


# The world


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ((0,) * 8, [1, 0, 0, 0, 0]),
        ((8, 1, 2, 5, 6, 0, 0, 9), [1, 0.5, 1, 1, 1]),
        ((8, 1, 2, 3, 4, 5, 6, 9), [0, 1, 0.75, 1, 1]),
        ((9, 1, 1, 1, 0, 0, 0, 8), [1, 0.25, 0, 0, 0.6]),
        ((8, 5, 5, 10, 11, 10, 11, 0), [0.5, 0, 6 / 7, 0.5, 4 / 7]),
    ],
)
def test_rubrics_on_paper(reply, expected):
    assert list(WORLD.rate(np.zeros(1, int), np.array([reply]))) == list(RUBRICS)
    assert rated(*reply) == pytest.approx(expected)


def test_no_reply_satisfies_all_rubrics_and_the_guide_writes_the_best_mean():
    """By counts of facts, style words (with repeats), cues and empty words, which is all that the rubrics look at."""
    best = []
    for facts, styles, spread, cues, idle in product(range(5), range(7), (1, 2, 3), (0, 1, 2), (0, 1, 2)):
        body = [*range(1, facts + 1), *[5 + place % spread for place in range(styles)], *range(10, 10 + idle)]
        if len(body) > 8 - cues:
            continue
        slots = [0] * 8
        slots[0], slots[7] = (8 if cues else 0), (9 if cues == 2 else 0)
        free = [place for place in range(8) if not slots[place]]
        for place, word in zip(free, body, strict=False):
            slots[place] = word
        best.append(rated(*slots))
    means = np.mean(best, axis=1)
    assert means.max() == pytest.approx(0.9)
    assert np.min(best, axis=1).max() < 1
    guide = WORLD.guide(np.zeros(20, int), np.random.default_rng(0))
    assert np.mean(list(WORLD.rate(np.zeros(20, int), guide).values()), axis=0) == pytest.approx([0.9] * 20)
    assert len(np.unique(guide, axis=0)) > 10


def test_prompts_give_words_other_meanings():
    world = SlotReplies.draw(5, 3)
    assert (np.sort(world.words, 1) == np.arange(1, 12)).all()
    assert len(np.unique(world.words, axis=0)) == 5
    guide = world.guide(np.arange(5), np.random.default_rng(0))
    assert np.mean(list(world.rate(np.arange(5), guide).values())) == pytest.approx(0.9)
    assert np.mean(list(world.rate(np.roll(np.arange(5), 1), guide).values())) < 0.8, "it fits its own prompt"
    with pytest.raises(UserError, match="one prompt or more"):
        SlotReplies.draw(0, 3)


def test_a_guide_that_does_not_fit_is_refused():
    replies, places = np.ones((3, 8), int), np.array([1])
    mixed = put_guide(replies, np.full((1, 8), 2), places)
    assert mixed[:, 0].tolist() == [1, 2, 1]
    assert replies[1, 0] == 1
    with pytest.raises(UserError, match=r"expected 1 replies of 8 slots, got shape \(1, 9\)"):
        put_guide(replies, np.ones((1, 9), int), places)
    with pytest.raises(UserError, match=r"guide: reply 0 is \[0, 0, .*not all blank"):
        put_guide(replies, np.zeros((1, 8), int), places)
    with pytest.raises(UserError, match="guide: reply 0 is"):
        put_guide(replies, np.full((1, 8), 12), places)


# The update


def credit_of(advantages):
    """A credit result whose advantages are the given ones."""
    rewards = np.array(advantages, dtype=float)
    batch = CreditBatch(np.ones((len(rewards), 2), bool), {"task": np.zeros(len(rewards), int)}, {"outcome": rewards})
    return assign_credit(batch, [Group(center=False, scale="none")])


def test_the_guides_ratio_starts_at_one_and_shaping_favours_unlikely_tokens():
    credit, guided = credit_of([1.0, -1.0, 2.0]), np.array([False, False, True])
    start = torch.log(torch.tensor([[0.5, 0.2], [0.5, 0.2], [0.02, 0.8]], dtype=torch.float64))
    gradients = []
    for shaping in (None, 0.1):
        logp = start.clone().requires_grad_()
        guided_loss(logp, start, credit, guided, shaping=shaping).backward()
        gradients.append(logp.grad)
    plain, shaped = gradients
    assert plain == pytest.approx(-torch.as_tensor(credit.advantages) / 6), "ratio 1 for all, a mean over six tokens"
    assert shaped[:2] == pytest.approx(plain[:2]), "own rollouts are not shaped"
    p = start[2].exp()
    assert shaped[2] == pytest.approx(-2 * 0.1 * p / (p + 0.1) ** 2 / 6)
    assert shaped[2, 0].abs() > 0.5 * shaped[2, 1].abs(), "a token forty times rarer still learns"


def test_leave_one_out_is_the_mean_of_the_others():
    rewards, task = np.array([1.0, 0.0, 0.5, 3.0, 9.0]), np.array([0, 0, 0, 1, 2])
    batch = CreditBatch(np.ones((5, 1), bool), {"task": task}, {"outcome": rewards})
    assert assign_credit(batch, [LeaveOneOut()]).advantages[:, 0] == pytest.approx([0.75, -0.75, 0, 0, 0])


def test_the_control_deals_the_same_weights_to_other_rubrics():
    residual = np.array([0.2, 0.0, -0.1, 0.05, 0.1])
    true = Pivot().weigh(residual, 0)
    dealt = [ShuffledPivot(seed=1).weigh(residual, step) for step in range(200)]
    assert all(sorted(each) == pytest.approx(sorted(true)) for each in dealt)
    assert np.bincount([int(each.argmax()) for each in dealt], minlength=5).min() > 20
    assert (ShuffledPivot(seed=1).weigh(residual, 7) == dealt[7]).all()


def test_every_arm_has_its_rule():
    stages = {arm: credit_rule(TINY, arm, 1) for arm in ARMS}
    assert stages["moa"] == stages["moa+guide"] == [Pivot(), Group()]
    assert stages["no-elimination"] == [Pivot(eliminate="none"), Group()]
    assert stages["random"][0] == ShuffledPivot(seed=1)
    assert isinstance(credit_rule(Config(baseline="rloo"), "uniform", 1)[1], LeaveOneOut)


def test_training_raises_the_rubrics_in_every_arm_and_the_guide_starts_it():
    config = Config(prompts=4, steps=60, rate=0.1, epochs=1)
    rows = {arm: train(config, arm, 3) for arm in ("uniform", "moa", "random", "no-elimination", "moa+guide")}
    for arm, row in rows.items():
        assert row["curve"][-1] > row["curve"][0] + 0.15, arm
        assert row["entropy"] < math.log(VOCABULARY)
        assert (row["eliminated"] > 0) == (arm in ("moa", "random", "moa+guide"))
        assert row["auc"] == pytest.approx(np.mean(row["curve"]), abs=1e-4)
        assert row["worst"] == min(row[name] for name in RUBRICS)
        assert sum(row.get("pivots", {"none": 60}).values()) == 60
    assert rows["moa+guide"]["early_auc"] > rows["moa"]["early_auc"]
    assert len({row["auc"] for row in rows.values()}) == 5
    assert train(config, "moa", 3) == rows["moa"]


@pytest.mark.parametrize("change", [{"baseline": "rloo"}, {"kl": 0.5}, {"shaping": 0.1}, {"eliminate": "concordant"}])
def test_options_change_what_is_learned(change):
    plain = train(TINY, "moa+guide", 1)
    changed = train(Config(**{**vars(TINY), **change}), "moa+guide", 1)
    assert changed["curve"] != plain["curve"]
    if "kl" in change:
        assert changed["entropy"] > plain["entropy"]


def test_figures_of_policies_that_are_known():
    policy = TabularPolicy(1, SLOTS, VOCABULARY)
    uniform = final_figures(WORLD, policy, 0)
    assert uniform["entropy"] == pytest.approx(math.log(VOCABULARY))
    with torch.no_grad():
        for place, word in enumerate((8, 1, 2, 5, 6, 0, 0, 9)):
            policy.logits[0, place, word] = 50.0
    sure = final_figures(WORLD, policy, 0)
    assert sure["hypervolume"] == pytest.approx(0.5), "one reply, the product of its rubrics"
    assert (sure["final"], sure["worst"], sure["knowledge"]) == pytest.approx((0.9, 0.5, 0.5))
    assert sure["entropy"] == pytest.approx(0, abs=1e-9)
    assert sure["correlation"] == 0


# The study


def test_the_study_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(**{**vars(TINY), "seeds": (5, 6), "steps": 3, "prompts": 2})
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run(config, store)
    assert result.arms == list(ARMS)
    assert len(result.rows) == 2 * len(ARMS)
    assert verdict(result).verdict in ("reproduced", "not reproduced", "inconclusive")
    trained, real = [], moa.train
    monkeypatch.setattr(moa, "train", lambda *given: trained.append(given[1:]) or real(*given))
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows:
            if row["seed"] == 5:
                put_row(store, **row)
        resumed = run(config, store)
    assert trained == [(arm, 6) for arm in ARMS]
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))
    assert find_entry("31").study("bandit").config is Config


def made_up(gain=0.05, worst=0.0, start=0.05, control=-0.01, spread=0.005, seeds=10):
    """Rows in which MOA, the guide and the control are moved by known amounts."""
    moved = {"moa": (gain, worst, 0.0), "moa+guide": (gain, worst, start), "random": (control, 0.0, 0.0)}
    return Result(
        tuple(
            {
                "arm": arm, "seed": seed, "auc": 0.7 + by[0] + noise, "worst": 0.4 + by[1] + noise,
                "early_auc": 0.5 + by[2] + noise, "hypervolume": 0.5 + noise, "entropy": 1.0 + noise,
            }
            for place, arm in enumerate(ARMS) for by in [moved.get(arm, (0.0, 0.0, 0.0))]
            for seed in range(seeds) for noise in [spread * (((seed + 1) * (place + 2)) % 7 - 3)]
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (made_up(), "reproduced"),
        (made_up(gain=-0.05), "not reproduced"),
        (made_up(gain=0.0, spread=0.0005), "not reproduced"),
        (made_up(worst=-0.2), "not reproduced"),
        (made_up(start=0.0), "not reproduced"),
        (made_up(control=0.05), "not reproduced"),
        (made_up(gain=0.0, spread=0.05), "inconclusive"),
        (made_up(seeds=1), "inconclusive"),
    ],
)
def test_every_part_of_the_claim_can_refute(rows, expected):
    assert verdict(rows).verdict == expected


def test_the_verdict_gives_the_effect_and_the_control():
    found = verdict(made_up(gain=0.05, control=-0.02, spread=0.0))
    assert found.effect.estimate == pytest.approx(0.05)
    assert found.control is not None
    assert found.control.estimate == pytest.approx(-0.02)


def test_bad_sizes_are_named():
    with pytest.raises(UserError, match="two rollouts per prompt the policy's own; got 20, 150, 2, 3 and 4 rollouts"):
        Config(guides=3, rollouts=4)
    with pytest.raises(UserError, match="steps, epochs and guides must be at least 1"):
        Config(steps=0)
    with pytest.raises(UserError, match="shaping above 0"):
        Config(shaping=0.0)
