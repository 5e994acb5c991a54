"""The studies `smollm2`: each system's own quantities by hand, its arms on a tiny model, and, slow, the real one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning import SEGMENT_ROLES
from rolecraft.learning.credit import CreditBatch, assign_credit
from rolecraft.systems import Result, find_entry
from rolecraft.systems.learning import (
    _adrs_smoke as adrs,
)
from rolecraft.systems.learning import (
    _at_grpo_smoke as at_grpo,
)
from rolecraft.systems.learning import (
    _cory_smoke as cory,
)
from rolecraft.systems.learning import (
    _moa_smoke as moa,
)
from rolecraft.systems.learning import (
    _omar_smoke as omar,
)
from rolecraft.systems.learning import (
    _skill_sd_smoke as skill_sd,
)
from rolecraft.systems.learning import (
    _triage_smoke as triage,
)
from rolecraft.systems.learning._language_step import Taught
from rolecraft.systems.learning._spoken_door import (
    WALKER,
    SpokenDoor,
    draw_rooms,
    form_rows,
    judge_rows,
    read_move,
    render,
    shortest_way,
    situation,
)
from rolecraft.testing import tiny_model
from rolecraft.worlds import KeyDoorMap, PlanPath

pytestmark = pytest.mark.filterwarnings("ignore::rolecraft.learning.selfplay.NoExchangeWarning")
NAMES = ("triage", "moa", "skill-sd", "at-grpo", "omar", "adrs", "cory")
ROOM = KeyDoorMap(("S.D", ".K.", "..."))


@pytest.fixture(autouse=True)
def _tiny(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "slow" not in request.keywords:
        monkeypatch.setattr("rolecraft.models._load.load_local", lambda *_, **__: tiny_model(1))


def tiny(name: str) -> Any:
    """Return a study's configuration at the least size."""
    config = find_entry(name).study("smollm2").config()
    sizes: dict[str, Any] = {"seeds": (1,), "rank": 2, "blocks": 0, "updates": 1, "evaluated": 2, "max_tokens": 4}
    sizes |= {"imitated": min(config.imitated, 1), "episodes": 2}
    sizes |= {"group": 2, "horizon": 2} if hasattr(config, "horizon") else {}
    special: dict[str, dict[str, Any]] = {
        "moa": {"updates": 3, "group": 2}, "omar": {"max_tokens": 24, "turns": 2, "evaluated": 1},
        "at-grpo": {"episodes": 1, "candidates": 2}, "cory": {"epochs": 1},
    }  # fmt: skip
    return replace(config, **{**sizes, **special.get(name, {})})


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_runs_on_a_tiny_model_and_is_not_run_twice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, config = find_entry(name).study("smollm2"), tiny(name)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = study.run(config, store)
        monkeypatch.setattr("rolecraft.models._load.load_local", None)
        assert study.run(config, store).rows == result.rows
        curves = store.rows("curves")
    assert set(result.arms) == set(config.arms)
    assert set(curves) == {f"{arm}/1" for arm in config.arms}
    assert all(len(curve["reward"]) == config.updates for curve in curves.values())
    found = study.verdict(result)
    assert found.verdict != "reproduced"
    assert "all arms ran, on finite numbers" in found.note


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_embedded_model_runs(name: str, tmp_path: Path) -> None:
    study = find_entry(name).study("smollm2")
    config = replace(study.config(), seeds=(2,), updates=3 if name == "moa" else 1)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = study.run(config, store)
    whole = [row for row in result.rows if row.get("unit") is None]
    assert all(row["finite"] for row in whole)
    assert any(row["moved"] for row in whole)
    assert study.verdict(result).note


# Spoken rooms


@pytest.mark.parametrize(
    ("reply", "move"),
    [("I go left.", "left"), ("Right, then up", "right"), ("UP!", "up"), ("upwards", ""), ("", ""), ("no", "")],
)
def test_the_first_direction_is_the_move(reply: str, move: str) -> None:
    assert read_move(reply) == move


def test_a_walk_is_paid_for_key_and_door_and_leaves_its_distances() -> None:
    world = SpokenDoor([ROOM], 5)
    world.reset(0)
    said, paid = ["hm", "I go down.", "right, and then left", "up", "I go right."], []
    for reply in said:
        assert "row 1, column 3" in world.observe(WALKER)
        world.act({WALKER: reply})
        paid.append(world.rewards()[WALKER])
    assert paid == [0, 0, 0.5, 0.5, 1.0]
    assert world.outcome()["distances"] == [4, 4, 3, 2, 1, 0]
    assert world.outcome()["way"][2:4] == ["row 2, column 1", "row 2, column 2 with the key"]
    assert not world.acting


def test_what_is_seen_tells_the_situation() -> None:
    world = SpokenDoor([ROOM], 5)
    world.reset(0)
    for reply in ("down", "right"):
        assert situation(world.observe(WALKER)) == world.outcome()["way"][-1]
        world.act({WALKER: reply})
    assert situation(world.observe(WALKER)) == "row 2, column 2 with the key"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_way_that_a_teacher_is_told_leads_to_the_door(seed: int) -> None:
    (room,) = draw_rooms(1, 3, 2, 3, seed)
    skill = shortest_way(room)
    assert 2 <= len(skill.golden_workflow) <= 3
    world = SpokenDoor([room], 9)
    world.reset(0)
    for step in skill.golden_workflow:
        place, move = step.removeprefix("In ").removesuffix(".").split(" go ")
        assert situation(world.observe(WALKER)) == place
        world.act({WALKER: move})
    assert world.succeeded
    assert all(step in render(skill) for step in skill.golden_workflow)


def test_the_form_is_shown_with_directions_at_random() -> None:
    policy = triage.load_rooms(replace(tiny("triage"), imitated=0), "x", 1).policy
    rows = form_rows(policy, draw_rooms(4, 3, 2, 3, 5), 1)
    assert len(rows) == 4 * 8
    texts = [policy.codec.text(row.tokens[:-1]) for row in rows]
    assert {read_move(text) for text in texts} == {"up", "down", "left", "right"}
    assert all(text == f"I go {read_move(text)}." for text in texts)
    assert all(row.tokens[-1] == policy.codec.end for row in rows)


def rooms_played() -> tuple[Any, list[Any]]:
    """Return rows and episodes of two walks: bumped, nearer, farther; and new but no nearer."""
    outcomes = [
        {"distances": [3, 3, 2, 3], "way": ["a", "a", "b", "a"]},
        {"distances": [2, 2, 1, 1], "way": ["a", "c", "d", "d"]},
    ]
    keys = {"traj": np.repeat([0, 1], 3), "turn": np.tile([0, 1, 2], 2), "task": np.zeros(6, dtype=int)}
    batch = CreditBatch(np.ones((6, 2), dtype=bool), keys, {"outcome": np.zeros(6)})
    return SimpleNamespace(batch=batch), [SimpleNamespace(outcome=each) for each in outcomes]


def test_replies_get_roles_by_the_distance() -> None:
    rows, episodes = rooms_played()
    assert [SEGMENT_ROLES[role] for role in judge_rows(rows, episodes)] == ["N", "D", "R", "E", "D", "N"]


def test_rooms_run_out() -> None:
    with pytest.raises(UserError, match="no 30 maps of 2 x 2"):
        draw_rooms(30, 2, 2, 2, 1)


# TRIAGE


def test_triage_tells_replies_of_an_episode_apart() -> None:
    rows, episodes = rooms_played()
    shift = np.array([[0.0, 0.2], [0.5, 0.5], [0.3, -0.3], [1.0, 1.0], [2.0, 4.0], [0.0, 0.0]])
    found = triage.told_apart(Taught(episodes, rows, None, shift, {}))  # type: ignore[arg-type]
    assert found == {0: pytest.approx(0.5 - 0.05), 1: pytest.approx(3.0 - 0.5)}


@pytest.mark.parametrize("arm", ["triage", "random", "all-n"])
def test_triages_arms_differ_in_the_labels(arm: str) -> None:
    from rolecraft.learning.trainer import Rows

    plain, episodes = rooms_played()
    rows = Rows([], [], plain.batch, {}, [])
    labels = [triage.label(rows, episodes, arm, np.random.default_rng(n)).batch.row["label"] for n in range(20)]
    true = judge_rows(rows, episodes)
    if arm == "random":
        assert 0.1 < np.mean(labels == true) < 0.4
    else:
        assert (np.array(labels) == (true if arm == "triage" else SEGMENT_ROLES.index("N"))).all()


# ADRS


def say_of(rule: str) -> tuple[Taught, np.ndarray]:
    from rolecraft.systems.learning.adrs import rule_of

    rng = np.random.default_rng(0)
    teacher, old = -rng.exponential(2.0, (8, 4)), -rng.exponential(1.0, (8, 4))
    batch = CreditBatch(
        np.ones((8, 4), dtype=bool), {"task": np.repeat([0, 1], 4), "traj": np.arange(8)},
        {"outcome": np.array([0, 1, 0, 1, 1, 1, 1, 1.0])}, {"logp_teacher": teacher, "logp_old": old},
    )  # fmt: skip
    credit = assign_credit(batch, rule_of(rule, adrs.SmokeConfig()))
    rows: Any = SimpleNamespace(batch=batch)
    return Taught((), rows, credit, np.zeros((8, 4)), {}), np.abs(teacher - old)


def test_the_teachers_say_is_bounded_but_for_the_unclipped_loss() -> None:
    taught, gap = say_of("adrs")
    say = adrs.teachers_say(taught, "adrs")
    assert say.max() <= 0.2 + 1e-9
    assert say[:4].max() > 0.01
    assert not say[4:].any()  # outcomes of the second group do not differ
    taught, gap = say_of("unclipped")
    np.testing.assert_allclose(adrs.teachers_say(taught, "unclipped"), gap)
    assert not adrs.teachers_say(say_of("grpo")[0], "grpo").any()


def test_the_bad_teacher_is_told_the_opposite() -> None:
    told = "The way: In row 1, column 1 go up. In row 1, column 2 go right."
    assert adrs._opposite(told) == "The way: In row 1, column 1 go down. In row 1, column 2 go left."
    assert adrs._opposite(adrs._opposite(told)) == told


# Skill-SD


def test_the_distance_to_the_teacher_is_k3_and_falls_toward_it() -> None:
    rng = np.random.default_rng(1)
    old, teacher = -rng.exponential(1.0, (5, 3)), -rng.exponential(1.0, (5, 3))
    mask = np.ones((5, 3), dtype=bool)
    mask[2, 1:] = False
    batch = CreditBatch(mask, {"traj": np.arange(5)}, {}, {"logp_old": old})
    rows: Any = SimpleNamespace(batch=batch)
    taught = Taught((), rows, None, 0.5 * (teacher - old) * mask, {})  # type: ignore[arg-type]
    gap = teacher - old
    slow = [np.mean([np.exp(g) - 1 - g for g in gap[row][mask[row]]]) for row in range(5)]
    np.testing.assert_allclose(skill_sd.distance(taught, teacher), slow)
    assert (skill_sd.closer(taught, teacher) > 0).all()
    away = replace(taught, shift=-taught.shift)
    assert (skill_sd.closer(away, teacher) < 0).all()
    assert not skill_sd.distance(taught, old).any()


def test_skills_of_every_room_are_there_before_the_first_update_and_a_control_is_told_anothers() -> None:
    from rolecraft.agents import SkillBank

    config = replace(tiny("skill-sd"), imitated=0)
    base = skill_sd.load_rooms(config, "skill-sd", 1)
    for shuffled in (False, True):
        trainer = skill_sd.make_trainer(config, "skill-sd", base, skill_sd.make_rule(config, "skill-sd"), 1)
        teacher = skill_sd.make_teacher(config, base, SkillBank(), 1, shuffled=shuffled)
        teacher.bind(trainer)
        skill_sd.scout(config, trainer, teacher, 1)
        assert sorted(teacher.bank.tasks) == ["0", "1"]
        rows: Any = SimpleNamespace(
            batch=SimpleNamespace(keys={"traj": np.array([0])}, row={"outcome": np.array([0.0])})
        )
        text = teacher.choose(rows, ["0"])[0]
        assert text in {render(entry.skill) for entry in teacher.bank.of("1" if shuffled else "0")}


# MOA


def test_rubrics_are_exact() -> None:
    item = moa.make_task().items[0]
    assert item.id == "Nora"
    best = moa.rate(item, "Mint, honey or ginger, dear: lovely?")
    assert best == dict.fromkeys(moa.RUBRICS, 1.0)
    worst = moa.rate(item, "tea " * 20)
    assert worst == {"brevity": 0.0, "knowledge": 0.0, "style": 0.0, "instruction": 0.0, "no_repeat": 0.05}
    assert moa.rate(item, "a b c d e f g h i j k l m")["brevity"] == pytest.approx(0.5)
    assert set(moa.rate(item, "").values()) == {0.0}


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.floats(0, 50))
def test_moas_weights_lead(residual: list[float], beta: float) -> None:
    from rolecraft.learning.credit import residual_weights

    names = [str(n) for n in range(len(residual))]
    weights = dict(zip(names, residual_weights(residual, beta).tolist(), strict=True))
    assert moa.lead(dict(zip(names, residual, strict=True)), weights) >= -1e-12


def test_rows_that_fall_behind_are_spared_by_moa_alone() -> None:
    config = moa.SmokeConfig()
    rng = np.random.default_rng(2)
    keys = {"task": np.repeat([0, 1], 8), "traj": np.arange(16)}
    for arm in ("uniform", "moa"):
        watch, state, found = moa.Watch(config), None, []
        rule = moa.credit_rule(config, arm, 1)
        for _ in range(6):
            objectives = {name: rng.random(16) for name in moa.RUBRICS}
            batch = CreditBatch(np.ones((16, 1), dtype=bool), keys, objectives=objectives)
            credit = assign_credit(batch, rule, state)
            state = credit.state
            rows: Any = SimpleNamespace(batch=batch)
            info, spared = watch(Taught((), rows, credit, np.zeros((16, 1)), {}))
            below = moa.below_mean(batch, info["moa/pivot"])
            for row in range(16):
                own = objectives[info["moa/pivot"]]
                assert below[row] == (own[row] < own[keys["task"] == keys["task"][row]].mean())
            found += list(spared.values())
        assert max(found) == 0.0 if arm == "uniform" else max(found) > 0


# CORY


def test_sums_are_paid_by_the_last_number() -> None:
    assert cory.reward(cory.query(3, 4), "3 + 4 is 7.") == 1
    assert cory.reward(cory.query(3, 4), "7, or 8") == 0
    assert cory.reward(cory.query(3, 4), "seven") == 0
    assert len(set(cory.QUERIES)) == 81


def test_agreement_is_with_a_number_that_was_given() -> None:
    def said(pioneer: str, observer: str) -> Any:
        return SimpleNamespace(outcome={"answers": {"pioneer": pioneer, "observer": observer}})

    first, second = said("It is 5", "5!"), said("no idea", "no idea")
    assert cory.agreement(first, first) == 1
    assert cory.agreement(second, second) == cory.agreement(first, second) == cory.agreement(second, first) == 0


def test_copies_begin_alike_and_change_seats() -> None:
    config = replace(tiny("cory"), updates=2, exchange=1)
    base = cory.load(config, 1)
    first, second = (base.policies[name] for name in cory.NAMES)
    prompt = first.encode("pioneer", None, cory.QUERIES[0])
    assert first.sample([prompt], [None], [3]) == second.sample([prompt], [None], [3])
    log = cory.play(config, base, "cory", 1)
    assert log.curves["leads"] == [0.0, 1.0]
    assert cory.play(config, base, "ppo", 1).curves["leads"] == [0.0, 0.0]


# OMAR


def test_a_group_of_participants_never_gains_together() -> None:
    """Each participant counts once, however often it spoke."""
    from rolecraft.systems.learning.omar import credit_rule

    keys = {
        "traj": np.array([0, 0, 0, 1, 1, 2, 2]), "agent": np.array([0, 1, 0, 0, 1, 0, 1]),
        "turn": np.array([0, 0, 1, 0, 0, 0, 0]), "task": np.array([0, 0, 0, 1, 1, 2, 2]),
        "step": np.array([0, 1, 2, 0, 1, 0, 1]),
    }  # fmt: skip
    outcome = np.array([0.9, 0.5, 0.9, 0.0, 0.0, 0.3, 1.0])
    columns = {"outcome": outcome, "steps_to_end": np.array([1.0, 0, 0, 0, 0, 0, 0])}
    token = {"value": np.zeros((7, 1)), "logp_old": np.zeros((7, 1))}
    batch = CreditBatch(np.ones((7, 1), dtype=bool), keys, columns, token)
    rows: Any = SimpleNamespace(batch=batch)
    episodes: Any = [SimpleNamespace(outcome={"surplus_share": share}) for share in (0.9, 0.0, 0.8)]
    for rule in ("grpo", "hierarchical"):
        credit = assign_credit(batch, credit_rule(omar.SmokeConfig(), rule))
        common, products = omar.shared_credit(Taught(episodes, rows, credit, np.zeros((7, 1)), {}))
        if rule == "grpo":
            assert not common.any()
            assert not products.any()
        else:
            assert products.mean() > 0.9


# AT-GRPO


def test_a_plan_is_the_directions_in_their_order() -> None:
    assert at_grpo.read_directions("First UP, then left. Downwards? down", 4) == "U L D"
    assert at_grpo.read_directions("up up up", 2) == "U U"
    assert at_grpo.read_directions("nowhere", 4) == ""


def test_a_spoken_plan_is_worth_what_the_plan_is() -> None:
    config = at_grpo.SmokeConfig()
    spoken, plain = at_grpo.make_world(config), PlanPath(config.size, 0.22, config.longest, config.turns, nearest=2)
    for seed in range(3):
        spoken.reset(seed)
        plain.reset(seed)
        for text, plan in (("I go up, right.", "U R"), ("hm", "hm"), ("left down", "L D"), ("up", "U")):
            if not plain.acting:
                break
            (agent,) = plain.acting
            assert ("suggests: up right" in spoken.observe(agent)) == (agent == "checker" and plan == "hm")
            spoken.act({agent: text})
            plain.act({agent: plan})
            assert spoken.rewards() == plain.rewards()
    assert spoken.outcome() == plain.outcome()


def test_the_key_decides_whether_prompts_are_compared_with_themselves() -> None:
    config = replace(tiny("at-grpo"), episodes=2, candidates=4)
    base = at_grpo.load(config, 1)
    trainer = at_grpo.make_trainer(config, base, "both", 1)
    rows = at_grpo.as_rows(at_grpo.sample(config, trainer, 1), trainer)
    assert set(rows.policies) == {"proposer", "checker"}
    reward = np.random.default_rng(3).normal(size=len(rows.replies))
    batch = replace(rows.batch, row={**rows.batch.row, "team_reward": np.zeros_like(reward), "reward": reward})
    for arm, even in (("both", True), ("none", False)):
        advantage = assign_credit(batch, at_grpo.credit_rule(config, arm)).advantages[:, 0]
        means = [abs(advantage[batch.keys["prompt"] == prompt].mean()) for prompt in set(batch.keys["prompt"])]
        assert (max(means) < 1e-9) == even


# Bad input and verdicts


@pytest.mark.parametrize(
    ("name", "wrong", "told"),
    [
        ("triage", {"group": 1}, "group at least 2"),
        ("adrs", {"arms": ("grpo", "adrs/god")}, "'adrs/god' is none of"),
        ("skill-sd", {"arms": ("grpo",)}, "skill-sd, shuffled is left out"),
        ("moa", {"updates": 2}, "updates more than 2"),
        ("at-grpo", {"candidates": 1}, "candidates of at least 2"),
        ("omar", {"episodes": 0}, "episodes 0"),
        ("cory", {"max_tokens": 0}, "max_tokens 0"),
    ],
)
def test_bad_sizes_are_refused(name: str, wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        find_entry(name).study("smollm2").config(**wrong)


def made_up(apart: dict[str, float], reward: dict[str, float]) -> Result:
    rows: list[dict[str, Any]] = []
    for arm in ("grpo", "triage", "random"):
        whole = {"updates": 2, "finite": True, "moved": 0.1, "silent": 0.0, "format": 1.0, "nearer": 0.5, "dead": 0.5}
        rows.append({"arm": arm, "seed": 1, "flips": 0.2, "entropy": 0.3, **whole})
        for n in range(6):
            noise = 0.01 * (n % 3)
            rows.append({"arm": arm, "seed": 1, "unit": f"1:0/{n}", "followed": 0.5, "apart": apart[arm] + noise})
            rows.append(
                {"arm": arm, "seed": 1, "unit": f"1:final/{n}", "reward": reward[arm] + noise * (arm == "grpo")}
            )
    return Result(tuple(rows))


@pytest.mark.parametrize(
    ("apart", "gain", "expected"),
    [
        ((0.0, 0.3, 0.0), 0.4, "reproduced"),
        ((0.0, 0.3, 0.0), 0.0, "inconclusive"),
        ((0.0, 0.3, 0.3), 0.4, "not reproduced"),
        ((0.3, 0.0, 0.0), 0.4, "not reproduced"),
    ],
)
def test_triages_verdict_needs_its_quantity_its_control_and_the_gain(
    apart: tuple[float, ...], gain: float, expected: str
) -> None:
    arms = ("grpo", "triage", "random")
    result = made_up(dict(zip(arms, apart, strict=True)), {"grpo": 0.0, "triage": gain, "random": 0.0})
    assert triage.verdict(result).verdict == expected
