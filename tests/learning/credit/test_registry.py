"""Every rule by its name: what all must hold, and what a study file may ask for."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    RULES,
    STAGES,
    Group,
    Schedule,
    SmallGroupWarning,
    Whiten,
    assign_credit,
    make_rule,
)

from ._random import random_batch, take_rows

OPTIONS = {"adrs": {"warmup": 0}, "opd": {"reward": True}}


def credit(name, batch, state=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return assign_credit(batch, make_rule({"name": name, **OPTIONS.get(name, {})}), state)


@pytest.mark.parametrize("name", sorted(RULES))
def test_advantages_are_finite_and_nothing_off_the_mask(name):
    batch = replace(random_batch(11), valid=np.arange(36) % 9 > 0)
    result = credit(name, batch)
    assert np.isfinite(result.advantages).all()
    assert not result.advantages[~batch.mask].any()
    assert not result.advantages[~batch.known].any()
    assert not result.weights[~batch.known].any()
    assert result.advantages.any()
    if result.targets is not None:
        assert np.isfinite(result.targets).all()


@pytest.mark.parametrize("name", sorted(RULES))
def test_permuting_the_rows_permutes_the_result(name):
    batch = random_batch(12)
    order = np.random.default_rng(0).permutation(36)
    plain, turned = credit(name, batch), credit(name, take_rows(batch, order))
    np.testing.assert_allclose(turned.advantages, plain.advantages[order], atol=1e-9)
    np.testing.assert_allclose(turned.weights, plain.weights[order], atol=1e-12)


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_state_saved_and_loaded_gives_the_same_numbers(name):
    first = credit(name, random_batch(13))
    again = credit(name, random_batch(14), first.state)
    loaded = credit(name, random_batch(14), json.loads(json.dumps(first.state)))
    np.testing.assert_array_equal(loaded.advantages, again.advantages)
    assert json.loads(json.dumps(loaded.state)) == json.loads(json.dumps(again.state))


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_leaves_its_batch_alone_and_takes_an_empty_one(name):
    batch = random_batch(15)
    before = {**batch.row, **batch.token, **batch.keys}
    copies = {name: column.copy() for name, column in before.items()}
    credit(name, batch)
    for column, copy in copies.items():
        np.testing.assert_array_equal(before[column], copy)
    assert credit(name, take_rows(batch, np.zeros(0, dtype=int))).advantages.shape == (0, 4)


def test_at_grpo_compares_within_agent_and_turn():
    batch = random_batch(16)
    both = credit("at-grpo", batch).advantages
    task_only = assign_credit(batch, make_rule({"name": "at-grpo", "keys": ["task"]})).advantages
    assert np.abs(both - task_only).max() > 0.1


def test_gigpo_adds_returns_among_steps_from_one_state():
    batch = random_batch(17)
    with_anchor, without = (
        assign_credit(batch, make_rule({"name": "role-agent", "k": 0.0, "weight": weight})).advantages
        for weight in (1.0, 0.0)
    )
    outcome, keys = batch.row["outcome"], batch.keys
    returns = outcome * 0.95 ** (2.0 - keys["turn"])
    extra = np.zeros(36)
    for task in range(2):
        for anchor in np.unique(keys["anchor"]):
            rows = (keys["task"] == task) & (keys["anchor"] == anchor)
            if rows.any():
                extra[rows] = (returns[rows] - returns[rows].mean()) / (returns[rows].std(ddof=1) + 1e-6)
    np.testing.assert_allclose(with_anchor - without, extra[:, None] * batch.mask, atol=1e-9)


def test_a_study_file_names_a_rule_a_rule_with_options_or_stages():
    assert make_rule("grpo") == [Group()]
    assert make_rule({"name": "grpo", "keys": ["task", "role"], "scale": "none"}) == [
        Group(("task", "role"), scale="none")
    ]
    stages = [
        {"stage": "group", "ddof": 0},
        "whiten",
        {"stage": "add_token", "schedule": {"warmup": 3}},
        Whiten("tokens"),
    ]
    made = make_rule(stages)
    assert made[:2] == [Group(ddof=0), Whiten()]
    assert made[2].schedule == Schedule(warmup=3)
    assert made[3] == Whiten("tokens")
    assert hash(made[0]) == hash(Group(ddof=0))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gpro", "credit: there is no rule 'gpro' (known: adrs, at-grpo"),
        ("gpro", "Did you mean 'grpo'?"),
        ({"name": "grpo", "scal": "std"}, "credit.grpo: rule grpo has no option 'scal'"),
        ({"name": "grpo", "scal": "std"}, "Did you mean 'scale'?"),
        ({"name": "grpo", "scale": "sdt"}, "credit.grpo.scale: got 'sdt'"),
        ({"name": "grpo", "keys": "task"}, "credit.grpo.keys: got 'task'"),
        ({"name": "rae", "decay": "high"}, "credit.rae.decay: got 'high'"),
        ({"name": "rae", "decay": 1.5}, "decay lies in"),
        ({"rule": "grpo"}, "under 'name', got rule"),
        ({}, "under 'name', got {}"),
        ([{"stage": "goup"}], "credit[0].goup: there is no stage 'goup'"),
        (["group", {"name": "whiten"}], "credit[1]: expected a stage under 'stage', got name"),
        ([{"stage": "add_token", "schedule": {"warm": 3}}], "schedule has no option 'warm'"),
        ([3], "credit[0]: expected a stage"),
        ([], "list of stages; got []"),
        (3, "list of stages; got 3"),
    ],
)
def test_a_mistake_is_named_with_its_field(spec, words):
    with pytest.raises(UserError) as error:
        make_rule(spec)
    assert words in str(error.value)


def test_every_stage_can_be_made_by_name():
    needs = {"weight": {"by": "reward"}}
    for name in STAGES:
        (stage,) = make_rule([{"stage": name, **needs.get(name, {})}])
        assert callable(stage)


def test_a_group_of_one_is_warned_of():
    with pytest.warns(SmallGroupWarning):
        assign_credit(take_rows(random_batch(1), [0, 18, 21]), make_rule("grpo"))


def test_no_model_library_is_imported():
    heavy = "('torch', 'transformers', 'jax')"
    code = f"import sys, rolecraft.learning.credit; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
