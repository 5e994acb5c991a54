"""System 006, the language-model study: what is imitated, what is paid, which arms there are, and its verdict."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from rolecraft._run import RunStore
from rolecraft.agents import FOCUS_POINTS, read_focus
from rolecraft.errors import UserError
from rolecraft.learning import character_reward, load_character_cases
from rolecraft.learning.character._rewards import COMPONENTS
from rolecraft.learning.credit import Ccrn, CreditBatch, Group, WeightedSum, assign_credit
from rolecraft.measures import Interval
from rolecraft.systems import Result
from rolecraft.systems.learning import _character_smoke as smoke_file
from rolecraft.systems.learning._character_smoke import (
    ShuffledRewards,
    demonstrations,
    evaluate,
    imitate,
    make_smoke,
    make_task,
    make_trainer,
    rule,
    short_prompt,
)
from rolecraft.systems.learning.character_r1 import (
    SmokeConfig,
    decide_smollm2,
    run_on,
    run_smollm2,
    verdict_smollm2,
)
from rolecraft.testing import tiny_model
from rolecraft.worlds import ReplyTask

pytestmark = pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning")
TINY = SmokeConfig(
    seeds=(1, 2), prompts=3, batch=2, samples=2, updates=2, max_tokens=6, imitated=1, rank=2, blocks=1, evaluated=2,
    arms=("ccrn", "raw", "shuffled"),
)  # fmt: skip
ARMS = ("base", "start", "ccrn", "raw", "shuffled")


@pytest.fixture(scope="module")
def smoke():
    return make_smoke(tiny_model(2), TINY, 1)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    with RunStore.open(tmp_path_factory.mktemp("smoke") / "run", "study", {}) as store:
        return run_on(tiny_model(2), TINY, store)


def test_what_is_imitated_shows_the_form_and_not_which_label_is_asked_for(smoke):
    rows = demonstrations(smoke, TINY, 1)
    policy = smoke.policy
    assert len(rows) == 3 * len(smoke.others)
    trained = {policy.encode("speaker", None, item.prompt) for item in smoke.task.items}
    labels = []
    for place, row in enumerate(rows):
        assert row.tokens[-1] == policy.codec.end
        assert row.prompt not in trained
        trace = read_focus(policy.codec.text(row.tokens[:-1]))
        assert trace.well_formed
        assert smoke.others[place // 3].reference.startswith(trace.reply)
        labels += trace.labels
    assert all(len(set(labels[start : start + 3])) == 3 for start in range(0, len(labels), 3))
    assert set(labels) == set(FOCUS_POINTS)
    gold = np.mean([label in smoke.others[place // 3].focus for place, label in enumerate(labels)])
    assert gold < 0.35


def test_talks_of_a_seed_have_few_labels_and_are_not_imitated(smoke):
    assert len(smoke.cases) == 3
    assert all(len(case.focus) == 1 for case in smoke.cases)
    assert not {case.id for case in smoke.cases} & {case.id for case in smoke.others}
    assert len(smoke.cases) + len(smoke.others) == len(load_character_cases())
    drawn = {tuple(case.id for case in make_smoke(tiny_model(2), TINY, seed).cases) for seed in (1, 2, 3)}
    assert len(drawn) > 1


def test_the_short_prompt_shows_no_label_and_the_long_one_all(smoke):
    case = smoke.cases[0]
    short = make_task([case], TINY).observe("speaker")
    assert short == short_prompt(case)
    assert case.messages[-1]["content"] in short
    assert not any(label in short for label in FOCUS_POINTS)
    long = make_task([case], replace(TINY, prompt="examples")).observe("speaker")
    assert all(label in long for label in FOCUS_POINTS)


def test_the_ten_rewards_and_the_group_of_the_character_reach_the_rule(smoke):
    trainer = make_trainer(smoke, "ccrn", TINY, 1)
    starts = trainer.starts()
    episodes = trainer.collect(starts)
    rows = trainer.rows(episodes, starts)
    cases = {case.id: case for case in smoke.cases}
    assert tuple(rows.batch.objectives) == COMPONENTS
    for row, (episode, turn) in enumerate(zip(episodes, rows.turns, strict=True)):
        case = cases[episode.outcome["item"]]
        raw = character_reward(turn.action, case).raw
        assert {name: column[row] for name, column in rows.batch.objectives.items()} == raw
        assert rows.batch.keys["group"][row] == sorted({each.group for each in smoke.cases}).index(case.group)
    assert rows.batch.keys["task"].tolist() == [0, 0, 1, 1]


def test_arms_differ_by_their_rule():
    ccrn, raw, shuffled = (rule(arm, TINY, 1) for arm in ("ccrn", "raw", "shuffled"))
    assert [type(stage) for stage in ccrn] == [Ccrn, Group]
    assert ccrn[0].keys == ("group",)
    assert ccrn[0].weights["focus"] == pytest.approx(0.35)
    assert [type(stage) for stage in raw] == [WeightedSum, Group]
    assert [type(stage) for stage in shuffled] == [Ccrn, ShuffledRewards, Group]


def test_rewards_are_shuffled_within_their_group_and_anew_each_time():
    outcome = np.arange(40.0)
    task = np.tile([3, 1, 2, 0], 10)
    batch = CreditBatch(np.ones((40, 1), dtype=bool), {"task": task}, {"outcome": outcome})
    stages = [ShuffledRewards(seed=4), Group(center=False, scale="none")]
    first = assign_credit(batch, stages)
    second = assign_credit(batch, stages, json.loads(json.dumps(first.state)))
    again = assign_credit(batch, stages)
    for dealt in (first, second):
        for group in range(4):
            own = dealt.advantages[task == group, 0]
            assert sorted(own.tolist()) == outcome[task == group].tolist()
            assert own.tolist() != outcome[task == group].tolist()
    assert not np.array_equal(first.advantages, second.advantages)
    assert np.array_equal(first.advantages, again.advantages)
    other = assign_credit(batch, [ShuffledRewards(seed=5), *stages[1:]])
    assert not np.array_equal(first.advantages, other.advantages)


def test_arms_go_on_from_the_same_weights_and_leave_the_base_alone(tmp_path, monkeypatch):
    begun, real = [], smoke_file.train

    def watched(trainer, config):
        policy = trainer.policies["policy"]
        begun.append({name: each.detach().clone() for name, each in policy.parameters().items()})
        curve = real(trainer, config)
        begun.append({name: each.detach().clone() for name, each in policy.parameters().items()})
        return curve

    monkeypatch.setattr(smoke_file, "train", watched)
    paid = iter(np.linspace(0, 1, 2000))
    monkeypatch.setattr(
        smoke_file, "make_task",
        lambda cases, config: ReplyTask(
            make_task(cases, config).items, lambda item, reply: dict.fromkeys(COMPONENTS, float(next(paid)))
        ),
    )  # fmt: skip
    model = tiny_model(2)
    before = {name: each.clone() for name, each in model.model.named_parameters()}
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        run_on(model, replace(TINY, seeds=(1,)), store)
    frozen = {
        name.replace(".base_layer", ""): each for name, each in model.model.named_parameters() if "lora" not in name
    }
    assert all(torch.equal(before[name], each) for name, each in frozen.items())
    starts, ends = begun[::2], begun[1::2]
    assert len(starts) == 3
    for name in starts[0]:
        assert "layers.1." in name
        assert all(torch.equal(starts[0][name], each[name]) for each in starts)
    assert any(not torch.equal(ends[0][name], starts[0][name]) for name in starts[0])
    assert any(not torch.equal(ends[0][name], ends[2][name]) for name in starts[0])


def test_a_model_learns_what_the_ten_rewards_pay_and_not_what_shuffled_ones_do(monkeypatch):
    """The letter `e` is paid for in the place of good replies, which a random model of letters never writes."""
    config = replace(TINY, updates=20, batch=4, samples=8, lr=0.05, imitated=0, evaluated=32, rank=4, blocks=2)

    def task(cases, config):
        items = [replace(item, prompt="?") for item in make_task(cases, config).items]
        return ReplyTask(items, lambda item, reply: dict.fromkeys(COMPONENTS, reply.count("e") / 6))

    monkeypatch.setattr(smoke_file, "make_task", task)
    smoke = make_smoke(tiny_model(2), config, 1)
    found = {}
    for arm in ("base", "ccrn", "shuffled"):
        smoke.policy.load(smoke.untrained)
        trainer = make_trainer(smoke, arm, config, 1)
        if arm != "base":
            smoke_file.train(trainer, config)
        found[arm] = np.mean([row["focus"] for row in evaluate(smoke, trainer, config, 1).values()])
    assert found["base"] < 0.1
    assert found["ccrn"] > 0.25
    assert found["shuffled"] < 0.15


def test_imitation_changes_the_adapter_and_starts_from_none(smoke):
    first, second = imitate(smoke, TINY, 1), imitate(smoke, TINY, 1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], smoke.untrained[name]) for name in first)
    none = imitate(smoke, replace(TINY, imitated=0), 1)
    assert all(torch.equal(none[name], smoke.untrained[name]) for name in none)


def test_there_is_a_row_for_each_arm_seed_and_talk(played):
    assert played.arms == list(ARMS)
    assert len(played.rows) == 2 * 3 * len(ARMS)
    assert {row["unit"] for row in played.rows} <= {case.id for case in load_character_cases()}
    assert verdict_smollm2(played).verdict == "not reproduced"


def test_the_study_goes_on_where_it_stopped_and_comes_out_the_same(tmp_path, monkeypatch, played):
    calls, real = iter(range(100)), smoke_file.train

    def failing(*given):
        if next(calls) == 2:
            raise RuntimeError("told to fail")
        return real(*given)

    monkeypatch.setattr(smoke_file, "train", failing)
    with RunStore.open(tmp_path / "run", "study", {}) as store, pytest.raises(RuntimeError):
        run_on(tiny_model(2), TINY, store)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        assert len(store.rows("arms")) == 4
        resumed = run_on(tiny_model(2), TINY, store)
        assert len(store.rows("arms")["ccrn/1"]["curve"]) == 2
    assert next(calls) == 3 + 4
    assert sorted(map(json.dumps, resumed.rows)) == sorted(map(json.dumps, played.rows))


UP, FLAT, DOWN = Interval(0.3, 0.2, 0.4, 9), Interval(0.02, -0.1, 0.1, 9), Interval(-0.2, -0.3, -0.1, 9)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "reproduced"),
        ({"control": DOWN}, "reproduced"),
        ({"focus": FLAT}, "inconclusive"),
        ({"form": FLAT}, "inconclusive"),
        ({"ahead": FLAT}, "inconclusive"),
        ({"focus": DOWN}, "not reproduced"),
        ({"form": DOWN}, "not reproduced"),
        ({"ahead": DOWN}, "not reproduced"),
        ({"control": UP}, "not reproduced"),
    ],
)
def test_the_verdict_follows_from_the_intervals(change, expected):
    given = {"focus": UP, "form": UP, "control": FLAT, "ahead": UP} | change
    assert decide_smollm2(**given).verdict == expected


def test_arms_under_each_others_names_are_not_reproduced():
    def rows(better):
        found = []
        for seed in (1, 2):
            for talk in range(6):
                for arm in ("base", "start", "ccrn", "shuffled"):
                    high = 0.5 if arm == better else 0.0
                    noise = 0.02 * ((talk + seed) % 3)
                    found.append(
                        {"arm": arm, "seed": seed, "unit": talk, "focus": high + noise, "format": high + noise}
                    )
        return Result(tuple(found))

    assert verdict_smollm2(rows("ccrn")).verdict == "reproduced"
    assert verdict_smollm2(rows("shuffled")).verdict == "not reproduced"
    assert verdict_smollm2(rows("start")).verdict == "not reproduced"
    assert "format rate 0.02 untrained, 0.02 after imitation, 0.52 trained" in verdict_smollm2(rows("ccrn")).note


@pytest.mark.parametrize("wrong", [{"samples": 1}, {"updates": 0}, {"prompts": -1}, {"arms": ("ccrn", "raw")}])
def test_bad_sizes_are_refused(wrong):
    with pytest.raises(UserError, match=r"expected 2 samples|arms: the method"):
        SmokeConfig(**wrong)


def test_what_cannot_be_had_is_refused(tmp_path):
    with pytest.raises(UserError, match="prompts: characters-v1 has 9 talks with at most 1 labels, and 10"):
        make_smoke(tiny_model(2), replace(TINY, prompts=10), 1)
    with pytest.raises(UserError, match=r"blocks: .* has 2, got 3"):
        make_smoke(tiny_model(2), replace(TINY, blocks=3), 1)
    with pytest.raises(UserError, match="none is left to imitate"):
        make_smoke(tiny_model(2), replace(TINY, prompts=0, labels=10), 1)
    with (
        RunStore.open(tmp_path / "run", "study", {}) as store,
        pytest.raises(UserError, match="--set model=local:PATH"),
    ):
        run_smollm2(SmokeConfig.full(), store)


def test_the_papers_size_can_be_built():
    full = SmokeConfig.full()
    assert (full.kl, full.groups, full.samples, full.imitated) == (0.02, 7, 5, 0)
    pytest.importorskip("sklearn")
    fit = replace(full, batch=1, samples=2, updates=1, max_tokens=4, rank=2, evaluated=1, groups=0)
    smoke = make_smoke(tiny_model(2), fit, 1)
    assert len(smoke.cases) == 36
    figures = make_trainer(smoke, "ccrn", fit, 1).step().figures
    assert figures["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_the_embedded_model_learns_the_form_by_imitation(tmp_path):
    config = replace(SmokeConfig(), seeds=(3,), updates=1, evaluated=2)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        found = run_smollm2(config, store)
    assert found.mean("format", "base").estimate < 0.05
    assert found.mean("format", "start").estimate > 0.05
