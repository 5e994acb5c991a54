import re
from dataclasses import replace

import numpy as np
import pytest
import yaml

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.measures import ShiftRule, load_life_events, load_questionnaire, measure_shifts
from rolecraft.systems import Result, find_entry
from rolecraft.systems.measures._bfi_agents import (
    SD,
    SHIFT_SD,
    PlantedAgent,
    make_personas,
    planted_shifts,
    planted_world,
    sittings,
)
from rolecraft.systems.measures.bfi_adapt import (
    ARMS,
    PlantedConfig,
    SmolConfig,
    expected_kind,
    read_report,
    read_shifts,
    run_on,
    run_planted,
    verdict_planted,
    verdict_smollm2,
)
from rolecraft.testing import ScriptedModel

BIG = load_questionnaire("big-five-v1")
EVENTS = load_life_events()
WORLD = planted_world(BIG, 4, 8, 0.6, (0.45, 0.9), seed=1)
SMALL = SmolConfig(seeds=(0, 1), personas=4, events=("first-job", "retirement"), items=2, fillers=2, repeats=2)


def test_the_system_and_its_studies_are_found():
    entry = find_entry("bfi-adapt")
    assert entry.system.id == "004-bfi-adapt"
    assert list(entry.studies) == ["planted", "smollm2"]


class TestPlantedAgents:
    def test_they_shift_as_planted_in_points_of_the_instrument(self):
        """From the answers alone, through keying and scoring: 0.6 SD on documented cells, none elsewhere."""
        shifts, planted = planted_shifts(PlantedAgent(size=1, spread=1), WORLD, BIG, (400, 2, 5), seed=3)
        means = shifts.by_persona.mean(0).reshape(4, 5)
        for row, event in enumerate(WORLD.events):
            for column, trait in enumerate(BIG.traits):
                wanted = planted.get((event, trait), 0) * 0.6 * SD
                assert means[row, column] == pytest.approx(wanted, abs=0.07)
        assert shifts.pre.mean(axis=(1, 2)).std(0) == pytest.approx([SD] * 5, abs=0.1)
        noise = shifts.retest.var(axis=1, ddof=1).mean() / 2
        assert np.sqrt(shifts.by_persona.var(0).mean() - noise) == pytest.approx(SHIFT_SD, abs=0.05)

    def test_the_share_that_goes_the_wrong_way_is_exact(self):
        _, planted = planted_shifts(PlantedAgent(size=1, wrong=0.25), WORLD, BIG, (5, 1, 5), seed=3)
        wrong = [WORLD.sign(*cell) != sign for cell, sign in planted.items()]
        assert (len(wrong), sum(wrong)) == (8, 2)
        _, still = planted_shifts(ARMS["noise"], WORLD, BIG, (5, 1, 5), seed=3)
        assert set(still.values()) == {0}

    def test_one_seed_one_population(self):
        first, again, other = (planted_shifts(ARMS["right"], WORLD, BIG, (5, 1, 5), seed)[0] for seed in (1, 1, 2))
        assert (first.post == again.post).all()
        assert (first.post != other.post).any()

    def test_answers_that_never_change(self):
        shifts, _ = planted_shifts(ARMS["never"], WORLD, BIG, (20, 2, 5), seed=1)
        assert not shifts.delta.any()
        assert not shifts.retest.any()

    def test_expected_classes(self):
        config = PlantedConfig()
        cases = {"right": "match", "half": "rigidity", "double": "overshoot", "reversed": "reversal"}
        for arm, kind in cases.items():
            sign = int(np.sign(ARMS[arm].size))
            assert expected_kind(ARMS[arm], sign, 1, config) == kind
        assert expected_kind(ARMS["noise"], 0, 1, config) == "rigidity"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    config = PlantedConfig(seeds=(0, 1), personas=120, events=4, documented=8, resamples=200)
    with RunStore.open(tmp_path_factory.mktemp("bfi") / "run", "study", {}) as store:
        result = run_planted(config, store)
        assert run_planted(config, store).rows == result.rows, "a second call finds all rows there"
    return result


class TestPlantedStudy:
    def test_the_report_recovers_what_was_planted(self, planted):
        verdict = verdict_planted(planted)
        assert verdict.verdict == "reproduced", verdict.note
        assert planted.mean("dispersion", "compressed").estimate == pytest.approx(0.25, abs=0.08)
        for arm in ("noise", "never"):
            assert planted.mean("score", arm).estimate == 50
            assert planted.mean("detected_undocumented", arm).estimate <= 0.1

    @pytest.mark.parametrize(
        ("arm", "changes"),
        [
            ("right", {"kind_right": 0.0}), ("right", {"score": 40.0}), ("mixed", {"score_error": 20.0}),
            ("compressed", {"dispersion": 1.0}), ("right", {"dispersion": 0.3}),
            ("noise", {"detected_documented": 0.5}),
            ("everywhere", {"occurrence_gap": 0.4}), ("right", {"occurrence_gap": 0.0}),
        ],
    )  # fmt: skip
    def test_a_report_that_misses_one_thing_is_refused(self, planted, arm, changes):
        if "kind_right" in changes:
            changed = [{**row, **changes} for row in planted.rows]
        else:
            changed = [{**row, **(changes if row["arm"] == arm else {})} for row in planted.rows]
        assert verdict_planted(Result(tuple(changed))).verdict == "not reproduced"


MOVES = {
    "regular job": ("conscientiousness", 1.2),
    "earn your own living": ("conscientiousness", 1.2),
    "You retired": ("openness", 1.2),
    "working life is over": ("openness", 1.2),
}
"""Words of the narratives to what they move."""


def persona_model(moves=MOVES, everywhere=False):
    """Return a model that reads profile, narrative and statement, and answers 1 to 5 with a little noise."""

    def script(chat, seed):
        said = chat[-1]["content"]
        item = next((item for item in BIG.items if item.text in said), None)
        if item is None:
            return "I take it as it comes."
        levels = {"not at all": 1, "not very": 2, "somewhat": 3, "rather": 4, "very": 5}
        degrees = re.findall(r"(not at all|not very|somewhat|rather|very) ", chat[0]["content"])
        value = 2.0 + 0.4 * (levels[degrees[BIG.traits.index(item.trait)]] - 1)
        told = " ".join(message["content"] for message in chat[1:-1] if message["role"] == "user")
        value += 0.25 * np.random.default_rng(seed).normal()
        for words, (trait, step) in moves.items():
            if words in told and (everywhere or trait == item.trait):
                value += step
        rating = int(np.clip(round(value), 1, 5))
        return str(6 - rating if item.reverse else rating)

    return ScriptedModel(script)


def run(tmp_path, model, config=SMALL, name="run"):
    with RunStore.open(tmp_path / name, "study", {}) as store:
        return run_on(model, replace(config, mode="sampled"), store)


class TestProtocol:
    def test_personas_are_told_their_profile(self):
        one, again = make_personas(4, 3), make_personas(4, 3)
        assert one == again != make_personas(4, 4)
        assert {role.tags[0] for role in one} == {"woman", "man"}
        assert "orderly" in one[0].description
        assert len({role.id for role in one + make_personas(4, 4)}) == 8

    def test_every_sheet_has_a_context_of_its_own(self):
        role = make_personas(1, 0)[0]
        seen = []
        model = ScriptedModel(lambda chat, seed: seen.append(chat) or "I feel fine.")
        sheets = sittings(model, role, EVENTS, ("divorce",), repeats=2, retests=5, fillers=2, max_tokens=9, seed=0)
        kinds = [sheet.kind for sheet in sheets]
        assert {kind: kinds.count(kind) for kind in kinds} == {
            "pre": 5,
            "retest": 5,
            "neutral": 2,
            "event": 2,
            "later": 2,
        }
        by = {(sheet.kind, sheet.repeat): sheet for sheet in sheets}
        assert all(sheet.context[0]["content"] == role.description for sheet in sheets)
        assert all(len(sheet.context) == 1 for sheet in sheets if sheet.kind == "pre")
        for repeat in (0, 1):
            event, later = by["event", repeat], by["later", repeat]
            assert EVENTS["divorce"].narratives[repeat] in event.context[1]["content"]
            assert event.context[2] == {"role": "assistant", "content": "I feel fine."}
            assert list(later.context[:3]) == list(event.context)
            assert len(later.context) == 3 + 2 * 2
            assert event.wording == by["retest", repeat].wording == by["pre", repeat].wording + 1
        assert not any("ivorce" in message["content"] for message in by["retest", 0].context)
        told = {(by["retest", repeat].context[1]["content"], repeat % 3) for repeat in range(5)}
        assert len(told) == 5, "no retest repeats another"

    def test_an_empty_reply_leaves_the_chat_whole(self):
        sheets = sittings(
            ScriptedModel(lambda chat, seed: " "), make_personas(1, 0)[0], EVENTS, ("divorce",), 1, 5, 0, 9, 0
        )
        assert all(message["content"].strip() for sheet in sheets for message in sheet.context)
        assert not any(sheet.kind == "later" for sheet in sheets)


class TestModelStudy:
    def test_shifts_that_a_scripted_model_makes_are_found(self, tmp_path):
        config = replace(SMALL, seeds=(0, 1, 2), items=4)
        result = run(tmp_path, persona_model(), config)
        report, neutral, above = read_report(result)
        cells = {(cell.event, cell.trait): cell for cell in report.cells}
        assert cells["first-job", "conscientiousness"].kind == "match"
        assert cells["retirement", "openness"].kind == "match"
        assert cells["retirement", "agreeableness"].kind == "rigidity"
        assert report.score.estimate == 50 * (1 + 2 / 4)
        assert above.low > 0
        assert neutral.estimate < 0.2
        assert not report.magnitude
        verdict = verdict_smollm2(result)
        assert verdict.verdict == "not reproduced", "this model shifts where people do"
        assert verdict.control == neutral

    def test_a_model_that_shifts_everything_alike_has_the_papers_finding(self, tmp_path):
        result = run(tmp_path, persona_model(everywhere=True), replace(SMALL, seeds=(0, 1, 2), items=4))
        assert verdict_smollm2(result).verdict == "reproduced"
        apart = [dict(row) for row in result.rows]
        rng = np.random.default_rng(0)
        wide = {row["persona"]: rng.normal(0, 4, 5) for row in apart}
        for row in apart:
            if row["arm"] == "event":
                for trait, more in zip(BIG.traits, wide[row["persona"]], strict=True):
                    row[f"post_{trait}"] += more
        assert verdict_smollm2(Result(tuple(apart))).verdict == "not reproduced", "personas differ as much as people"

    def test_a_model_that_ignores_the_events_is_inconclusive(self, tmp_path):
        result = run(tmp_path, persona_model(moves={}))
        assert verdict_smollm2(result).verdict == "inconclusive"

    def test_rows_are_kept_and_a_run_goes_on_where_it_stopped(self, tmp_path):
        whole = run(tmp_path, persona_model(), name="whole")
        halted = persona_model()
        halted.fail_at = 900
        with pytest.raises(Exception, match="told to fail"):
            run(tmp_path, halted, name="halted")
        kept = halted.calls
        resumed = run(tmp_path, halted, name="halted")
        assert {row["unit"]: row for row in map(dict, resumed.rows)} == {
            row["unit"]: row for row in map(dict, whole.rows)
        }
        fresh = persona_model()
        run(tmp_path, fresh, name="other")
        assert halted.calls - kept < fresh.calls
        calls = halted.calls
        run(tmp_path, halted, name="halted")
        assert halted.calls == calls

    def test_a_sheet_is_paired_with_the_one_before_it_of_the_same_repeat(self, tmp_path):
        openings = [text.split("{{")[0] for text in BIG.instructions]

        def by_wording(chat, seed):
            said = chat[-1]["content"]
            item = next((item for item in BIG.items if item.text in said), None)
            rating = next((1 + k for k, opening in enumerate(openings) if said.startswith(opening)), 0)
            return str(6 - rating if item and item.reverse else rating)

        result = run(tmp_path, ScriptedModel(by_wording), replace(SMALL, seeds=(0,)))
        for row in result.rows:
            assert row["pre_openness"] == 1 + row["repeat"] % 3
            assert row["post_openness"] == 1 + (row["repeat"] + 1) % 3

    def test_missing_answers_stay_missing(self, tmp_path):
        def refusing(chat, seed):
            return "As an AI I cannot say." if "poetry" in chat[-1]["content"] else "3"

        result = run(tmp_path, ScriptedModel(refusing), replace(SMALL, seeds=(0,)))
        assert all(row["post_openness"] is None and row["post_neuroticism"] == 3 for row in result.rows)
        assert all(row["missing"] == 1 and row["straight"] == 1 for row in result.rows)
        assert np.isnan(read_shifts(result, "event").post[..., 0]).all()
        assert verdict_smollm2(result).verdict == "inconclusive"

    def test_the_real_engine_runs_the_study(self, tmp_path):
        from rolecraft.testing import tiny_model

        items = [{"id": f"o{k}", "trait": "openness", "text": f"I {k}.", "reverse": bool(k)} for k in (0, 1)]
        short = {"name": "s", "version": "1", "instructions": ["{{statement}} {{scale}}"], "scale": list("abcde")}
        path = tmp_path / "short.yaml"
        path.write_text(yaml.safe_dump(short | {"items": items}), encoding="utf-8")
        config = SmolConfig(
            seeds=(0,), personas=2, events=("retirement",), items=2, repeats=1, fillers=1, max_tokens=4,
            questionnaire=str(path),
        )  # fmt: skip
        with RunStore.open(tmp_path / "run", "study", {}) as store:
            result = run_on(tiny_model(n_sites=1), config, store)
        assert set(result.arms) == {"retest", "neutral", "event", "later"}
        assert all(1 < row["post_openness"] < 5 for row in result.rows)
        assert len({row["post_openness"] for row in result.rows}) > 2
        verdict = verdict_smollm2(result)
        assert verdict.control is not None
        assert verdict.control.n == 2
        assert verdict.verdict == "inconclusive", "one trait, and that documented: there is nothing to compare with"

    def test_bad_input_is_refused(self, tmp_path):
        for wrong in ({"retests": 4}, {"repeats": 6}, {"personas": 1}):
            with pytest.raises(UserError, match="retests of 5 or more"):
                replace(SMALL, **wrong)
        model = persona_model()
        with pytest.raises(UserError, match="no event 'maried'"):
            run(tmp_path, model, replace(SMALL, events=("maried",)))
        assert model.calls == 0
        with pytest.raises(UserError, match="arm 'x' is not in the rows"):
            read_shifts(Result(({"arm": "event", "seed": 0},)), "x")
        assert SmolConfig.full().events == ()


def test_paraphrased_narratives_agree(tmp_path):
    """The two narratives of an event shift a model alike if it reads their meaning; the repeats tell them apart."""
    shifts = read_shifts(run(tmp_path, persona_model(), replace(SMALL, items=4)), "event")
    first, second = (np.nanmean(shifts.delta[:, :, repeat], axis=0) for repeat in (0, 1))
    assert np.abs(first - second).max() < 0.5
    assert measure_shifts(shifts, EVENTS.directions, rule=ShiftRule(draws=500, resamples=50)).score.estimate > 50
