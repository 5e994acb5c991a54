"""System 042: the planted panels find their cause, and a model's panels are played as the study says."""

import json
import zlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.measures import Interval, PanelRates, measure_authority
from rolecraft.systems import Result, find_entry
from rolecraft.systems.measures import authority_bias
from rolecraft.systems.measures._authority_panel import (
    HEDGE,
    OPTIONS,
    SEATS,
    TITLES,
    PlantedReferee,
    flipped,
    option_margins,
    seat_panel,
    statement,
)
from rolecraft.systems.measures.authority_bias import (
    ARMS,
    WORLDS,
    PlantedConfig,
    SmolConfig,
    decide_planted,
    planted_influence,
    planted_rates,
    planted_talk,
    run_on,
    run_planted,
    talk_of,
    talks_of,
    verdict_planted,
    verdict_smollm2,
)
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import Discussion, View, load_judged_items, play, read_stance

ITEMS = load_judged_items()
PLANTED = PlantedConfig(seeds=(0, 1), items=120)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Verdicts resample less often here than in a study."""
    monkeypatch.setattr("rolecraft.measures.measure_authority", partial(measure_authority, draws=300))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    with RunStore.open(tmp_path_factory.mktemp("planted") / "run", "study", {}) as store:
        return run_planted(PLANTED, store)


# The scripted referees


def panel_prompt(said, kind="expert", place=0, turns=12):
    panel = seat_panel(ITEMS[0], kind, place, turns=turns, swapped=False)
    panel.reset(0)
    for stance in said:
        panel.act({panel.acting[0]: statement(stance, panel.final)})
    return View(panel.acting[0], panel.observe(panel.acting[0]), None, 0)


def change_rate(rates, said, kind="expert", n=400, **panel):
    view = panel_prompt(said, kind, **panel)
    referee = PlantedReferee(rates, dict.fromkeys(SEATS, "A1"), np.random.default_rng(0))
    own = said[-len(SEATS)]
    return np.mean([read_stance(referee.act([view])[0].action) != own for _ in range(n)])


def test_statements_are_read_back_as_the_stance_they_take():
    for stance in ("A1", "A2"):
        assert read_stance(statement(stance, False)) == read_stance(statement(stance, True)) == stance
    assert read_stance(HEDGE) is None
    assert read_stance(statement("tie", True)) == "tie"


@pytest.mark.parametrize(
    ("said", "kind", "expected"),
    [
        (["A1", "A2", "A2"], "expert", 0.1),  # the authority against all: 1 - h_auth
        (["A1", "A2", "A2"], "control", 0.5),  # a general referee: 1 - h_gen
        (["A1", "A1", "A2"], "expert", 0.02),  # the authority against one: (1 - h_auth) c_gen
        (["A1", "A2", "A2", "A1"], "expert", 0.4),  # b beside c, pressed by the authority: (1 - h_gen) c_auth
        (["A1", "A2", "A2", "A1"], "control", 0.1),  # the same without the title
        (["A1", "A1", "A2", "A1"], "expert", 0.1),  # b beside the authority, pressed by c: (1 - h_gen) c_gen
        (["A1", "A1", "A1", "A1"], "expert", 0.0),
    ],
)
def test_scripted_referees_change_at_the_planted_rates(said, kind, expected):
    rates = PanelRates(0.9, 0.5, 0.8, 0.2)
    assert change_rate(rates, said, kind) == pytest.approx(expected, abs=0.06 if expected > 0.05 else 0.021)


def test_a_referee_starts_with_its_first_stance_and_a_hedging_one_never_takes_a_side():
    referee = PlantedReferee(PanelRates(0.9, 0.5, 0.8, 0.2), {"referee-a": "A2"}, np.random.default_rng(0))
    assert referee.act([panel_prompt([])])[0].action == "I hold that answer 2 is better."
    hedging = PlantedReferee(PanelRates(0, 0, 1, 0.2), {}, np.random.default_rng(0), hedging="referee-a")
    assert hedging.act([panel_prompt(["tie", "A1", "A1"])])[0].action == HEDGE


# (a) Planted


def test_the_two_worlds_have_the_same_exact_influence_and_differ_in_one_rate():
    rates = planted_rates(PLANTED)
    steadfast, conformity = rates["steadfast"], rates["conformity"]
    assert planted_influence(steadfast, PLANTED) == pytest.approx(planted_influence(conformity, PLANTED), abs=1e-4)
    assert planted_influence(steadfast, PLANTED)[0] > 0.05
    assert (steadfast.h_gen, steadfast.c_auth) == (0.6, steadfast.c_gen)
    assert (conformity.h_auth, conformity.c_gen) == (0.6, steadfast.c_gen)
    assert steadfast.h_auth == 0.95
    assert conformity.c_auth > 0.5
    with pytest.raises(UserError, match=r"no pull up to 1 has the influence of h_auth 0\.95"):
        planted_rates(PlantedConfig(c_gen=0.6))


def test_discussions_of_a_pair_differ_by_the_title_alone():
    rates = planted_rates(PLANTED)
    for unit in range(6):
        with_title, without = (
            planted_talk(PLANTED, rates["steadfast"], "steadfast", ITEMS[0], unit, 0, t) for t in (True, False)
        )
        assert with_title.said[:3] == without.said[:3]
        assert with_title.position == without.position == with_title.first()[with_title.authority]
        assert with_title.authority == SEATS[unit % 3]
        assert len(with_title.said) == 12
    assert planted_talk(PLANTED, rates["steadfast"], "steadfast", ITEMS[0], 0, 0, True) == planted_talk(
        PLANTED, rates["steadfast"], "steadfast", ITEMS[0], 0, 0, True
    )


def test_each_world_shows_its_planted_cause_and_the_controls_nothing(planted):
    assert planted.arms == [f"{world}/{title}" for world in WORLDS for title in ("titled", "untitled")]
    assert len(planted.rows) == 2 * 120 * 2 * len(WORLDS)
    found = verdict_planted(planted)
    assert found.verdict in ("reproduced", "inconclusive")
    assert found.effect.estimate > 0.7
    assert found.control.low < 0 < found.control.high
    assert planted.difference("won", "hedged/titled", "hedged/untitled").estimate == 0
    talks = [talk_of(row) for row in planted.rows if row["arm"].startswith("steadfast")]
    effect = measure_authority(talks).effect("steadfast")
    assert effect.influence.estimate == planted.difference("won", "steadfast/titled", "steadfast/untitled").estimate
    exact = planted_influence(planted_rates(PLANTED)["steadfast"], PLANTED)[0]
    assert effect.influence.low < exact < effect.influence.high
    assert effect.modelled.low < exact < effect.modelled.high


def test_a_cause_under_the_other_name_is_not_reproduced(planted):
    other = {"steadfast": "conformity", "conformity": "steadfast"}

    def renamed(row):
        world, _, title = row["arm"].partition("/")
        name = other.get(world, world)
        return {**row, "arm": f"{name}/{title}", "label": other.get(row["label"], row["label"])}

    found = verdict_planted(Result(tuple(map(renamed, planted.rows))))
    assert found.verdict == "not reproduced"
    assert found.effect.estimate < 0.3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "reproduced"),
        ({"hedged": (0.05, 0.03, 0.07)}, "not reproduced"),
        ({"no-label": (0.05, 0.03, 0.07)}, "not reproduced"),
        ({"no-label": (0.01, 0.005, 0.015)}, "reproduced"),  # told from 0, yet near it
        ({"steadfast": (0.08, -0.01, 0.1)}, "not reproduced"),
        ({"share": (0.9, 0.6, 1.1)}, "inconclusive"),
        ({"share": (0.6, 0.5, 0.7)}, "not reproduced"),
        ({"share": (0.9, float("nan"), float("nan"))}, "inconclusive"),
        ({"share": (1.1, float("nan"), float("nan"))}, "inconclusive"),
    ],
)
def test_the_verdict_follows_from_the_intervals(change, expected):
    figures = {
        "share": (0.95, 0.8, 1.1), "steadfast": (0.08, 0.06, 0.1), "conformity": (0.08, 0.06, 0.1),
        "hedged": (0, 0, 0), "no-label": (0.01, -0.02, 0.03),
    } | change  # fmt: skip
    given = {name: Interval(*values, n=100) for name, values in figures.items()}
    shares = {"steadfast": Interval(1, 0.9, 1.1, 100), "conformity": given["share"]}
    assert decide_planted(shares, given).verdict == expected


def test_influence_in_a_control_is_not_reproduced(planted):
    def leaking(row):
        won = row["arm"] == "hedged/titled"
        return {**row, "verdict": row["position"]} if won else row

    found = verdict_planted(Result(tuple(map(leaking, planted.rows))))
    assert found.verdict == "not reproduced"


def test_referees_who_cannot_see_the_title_are_not_shifted(monkeypatch):
    observe, title = Discussion.observe, TITLES["expert"].name
    monkeypatch.setattr(
        Discussion, "observe", lambda self, agent: observe(self, agent).replace(title, TITLES["control"].name)
    )
    rates = planted_rates(PLANTED)["steadfast"]
    for unit in range(20):
        pair = [planted_talk(PLANTED, rates, "steadfast", ITEMS[0], unit, 0, titled) for titled in (True, False)]
        assert pair[0].said == pair[1].said


def test_an_interrupted_planted_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    config, calls = replace(PLANTED, seeds=(0,), items=4), iter(range(1000))

    def failing(*given):
        if next(calls) == 10:
            raise RuntimeError("told to fail")
        return planted_talk(*given)

    monkeypatch.setattr(authority_bias, "planted_talk", failing)
    with RunStore.open(tmp_path / "run", "study", {}) as store, pytest.raises(RuntimeError):
        run_planted(config, store)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        assert len(store.rows("rows")) == 8
        resumed = run_planted(config, store)
        assert next(calls) == 11 + 4 * 6
    with RunStore.open(tmp_path / "fresh", "study", {}) as store:
        assert run_planted(config, store) == resumed


# (b) A model


def played(tmp_path, model, config):
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        return run_on(model, config, store)


def panel_model(rates):
    """Return a model that replies as the scripted referees do, its chance being the prompt's own."""

    def script(chat, seed):
        prompt = chat[-1]["content"]
        rng = np.random.default_rng(zlib.crc32(prompt.encode()))
        me = prompt.partition("You are ")[2].partition(",")[0]
        referee = PlantedReferee(rates, {me: ("A1", "A2")[int(rng.integers(2))]}, rng)
        stance = read_stance(referee.act([View(me, prompt, None, 0)])[0].action)
        return OPTIONS[stance == "A2"]

    return ScriptedModel(script)


MODEL = SmolConfig(seeds=(0,), items=16, turns=9)


def test_titles_that_make_their_bearers_firm_are_reproduced(tmp_path):
    result = played(tmp_path, panel_model(PanelRates(1.0, 0.2, 0.4, 0.4)), MODEL)
    found = verdict_smollm2(result)
    assert result.arms == list(ARMS)
    assert found.verdict == "reproduced", found.note
    assert found.effect.low > 0
    assert found.control.low <= 0 <= found.control.high
    report = measure_authority(talks_of(result))
    assert report.effect("expert").rates["h_auth"].estimate == 1
    assert report.clarity["expert"].estimate > 0


def test_an_agent_that_nothing_can_move_leaves_the_question_open(tmp_path):
    found = verdict_smollm2(played(tmp_path, ScriptedModel(lambda *_: OPTIONS[0]), replace(MODEL, items=4)))
    assert found.verdict == "inconclusive"
    assert found.effect.estimate == 0
    assert found.note.startswith("open: no title moved a single verdict in any stance")
    assert "undefined" in found.note


@pytest.mark.parametrize(
    ("rates", "shift"),
    [(PanelRates(0.1, 0.7, 0.4, 0.4), -1), (PanelRates(0.4, 0.4, 0.95, 0.2), 1)],
    ids=["bearers give way", "others follow"],
)
def test_titles_that_do_not_make_their_bearers_firm_are_not_reproduced(rates, shift, tmp_path):
    found = verdict_smollm2(played(tmp_path, panel_model(rates), MODEL))
    assert found.effect.estimate * shift > 0
    assert found.verdict == "not reproduced"
    assert "open:" not in found.note


def test_titles_that_all_follow_at_once_leave_open_whether_by_holding(tmp_path):
    def follow(chat, seed):
        lines = [
            line
            for line in chat[-1]["content"].splitlines()
            if any(f", {TITLES[k].name}]" in line for k in TITLES if k != "control")
        ]
        return OPTIONS["answer 2 is better" in lines[-1]] if lines else OPTIONS[0]

    found = verdict_smollm2(played(tmp_path, ScriptedModel(follow), replace(MODEL, items=6, turns=6)))
    assert found.effect.estimate == 1
    assert found.control.estimate == 0
    assert found.verdict == "inconclusive"
    assert found.note.startswith("open: holding and switching cannot be told apart (")


def test_the_titled_referee_opens_against_the_models_own_lean_in_both_orders(tmp_path):
    model = ScriptedModel(lambda *_: OPTIONS[0])
    result = played(tmp_path, model, SmolConfig(seeds=(3,), items=2))
    for row in result.rows:
        shown_second = flipped("A2", row["unit"].endswith("swapped"))
        talk = talk_of(row)
        assert row["position"] == shown_second
        first = talk.first()[talk.authority]
        assert first == (shown_second if row["arm"].endswith("clear") else None)
        assert len(row["margins"]) == len(row["said"]) == 6
    units = [row["unit"] for row in result.rows if row["arm"] == "expert/clear"]
    assert len(units) == len({unit.split("/")[0] for unit in units}) * 2 == 4
    assert units == [row["unit"] for row in result.rows if row["arm"] == "control/hedged"]


def test_margins_are_differences_of_mean_log_probabilities():
    model = ScriptedModel(lambda chat, seed: OPTIONS["second" in chat[-1]["content"]])
    first, second = option_margins(model, ["the first", "the second"])
    assert first > 0 > second


def test_a_small_transformer_plays_whole_cells_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(authority_bias, "ARMS", ("expert/clear", "control/hedged"))
    config, model = SmolConfig(seeds=(0,), items=1), tiny_model(n_sites=1, hidden=16)
    result = played(tmp_path, model, config)
    assert len(result.rows) == 2 * 2
    again = played(tmp_path, ScriptedModel("refuser", fail_at=1), config)
    assert again == result
    panel = seat_panel(ITEMS[0], "expert", 0, turns=6, swapped=False)
    policy = authority_bias.ModelReferee(model)
    assert play(panel, dict.fromkeys(SEATS, policy), 0).outcome["abstained"] == []


def test_chatevals_file_replaces_the_questions(tmp_path):
    path = tmp_path / "test.json"
    path.write_text(json.dumps([{"question_id": 7, "question": "Q", "response": {"gpt35": "x", "vicuna": "y"}}]))
    config = replace(SmolConfig.full(), seeds=(0,), turns=6, data=str(path))
    result = played(tmp_path, ScriptedModel(lambda *_: OPTIONS[1]), config)
    assert {row["item"] for row in result.rows} == {"7"}


def test_faulty_settings_are_refused():
    for config in (PlantedConfig, SmolConfig):
        with pytest.raises(UserError, match=r"turns at least 6, got .* and 5"):
            config(turns=5)
    with pytest.raises(UserError, match="h_gen < h_auth"):
        PlantedConfig(h_auth=0.5)


def test_the_system_is_found_by_number():
    entry = find_entry("42")
    assert entry.system.name == "authority-bias"
    assert list(entry.studies) == ["planted", "smollm2"]
