"""System 006: the bandit is what the study says, its control changes nothing, and its verdict can fall either way."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning import character_reward
from rolecraft.learning.character._rewards import COMPONENTS
from rolecraft.learning.credit import Ccrn, CreditBatch, Group, WeightedSum, assign_credit
from rolecraft.measures import Interval
from rolecraft.systems import Result, find_entry
from rolecraft.systems.learning import _character_bandit as bandit_file
from rolecraft.systems.learning._character_bandit import (
    LABELS,
    LENGTH,
    PLACES,
    REFERENCE,
    VOCABULARY,
    WORDS,
    RoleNetwork,
    Shift,
    make_bandit,
    measure,
    overlap_of,
    say,
    train,
)
from rolecraft.systems.learning.character_r1 import (
    ARMS,
    BanditConfig,
    decide,
    run_bandit,
    scalariser,
    verdict_bandit,
)

TINY = BanditConfig(
    seeds=(1, 2),
    tails=(0, 12),
    roles_per_group=2,
    updates=12,
    samples=4,
    evaluated=8,
    hidden=16,
    learning_rate=0.05,
    kl=0.05,
)


@pytest.fixture(scope="module")
def world():
    return make_bandit(replace(TINY, tails=(0, 6, 24)), 3)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    with RunStore.open(tmp_path_factory.mktemp("bandit") / "run", "study", {}) as store:
        return run_bandit(TINY, store)


def best(world, role):
    case = world.cases[role]
    label, attribute = next(iter(case.focus.items()))
    words = case.reference.split()[:LENGTH]
    return [
        LABELS.index(label),
        *(bandit_file.ATTRIBUTES.index(word) for word in attribute.split()),
        *(WORDS.index(word) for word in words),
    ]


def test_groups_differ_in_what_can_be_earned_and_not_in_what_must_be_learned(world):
    assert world.group.tolist() == [0, 0, 1, 1, 2, 2]
    assert world.ceiling[:2] == pytest.approx([1, 1])
    # six words of twelve: brevity penalty exp(-1), ROUGE-1 and -L 12 / 18, ROUGE-2 10 / 16
    bleus = 0.18 * np.exp(-1)
    assert world.ceiling[2] == pytest.approx((bleus + 0.12 * 12 / 18 + 0.05 * 10 / 16) / 0.35)
    assert world.ceiling[4] < 0.2
    for case in world.cases:
        assert set(case.reference.split()[:LENGTH]) <= set(WORDS)
        assert not set(case.reference.split()[LENGTH:]) & set(WORDS)


def test_no_reply_beats_the_ceiling_and_the_best_one_reaches_it(world):
    rng = np.random.default_rng(0)
    for role in range(len(world.cases)):
        found = world.rewards(np.array([role]), np.array([best(world, role)]))[0]
        assert overlap_of(dict(zip(COMPONENTS, found, strict=True))) == pytest.approx(world.ceiling[role])
        assert found[[COMPONENTS.index(name) for name in ("format", "focus", "focus_attr")]].tolist() == [1, 1, 1]
        near = np.tile(best(world, role), (150, 1))
        changed = rng.random(near.shape) < 0.3
        near[changed] = rng.integers(VOCABULARY, size=changed.sum())
        raw = world.rewards(np.full(150, role), near)
        weights = np.array([REFERENCE[name] for name in COMPONENTS])
        assert (raw @ weights).max() <= world.ceiling[role] + 1e-12


def test_rewards_are_those_of_the_text(world):
    tokens = best(world, 1)
    tokens[0] = LABELS.index("Mood")
    raw = dict(zip(COMPONENTS, world.rewards(np.array([1]), np.array([tokens]))[0], strict=True))
    assert raw == character_reward(say(tokens), world.cases[1]).raw
    assert (raw["format"], raw["focus"], raw["bleu4"]) == (0, 0, 1)
    assert "<focus>" not in say([LABELS.index(""), *tokens[1:]])


def test_k_means_finds_the_groups_and_the_wrong_groups_cut_across_them():
    world = make_bandit(BanditConfig(), 7)
    assert world.key.tolist() == world.group.tolist()
    for group in set(world.shuffled.tolist()):
        assert sorted(world.group[world.shuffled == group].tolist()) == [0, 1, 2, 3]


def test_arms_scale_as_they_say():
    assert isinstance(scalariser("raw", TINY), WeightedSum)
    assert scalariser("ccrn", TINY).keys == ("group",)
    assert scalariser("global", TINY).keys == ()
    assert scalariser("wrong-groups", TINY).keys == ("shuffled",)
    dropped = scalariser("no-reference", TINY)
    assert isinstance(dropped, Ccrn)
    assert {name for name, weight in dropped.weights.items() if weight} == {"format", "focus", "focus_attr"}
    assert scalariser("no-focus", TINY).weights["focus"] == 0
    assert scalariser("no-attr", TINY).weights["focus_attr"] == 0


def test_the_shift_alone_moves_rewards_and_no_advantage():
    rng = np.random.default_rng(1)
    columns = {name: rng.random(12) for name in COMPONENTS}
    keys = {"task": np.repeat([0, 1, 2], 4), "group": np.repeat([0, 1, 1], 4)}
    batch = CreditBatch(np.ones((12, 1), dtype=bool), keys, objectives=columns)
    raw, shift = (
        assign_credit(batch, [each, Group()]) for each in (scalariser("raw", TINY), scalariser("shift", TINY))
    )
    assert shift.advantages == pytest.approx(raw.advantages, abs=1e-9)
    assert shift.state["shift"]["1"]["focus"]["mean"] == pytest.approx(0.01 * columns["focus"][4:].mean())
    weights = scalariser("shift", TINY).weights
    alone = assign_credit(batch, [Shift(weights, decay=0.0), Group(scale="none", center=False)]).advantages[:, 0]
    assert alone[:4].mean() == pytest.approx(0)
    assert np.abs(alone).max() > 0


def test_arms_of_a_seed_start_from_one_network_that_is_near_uniform(world):
    one, two = (RoleNetwork(world.embeddings, 16, 5) for _ in range(2))
    table = one.log_softmax(np.arange(6)).detach().numpy()
    assert table.shape == (6, PLACES, VOCABULARY)
    assert np.array_equal(table, two.log_softmax(np.arange(6)).detach().numpy())
    assert np.abs(np.exp(table) - 1 / VOCABULARY).max() < 0.1
    assert not np.array_equal(table, RoleNetwork(world.embeddings, 16, 6).log_softmax(np.arange(6)).detach().numpy())


def test_training_learns_labels_and_attributes_and_words():
    config = replace(TINY, updates=150, learning_rate=0.02, evaluated=32)
    world = make_bandit(config, 1)
    before = measure(world, RoleNetwork(world.embeddings, 16, 0), config, 1)
    after = measure(world, train(world, scalariser("ccrn", config), config, 1), config, 1)
    assert after["mean_focus"] > before["mean_focus"] + 0.3
    assert after["mean_overlap"] > before["mean_overlap"] + 0.2
    assert after["worst_score"] == min(after["score_0"], after["score_1"])
    assert after["score_1"] == pytest.approx((after["overlap_1"] + after["focus_1"]) / 2)


def test_every_arm_is_played_and_the_control_is_the_raw_sum(played):
    assert played.arms == list(ARMS)
    assert len(played.rows) == 2 * len(ARMS)
    control = played.difference("worst_score", "shift", "raw")
    assert (control.estimate, control.low, control.high) == (0, 0, 0)
    assert played.difference("mean_score", "global", "raw").estimate != 0
    found = verdict_bandit(played)
    assert found.control == control
    assert "ccrn - wrong groups" in found.note


def test_the_study_goes_on_where_it_stopped_and_comes_out_the_same(tmp_path, monkeypatch, played):
    calls = iter(range(100))

    def failing(*given):
        if next(calls) == 3:
            raise RuntimeError("told to fail")
        return train(*given)

    monkeypatch.setattr(bandit_file, "train", failing)
    with RunStore.open(tmp_path / "run", "study", {}) as store, pytest.raises(RuntimeError):
        run_bandit(TINY, store)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        assert len(store.rows("rows")) == 3
        resumed = run_bandit(TINY, store)
    assert next(calls) == 4 + 2 * len(ARMS) - 3
    assert {json.dumps(row, sort_keys=True) for row in resumed.rows} == {
        json.dumps(row, sort_keys=True) for row in played.rows
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "reproduced"),
        ({"effect": (0.05, -0.01, 0.1)}, "inconclusive"),
        ({"effect": (-0.01, -0.05, 0.03)}, "not reproduced"),
        ({"effect": (-0.05, -0.1, -0.01)}, "not reproduced"),
        ({"against_global": (-0.01, -0.05, 0.03)}, "not reproduced"),
        ({"mean": (-0.02, -0.03, -0.01)}, "not reproduced"),
        ({"mean": (-0.01, -0.03, 0.01)}, "reproduced"),
        ({"control": (0.05, 0.01, 0.1)}, "not reproduced"),
        ({"falls": (0.1, -0.05, 0.2)}, "not reproduced"),
        ({"effect": (0.05, float("nan"), float("nan"))}, "inconclusive"),
    ],
)
def test_the_verdict_follows_from_the_intervals(change, expected):
    figures = {
        "effect": (0.05, 0.01, 0.1), "against_global": (0.0, -0.05, 0.05), "mean": (0.02, 0.01, 0.03),
        "control": (0, 0, 0), "falls": (0.3, 0.2, 0.4),
    } | change  # fmt: skip
    given = {name: Interval(*values, n=5) for name, values in figures.items()}
    sure = Interval(0.4, 0.3, 0.5, 5)
    given["falls"] = (sure, given["falls"], sure)
    assert decide(**given).verdict == expected


def test_arms_under_each_others_names_are_not_reproduced(played):
    """Rows in which the method is the better one are reproduced; the same rows renamed are not."""

    def rows(better, worse):
        out = []
        for row in played.rows:
            gain = {better: 0.1, worse: -0.1}.get(row["arm"], 0.0)
            falls = {"no-focus": "mean_focus", "no-attr": "mean_attr", "no-reference": "mean_overlap"}
            flat = dict.fromkeys(("mean_focus", "mean_attr", "mean_overlap"), 0.9)
            flat |= {falls[row["arm"]]: 0.1} if row["arm"] in falls else {}
            out.append({**row, **flat, "worst_score": 0.5 + gain + 0.001 * row["seed"], "mean_score": 0.6 + gain})
        return Result(tuple(out))

    assert verdict_bandit(rows("ccrn", "raw")).verdict == "not reproduced"  # the control is no longer the raw sum
    assert verdict_bandit(rows("ccrn", "global")).verdict == "reproduced"
    assert verdict_bandit(rows("global", "ccrn")).verdict == "not reproduced"


@pytest.mark.parametrize(
    "wrong", [{"tails": (0,)}, {"tails": (0, -1)}, {"samples": 1}, {"updates": 0}, {"decay": 1.0}, {"kl": -1.0}]
)
def test_bad_sizes_are_refused(wrong):
    with pytest.raises(UserError, match=r"tails|at least|decay"):
        BanditConfig(**wrong)


def test_the_registry_finds_it():
    entry = find_entry("6")
    assert entry.system.id == "006-character-r1"
    assert list(entry.studies) == ["bandit", "smollm2"]
