"""TRIAGE: credit on rollouts, the learner's gradient and exact figures, both studies and what decides them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from rolecraft._run import RunStore, derive_seed
from rolecraft.errors import UserError
from rolecraft.learning import SEGMENT_ROLES, UNREAD, ModelRoleJudge, SegmentContext, Span, potential_roles
from rolecraft.learning.credit import JudgeFailuresWarning, label_bonus
from rolecraft.learning.losses import clipped_surrogate
from rolecraft.learning.policy import TabularPolicy
from rolecraft.measures import Interval
from rolecraft.systems import Result
from rolecraft.systems._registry import find_entry
from rolecraft.systems.learning import triage
from rolecraft.systems.learning._key_door_learner import (
    Arm,
    Values,
    equal_success,
    make_credit,
    play_group,
    policy_gradient,
    soften,
    softmax,
    train,
)
from rolecraft.systems.learning.triage import (
    ARMS,
    GridConfig,
    LoopsConfig,
    decide_grid,
    decide_loops,
    make_arm,
    make_tables,
    run_grid,
    run_loops,
    triage_credit,
    turns_at_equal_success,
    verdict_grid,
    verdict_loops,
)
from rolecraft.testing import ScriptedModel

GRID = GridConfig(seeds=(1, 2), size=4, shortest=5, updates=30, horizon=20, learning_rate=4.0)
LOOPS = LoopsConfig(seeds=(1, 2), size=4, shortest=5, walls=2, updates=20, horizon=20, learning_rate=4.0)

# Two rollouts of one task, the first a success: three segments and two, with observation tokens between.
MASK = np.array([[1, 1, 0, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0, 0]], dtype=bool)
SPANS = [Span(0, 0, 2), Span(0, 3, 4), Span(0, 5, 7), Span(1, 0, 1), Span(1, 2, 4)]
LABELS = ["D", "R", "D", "E", "N"]


def slow_triage(labels, lam=0.5, outcome=(1.0, 0.0)):
    """Write the rule straight from its formulas."""
    mean = sum(outcome) / 2
    std = (sum((r - mean) ** 2 for r in outcome) / 1) ** 0.5
    constant = {"D": 1.0, "E": 0.5, "N": -0.1, "R": -0.5, None: 0.0}
    rollouts = [span.row for span in SPANS]
    b = [(outcome[i] - mean) / (std + 1e-6) + lam * constant[label] for i, label in zip(rollouts, labels, strict=True)]
    centre = sum(b) / len(b)
    spread = (sum((x - centre) ** 2 for x in b) / len(b)) ** 0.5
    return [(x - centre) / (spread + 1e-8) for x in b]


@pytest.mark.parametrize("labels", [LABELS, ["R", "R", "E", "D", "D"], ["N", None, "N", "N", "N"]])
@pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.JudgeFailuresWarning")
def test_credit_is_what_the_formulas_say_on_every_token(labels):
    found = triage_credit(MASK, SPANS, [1, 0], [0, 0], labels=labels)
    expected = slow_triage(labels)
    for span, value, row in zip(SPANS, expected, found.table, strict=True):
        assert found.advantages[span.row, span.start : span.end] == pytest.approx(value)
        assert row["advantage"] == pytest.approx(value)
    assert (found.advantages[~MASK] == 0).all()


def test_the_table_and_the_summary_tell_flips_and_roles():
    found = triage_credit(MASK, SPANS, [1, 0], [0, 0], labels=LABELS, lam=1.0)
    assert [row["constant"] for row in found.table] == [1.0, -0.5, 1.0, 0.5, -0.1]
    assert [row["rollout"] for row in found.table] == [0, 0, 0, 1, 1]
    assert found.table[0]["outcome_advantage"] == pytest.approx(2**-0.5, abs=1e-5)
    assert [row["flip"] for row in found.table] == [False, True, False, False, False]
    assert found.summary["flip_rate"] == pytest.approx(1 / 5)
    assert found.summary["add_row/success/D"] == pytest.approx(2 / 3)
    assert found.summary["add_row/failure/E"] == pytest.approx(1 / 2)


def test_all_n_is_whitened_grpo_and_a_failed_judge_is_not_n():
    plain = triage_credit(MASK, SPANS, [1, 0], [0, 0], labels=["N"] * 5)
    without = triage_credit(MASK, SPANS, [1, 0], [0, 0], labels=["N"] * 5, lam=0.0)
    assert plain.advantages == pytest.approx(without.advantages, abs=1e-12)
    with pytest.warns(JudgeFailuresWarning):
        failed = triage_credit(MASK, SPANS, [1, 0], [0, 0], labels=["N", None, "N", "N", "N"])
    assert failed.table[1]["constant"] == 0
    assert failed.advantages[0, 3] > failed.advantages[0, 0]


def test_groups_that_agree_learn_from_roles_unless_dropped():
    found = triage_credit(MASK, SPANS, [0, 0], [0, 0], labels=LABELS)
    assert found.advantages[0, 0] > 0 > found.advantages[0, 3]
    with pytest.warns(UserWarning, match="no signal"):
        dropped = triage_credit(MASK, SPANS, [0, 0], [0, 0], labels=LABELS, drop_zero_outcome_groups=True)
    assert not dropped.advantages.any()
    with pytest.warns(UserWarning, match="no signal"):
        same = triage_credit(MASK, SPANS, [1, 1], [0, 0], labels=["D"] * 5)
    assert not same.advantages.any()


def test_a_judge_takes_the_place_of_labels():
    contexts = [SegmentContext("t", "b", label, "o") for label in LABELS]

    def script(chat, seed):
        return json.dumps({"role": chat[-1]["content"].partition("It did:\n| ")[2][0], "why": "as told"})

    given = {"judge": ModelRoleJudge(ScriptedModel(script)), "contexts": contexts}
    judged = triage_credit(MASK, SPANS, [1, 0], [0, 0], **given)
    assert (judged.advantages == triage_credit(MASK, SPANS, [1, 0], [0, 0], labels=LABELS).advantages).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": LABELS[:4]}, "label: expected one per segment, 5 of them"),
        ({"labels": [*LABELS[:4], "X"]}, "label of segment 4"),
        ({"labels": []}, "label: expected one per segment"),
        ({}, "either labels or a judge"),
        ({"labels": LABELS, "lam": 1.5}, "lam lies in"),
        ({"labels": LABELS, "constants": {"R": 0.5}}, "regression is rewarded"),
        ({"labels": LABELS, "constants": {"Q": 0.5}}, "'Q'"),
    ],
)
def test_faulty_input_is_refused(options, said):
    with pytest.raises(UserError, match=said):
        triage_credit(MASK, SPANS, [1, 0], [0, 0], **options)


# The learner


def a_group(seed=1, config=GRID):
    tables = make_tables(config, seed)
    logits = np.random.default_rng(seed).standard_normal(tables.next_state.shape)
    return tables, logits, play_group(tables, softmax(logits), 8, config.horizon, np.random.default_rng(seed))


def test_segments_follow_each_other_and_are_judged_by_distance():
    tables, _, group = a_group()
    assert (tables.next_state[group.state, group.action] == group.after).all()
    for rollout in range(8):
        rows = np.flatnonzero(group.traj == rollout)
        assert (group.step[rows] == np.arange(len(rows))).all()
        assert (group.after[rows][:-1] == group.state[rows][1:]).all()
        seen = set()
        for row in rows:
            old, now = tables.distance[group.state[row]], tables.distance[group.after[row]]
            pair = (int(group.state[row]), int(group.action[row]))
            role = "D" if now < old else "R" if now > old else "N" if pair in seen else "E"
            assert SEGMENT_ROLES[group.role[row]] == role
            assert group.score[row] == {"D": 1, "R": -1}.get(role, 0)
            seen.add(pair)
        assert (group.after[rows[-1]] == tables.goal) == (group.outcome[rollout] == 1)


def test_the_gradient_is_that_of_the_clipped_surrogate_on_a_tabular_policy():
    _, logits, group = a_group()
    advantages = np.random.default_rng(3).standard_normal(len(group.state))
    policy = TabularPolicy(len(logits), 1, 4)
    with torch.no_grad():
        policy.logits[:, 0] = torch.as_tensor(logits)
    logp, _ = policy.log_probs(group.state, group.action[:, None])
    mask = torch.ones_like(logp, dtype=torch.bool)
    clipped_surrogate(logp, logp.detach(), torch.as_tensor(advantages)[:, None], mask).loss.backward()
    expected = -policy.logits.grad[:, 0].numpy()
    assert policy_gradient(group, advantages, softmax(logits)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_arm_gives_the_credit_of_its_name():
    _, logits, group = a_group()

    def advantages(name, roles=group.role):
        return make_credit(make_arm(name), 0.5, 1, len(logits))(group, roles)

    mixed = group.role[np.isin(group.role, (0, 3))]
    assert len(set(mixed)) == 2
    corrections = {
        name: advantages(name)[1] for name in ("triage", "no-r", "no-e", "no-d", "only-r", "all-n", "scalar")
    }
    table = {"triage": "DENR", "no-r": "DENN", "no-e": "DNNR", "no-d": "NENR", "only-r": "NNNR", "all-n": "NNNN"}
    for name, letters in table.items():
        constants = [{"D": 1.0, "E": 0.5, "N": -0.1, "R": -0.5}[letter] for letter in letters]
        assert (corrections[name] == label_bonus(group.role, constants)).all(), name
    assert (corrections["scalar"] == group.score).all()
    assert advantages("grpo")[0] == pytest.approx(
        ((group.outcome - group.outcome.mean()) / (group.outcome.std(ddof=1) + 1e-6))[group.traj]
    )
    unread = np.where(group.role == 2, UNREAD, group.role)
    assert (advantages("triage", unread)[1][unread == UNREAD] == 0).all()


def test_random_constants_differ_by_seed_and_the_value_baseline_learns_outcomes():
    _, logits, group = a_group()
    found = [
        make_credit(make_arm("random-constants"), 0.5, seed, len(logits))(group, group.role)[1] for seed in (1, 1, 2)
    ]
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
    values = Values(np.zeros(len(logits)))
    for _ in range(400):
        values.advantages(group)
    state = int(group.state[0])
    outcomes = group.outcome[group.traj[group.state == state]]
    assert values.table[state] == pytest.approx(outcomes.mean(), abs=1e-6)


def test_training_watches_the_exact_success_and_pairs_the_arms():
    tables = make_tables(GRID, 1)
    start = soften(tables, 0.3, 20, 1)
    options = {"updates": 8, "size": 3, "horizon": 20, "lam": 0.5, "rate": 1.0, "logits": start}
    curve = train(tables, Arm("none"), 1, **options)
    assert len(curve.success) == len(curve.turns) == 9
    final = tables.success(softmax(curve.logits), 20)[:, tables.start]
    assert curve.success[-1] == final[-1]
    steps = np.arange(21)
    assert curve.turns[-1] == pytest.approx((steps[1:] * np.diff(final)).sum() / final[-1])
    assert curve.turns[-1] >= tables.shortest
    again = train(tables, Arm("none"), 1, **options)
    assert again.success == curve.success
    other = train(tables, Arm(), 1, **options)
    assert other.success[0] == curve.success[0]
    assert other.success != curve.success
    plain = train(tables, make_arm("all-n"), 1, **options)
    assert plain.gap < 1e-9 < other.gap
    assert other.silent == 0 < curve.silent < 8 > plain.silent > 0


def test_covariance_is_that_of_the_corrections_and_the_exact_residuals():
    tables = make_tables(GRID, 2)
    start = soften(tables, 0.5, 20, 2)
    curve = train(tables, Arm(), 2, updates=1, size=8, horizon=20, lam=0.5, rate=1.0, logits=start)
    [(count, covariance, variance, _)] = curve.moments
    values = tables.success(softmax(start), 20)
    play = np.random.default_rng(derive_seed("triage", 2, "play"))
    group = play_group(tables, softmax(start), 8, 20, play)
    std = group.outcome.std(ddof=1)
    c, delta = [], []
    for row in range(len(group.state)):
        left = 20 - group.step[row]
        true = values[left - 1, group.after[row]] - values[left, group.state[row]]
        outcome = group.outcome[group.traj[row]] - group.outcome.mean()
        delta.append(true / std - outcome / (std + 1e-6))
        c.append([1.0, 0.5, -0.1, -0.5][group.role[row]])
    assert count == len(c)
    assert covariance == pytest.approx(np.cov(c, delta, bias=True)[0, 1], abs=1e-9)
    assert variance == pytest.approx(np.var(c))
    assert (
        group.role == potential_roles(tables.distance[group.state], tables.distance[group.after], group.role == 1)
    ).all()


def test_a_softened_policy_has_the_success_that_was_asked_for_and_walks_in_circles():
    tables = make_tables(LOOPS, 1)
    for target in (0.5, 0.7, 0.9):
        logits = soften(tables, target, 20, 1)
        assert tables.success(softmax(logits), 20)[-1, tables.start] == pytest.approx(target, abs=1e-6)
    assert (soften(tables, 0.7, 20, 1) != soften(tables, 0.7, 20, 2)).any()


def test_equal_success_finds_the_first_updates_at_the_common_level():
    assert equal_success([0.1, 0.5, 0.9], [0.1, 0.2, 0.4, 0.5, 0.3]) == (1, 3)
    assert equal_success([0.1, 0.2], [0.1, 0.1]) == (0, 0)


# The studies


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    with RunStore.open(tmp_path_factory.mktemp("triage") / "run", "study", {}) as store:
        return run_grid(GRID, store)


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    with RunStore.open(tmp_path_factory.mktemp("triage") / "run", "study", {}) as store:
        return run_loops(LOOPS, store)


def test_the_grid_study_fills_every_arm_and_is_decided(grid):
    assert grid.arms == list(ARMS)
    assert len(grid.rows) == len(ARMS) * 2
    assert all(len(row["curve"]) == 31 for row in grid.rows)
    found = verdict_grid(grid)
    assert found.effect.estimate == pytest.approx(grid.difference("auc", "triage", "grpo").estimate)
    assert found.effect.estimate > 0
    assert "no-r" in found.note
    assert turns_at_equal_success(grid, "grpo", "grpo").estimate == 0


def test_swapped_arms_are_not_reproduced(grid):
    other = {"triage": "grpo", "grpo": "triage"}
    found = verdict_grid(Result(tuple({**row, "arm": other.get(row["arm"], row["arm"])} for row in grid.rows)))
    assert found.verdict == "not reproduced"
    assert found.effect.estimate < 0


def test_the_loops_study_starts_at_its_rate_and_is_decided(loops):
    assert len(loops.rows) == 7 * 2
    assert all(row["curve"][0] == pytest.approx(0.7, abs=1e-4) for row in loops.rows)
    for row in loops.rows:
        assert row["saved"] == pytest.approx(1 - row["turns"] / row["turn_curve"][0], abs=1e-3)
    found = verdict_loops(loops)
    assert found.effect.estimate == pytest.approx(loops.difference("turns", "grpo", "triage").estimate)


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path, monkeypatch, grid):
    real, calls = triage._train, iter(range(1000))

    def failing(*given):
        if next(calls) == 5:
            raise RuntimeError("told to fail")
        return real(*given)

    monkeypatch.setattr(triage, "_train", failing)
    with RunStore.open(tmp_path / "run", "study", {}) as store, pytest.raises(RuntimeError):
        run_grid(GRID, store)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        assert len(store.rows("rows")) == 5
        assert run_grid(GRID, store) == grid
    assert next(calls) == 2 * len(ARMS) + 1


def interval(low, high):
    return Interval((low + high) / 2, low, high, 10)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "reproduced"),
        ({"every": False}, "not reproduced"),
        ({"gain": interval(0.2, 0.29)}, "not reproduced"),
        ({"gain": interval(0.2, 0.5)}, "inconclusive"),
        ({"shorter": interval(-1, 0.5)}, "not reproduced"),
        ({"steps": [interval(0.1, 0.2), interval(-0.5, -0.4)]}, "not reproduced"),
        ({"margins": {"triage": interval(-0.2, -0.1), "noise-100": interval(-0.2, -0.1)}}, "not reproduced"),
        ({"margins": {"triage": interval(0.1, 0.2), "noise-100": interval(0.1, 0.2)}}, "not reproduced"),
        ({"gains": {"triage": interval(0.4, 0.6), "noise-100": interval(0.1, 0.2)}}, "not reproduced"),
        ({"control": interval(0.3, 0.5)}, "not reproduced"),
        ({"same": 0.1}, "not reproduced"),
    ],
)
def test_the_grids_verdict_follows_from_the_figures(change, expected):
    figures = {
        "gain": interval(0.4, 0.6), "every": True, "shorter": interval(-3, -1),
        "gains": {"triage": interval(0.4, 0.6), "noise-100": interval(-0.1, 0.05)},
        "margins": {"triage": interval(0.1, 0.2), "noise-100": interval(-0.2, -0.1)},
        "steps": [interval(-0.5, -0.4)], "control": interval(-0.05, 0.05), "same": 1e-15,
    } | change  # fmt: skip
    assert decide_grid(**figures).verdict == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "reproduced"),
        ({"gain": interval(-2, -1)}, "not reproduced"),
        ({"gain": interval(-1, 1)}, "inconclusive"),
        ({"most": interval(-2, -1)}, "not reproduced"),
        ({"most": interval(-1, 1)}, "inconclusive"),
        ({"others": {"d": interval(-1, 1), "e": interval(1, 2)}}, "not reproduced"),
        ({"control": interval(1, 3)}, "not reproduced"),
    ],
)
def test_the_loops_verdict_follows_from_the_figures(change, expected):
    figures = {
        "gain": interval(2, 3), "most": interval(0.5, 1), "lost": {"r": interval(2, 3)},
        "others": {"d": interval(1, 2), "e": interval(1, 2)}, "control": interval(-0.5, 0.5),
    } | change  # fmt: skip
    assert decide_loops(**figures).verdict == expected


def test_faulty_settings_are_refused():
    with pytest.raises(UserError, match="rollouts of at least 2"):
        GridConfig(rollouts=1)
    with pytest.raises(UserError, match=r"lam in \(0, 1\]"):
        LoopsConfig(lam=0)
    with pytest.raises(UserError, match="horizon is 4; raise it"):
        make_tables(replace(GRID, horizon=4), 1)
    with pytest.raises(UserError, match="no --full size"):
        GridConfig.full()


def test_the_system_is_found_by_number():
    entry = find_entry("8")
    assert entry.system.name == "triage"
    assert list(entry.studies) == ["grid", "loops", "smollm2"]
