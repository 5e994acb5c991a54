"""System 062: the planted study finds what is planted, and the study of a model reads what the model is told."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.measures import attribute_effect
from rolecraft.roles import load_inventory
from rolecraft.systems import Result, find_entry
from rolecraft.systems.measures import _belief_questions as ask
from rolecraft.systems.measures._belief_planted import THEORIES, PlantedPopulation, send_back_half
from rolecraft.systems.measures.belief_behavior import (
    PlantedConfig,
    SmolConfig,
    run_on,
    run_planted,
    verdict_planted,
    verdict_smollm2,
)
from rolecraft.testing import tiny_model
from rolecraft.worlds import TrustGame, View

PLANTED = PlantedConfig(seeds=(0, 1), personas=60, theory_plays=5, shuffles=3, draws=20)
SMOL = SmolConfig(seeds=(0, 1), personas=24, contexts=("none", "rules"), theories=("more/strong",), draws=50)


def study(tmp_path, run, config, name="run"):
    with RunStore.open(tmp_path / name, "study", {}) as store:
        return run(config, store)


# Planted


@pytest.mark.parametrize("agreement", [0.0, 0.3, 1.0])
def test_the_planted_maps_agree_exactly(agreement):
    population = PlantedPopulation.drawn(50, agreement, 4)
    assert np.corrcoef(population.believed, population.behaviour)[0, 1] == pytest.approx(agreement, abs=1e-9)
    assert population.believed.std() == pytest.approx(population.spread)
    assert population.behaviour.std() == pytest.approx(population.spread)


def test_the_planted_compliance_is_exact_before_noise():
    population = PlantedPopulation.drawn(50, 0.5, 4)
    first = population.attributes[:, 0]
    before = attribute_effect(first, population.behaviour, "difference", 10)
    for target in THEORIES.values():
        after = attribute_effect(first, population.under_theory(target, 0.4), "difference", 10)
        assert (after - before) / (target - before) == pytest.approx(0.4)


def test_plays_are_games_and_follow_from_the_seed():
    population = PlantedPopulation.drawn(20, 1.0, 0)
    one, again, other = (population.played(3, seed) for seed in (7, 7, 8))
    assert one.tolist() == again.tolist() != other.tolist()
    assert set(one.ravel()) <= set(range(11))
    game = TrustGame()
    game.act({"trustor": "send 3"})
    assert send_back_half(View("trustee", "", game.legal("trustee"), 0)) == "return 4"


def test_the_study_tells_agreement_from_none_and_resumes(tmp_path):
    result = study(tmp_path, run_planted, PLANTED)
    at = {value: result.mean("corrected", f"agreement@{value:g}").estimate for value in PLANTED.agreements}
    assert at[1.0] > 0.85
    assert abs(at[0.0]) < 0.3
    assert at[0.0] < at[0.5] < at[1.0]
    assert abs(result.mean("corrected", "shuffled").estimate) < 0.3
    assert result.mean("rho", "agreement@1").estimate < 0.9
    assert study(tmp_path, run_planted, PLANTED).rows == result.rows


def planted_rows(full=1.0, none=0.0, shuffled=0.0, off=0.0):
    rows = []
    for seed in range(5):
        shake = 0.02 * (seed - 2)
        for value, found in ((0, none), (0.5, 0.5), (1, full)):
            rows.append({"arm": f"agreement@{value:g}", "seed": seed, "corrected": found + shake, "rho": 0.7 * found})
        rows.append({"arm": "shuffled", "seed": seed, "corrected": shuffled + shake})
        rows += [
            {"arm": f"compliance@{value:g}", "seed": seed, "more": value + off, "less": value} for value in (0.0, 1.0)
        ]
    return Result(tuple(rows))


def test_the_verdict_on_the_planted_study():
    assert verdict_planted(planted_rows()).verdict == "reproduced"
    for broken in ({"full": 0.8}, {"full": 1.2}, {"none": 0.3}, {"none": 0.6}, {"shuffled": 0.4}, {"off": 0.2}):
        assert verdict_planted(planted_rows(**broken)).verdict == "not reproduced", broken


@pytest.mark.parametrize(
    "change",
    [{"personas": 5}, {"plays": 1}, {"agreements": (0.5, 1.0)}, {"agreements": (0.0, 0.7, 0.5, 1.0)},
     {"compliances": ()}],
)  # fmt: skip
def test_bad_planted_settings(change):
    with pytest.raises(UserError):
        replace(PLANTED, **change)


# A model


class Reader:
    """A model that reads what a persona is told, and gives the numbers around a tendency that it derives from it."""

    name, revision = "reader", "1"

    def __init__(self, consistent=True):
        self.consistent, self.chats = consistent, []

    def tendency(self, one):
        text = " ".join(message["content"] for message in one)
        asked = one[-1]["content"]
        if "from 1 to 7" in asked:
            high = re.search(r"people who ([^()]+) \(7\)", asked)[1]
            return 6.0 if any(own[0] in asked and said[0] == high for own, said in self.pairs()) else 2.0
        score = sum((own[0] in text or said[0] in asked.split("\n")[0]) for own, said in self.pairs())
        playing = "Reply 'send'" in asked
        if playing and not self.consistent:
            score = len(one[0]["content"]) % 5
        shift = 3.0 * ("coins more" in text) * ("You trust other people." in text)
        return 1.5 + 1.8 * score + shift

    def generate(self, chats, sampling, steering=None, seeds=None):
        raise AssertionError("nothing is generated in this study")

    def pairs(self):
        return [(ask._OWN[name], ask.ATTRIBUTES[name]) for name in ask.ATTRIBUTES]

    def logprobs(self, chats, replies):
        self.chats += chats
        return [
            np.array([-(abs(float(reply.split()[-1]) - self.tendency(one)) ** 2) / 4])
            for one, reply in zip(chats, replies, strict=True)
        ]


def test_a_model_that_plays_what_it_says_and_one_that_does_not(tmp_path):
    found = {}
    for consistent in (True, False):
        found[consistent] = study(
            tmp_path, lambda config, store, c=consistent: run_on(Reader(c), config, store), SMOL, f"run-{consistent}"
        )
    means = {
        key: {arm: result.mean("corrected", arm).estimate for arm in ("outcome@rules", "attribute@rules", "own-plays")}
        for key, result in found.items()
    }
    assert means[True]["outcome@rules"] > 0.8
    assert means[True]["attribute@rules"] > 0.8
    assert abs(means[False]["outcome@rules"]) < 0.6
    assert means[True]["own-plays"] > 0.85
    assert means[False]["own-plays"] > 0.85
    assert found[True].mean("corrected", "shuffled").estimate < 0.6
    assert found[True].mean("found", "theory@more/strong").estimate > 0.2
    assert found[True].mean("signs", "outcome@rules").estimate == 1
    assert verdict_smollm2(found[True]).verdict == "not reproduced"


def test_beliefs_are_asked_of_a_reader_and_plays_of_the_persona(tmp_path):
    model = Reader()
    config = replace(SMOL, seeds=(0,))
    study(tmp_path, lambda config, store: run_on(model, config, store), config)
    playing = [one for one in model.chats if "Reply 'send'" in one[-1]["content"]]
    asking = [one for one in model.chats if "Reply 'send'" not in one[-1]["content"]]
    assert all(one[0]["content"].startswith("You are a") for one in playing)
    assert all(one[0]["content"] == "" and len(one) == 2 for one in asking)
    assert any("Round 1: this person sent" in one[-1]["content"] for one in asking)
    kept = study(tmp_path, lambda config, store: (run_on(model, config, store), store.rows("tables"))[1], config)
    count = len(model.chats)
    assert set(kept) >= {"outcome/none", "average/rules", "rating", "plays/0", "own/0", "repeated/0", "forecast/0"}
    study(tmp_path, lambda config, store: run_on(model, config, store), config)
    assert len(model.chats) == count


def test_the_study_runs_on_a_real_model(tmp_path):
    config = replace(SMOL, seeds=(0,), personas=5, theories=(), contexts=("rules",), plays=2, rounds=2, draws=10)
    result = study(tmp_path, lambda config, store: run_on(tiny_model(n_sites=1), config, store), config)
    assert {"outcome@rules", "attribute@rules", "shuffled", "own-plays", "horizon"} <= set(result.arms)
    assert verdict_smollm2(result).verdict in ("reproduced", "not reproduced", "inconclusive")


def model_rows(gap=0.4, own=-0.2, width=0.1):
    rows = []
    for seed in (0, 1):
        for arm, value in (("outcome@none", gap + 0.1), ("outcome@rules", gap), ("own-plays", own)):
            figures = {"gap": value, "gap_low": value - width, "gap_high": value + width, "personas": 60.0}
            rows.append({"arm": arm, "seed": seed, "rho": 0.1, "corrected": 0.2, "action_reliability": 0.7, **figures})
    return Result(tuple(rows))


def test_the_verdict_on_a_model():
    found = verdict_smollm2(model_rows())
    assert found.verdict == "reproduced"
    assert (found.effect.low, found.effect.high) == (pytest.approx(0.3), pytest.approx(0.5))
    assert verdict_smollm2(model_rows(gap=0.05)).verdict == "not reproduced"
    assert verdict_smollm2(model_rows(own=0.3)).verdict == "not reproduced"
    assert verdict_smollm2(model_rows(gap=float("nan"))).verdict == "inconclusive"


# What is said


def test_contexts_say_more_and_more():
    texts = {context: ask.game_text(context, TrustGame()) for context in ("none", "named", "rules", "role", "practice")}
    assert "trust game" not in texts["none"]
    assert "trust game" in texts["named"]
    assert "becomes 3 coins" in texts["rules"]
    assert texts["role"].startswith(texts["rules"])
    assert "the trustor had 12 in the end, the trustee 8" in texts["practice"]
    with pytest.raises(UserError, match="no context"):
        ask.game_text("all", TrustGame())  # type: ignore[arg-type]


def test_theories_state_the_effect_they_are_judged_by():
    text, effect = ask.theory_text("trust", "less", "strong", 10)
    assert effect == -0.6
    assert "about 6 coins less" in text
    role = load_inventory("census-personas-v1").roles[0]
    assert ask.persona_text(role, text).endswith(text)


def test_the_bundled_personas():
    roles = load_inventory("census-personas-v1").roles
    assert len(roles) == 60
    traits = np.array([[role.traits[name] for name in ask.ATTRIBUTES] for role in roles])
    assert np.abs(np.corrcoef(traits.T) - np.eye(4)).max() < 0.2
    assert len({ask.persona_text(role) for role in roles}) == 60


@pytest.mark.parametrize(
    "change", [{"plays": 1}, {"rounds": 1}, {"contexts": ()}, {"theories": ("up/strong",)}, {"personas": -1}]
)
def test_bad_settings(change):
    with pytest.raises(UserError):
        replace(SMOL, **change)


def test_personas_must_have_the_traits(tmp_path):
    with pytest.raises(UserError, match="lacks the trait 'trust'"):
        study(tmp_path, lambda config, store: run_on(Reader(), config, store), replace(SMOL, personas_from="core-v1"))


def test_it_is_found():
    assert list(find_entry("belief-behavior").studies) == ["planted", "smollm2"]
