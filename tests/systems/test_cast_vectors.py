from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.models import Sampling, chat
from rolecraft.screening import decide
from rolecraft.systems import Result
from rolecraft.systems.conditioning.cast_vectors import (
    PlantedConfig,
    SmolConfig,
    checks,
    run_planted,
    verdict_planted,
    verdict_smollm2,
)
from rolecraft.testing._planted import ROLES, PlantedJudge, planted_inventory, planted_model, words_of


def test_the_planted_model_says_what_is_planted():
    """Unsteered it speaks neutral words; steered along the planted axis, the closed-form share of role words."""
    import numpy as np

    from rolecraft.conditioning import Intervention, Steering
    from rolecraft.measures import JudgeItem
    from rolecraft.testing._planted import _Layout

    model = planted_model()
    riser = ROLES[0]
    layout = _Layout(ROLES, model.tokenizer.get_vocab())
    vector = layout.displacements()["riser"]
    chats = [chat(f"tell of thing {number} .") for number in range(64)]
    for strength in (1.0, 2.0):
        steering = Steering.uniform([Intervention(vector, strength, 1)], len(chats))
        answers = model.generate(chats, Sampling(20, 1.0, 1.0), steering, range(len(chats)))
        role = planted_inventory()["riser"]
        scores = PlantedJudge().score([JudgeItem(role, "", answer.text) for answer in answers])
        found = np.mean([score.values["overall"] for score in scores]) / 100
        assert found == pytest.approx(riser.share(strength), abs=0.05)
    plain = model.generate(chats[:4], Sampling(20, 0.0))
    assert all(set(answer.text.split()) <= set(words_of("neutral")) for answer in plain)


def test_the_screen_finds_the_planted_truth(tmp_path: Path):
    with RunStore.open(tmp_path / "run", "system", {}) as store:
        config = PlantedConfig(seeds=(0, 1))
        result = run_planted(config, store)
        assert run_planted(config, store).rows == result.rows, "a second call finds all rows there"
    verdict = verdict_planted(result)
    assert verdict.verdict == "reproduced"
    assert result.mean("anti_right", "screen").estimate == 1
    assert decide  # the rule itself is tested in tests/screening


def rows(role_slope: float, axis_slope: float, shuffled: float = 0.0) -> Result:
    """A made-up study: mean overall by arm and strength, with roles of different slope."""
    found = []
    for number in range(8):
        for question in range(4):
            for s in (1.0, 1.5, 2.0, 2.5):
                for arm, slope in (
                    ("role", role_slope * (1 + number / 8)),
                    ("axis", axis_slope),
                    ("shuffled", shuffled),
                ):
                    found.append(
                        {"arm": f"{arm}@{s:g}", "seed": 0, "unit": f"r{number}/q{question}",
                         "overall": 30 + slope * s + question, "bigrams": 0.9 if arm == "role" else 0.6}
                    )  # fmt: skip
        found.append(
            {"arm": "decision", "seed": 0, "unit": f"r{number}", "passed": 1.0, "r": 1.0 if role_slope > 0 else -1.0,
             "slope": role_slope * (1 + number / 8), "norm": 10.0 + number, "gain_held_out": 1.0,
             "anti_controllable": float(role_slope < 0), "at_edge": 1.0}
        )  # fmt: skip
    return Result(tuple(found))


def test_the_checks_tell_the_papers_findings_from_their_opposite():
    held = checks(rows(role_slope=10, axis_slope=-10))
    assert [ok for name, (ok, _) in held.items() if name[0] in "abce"] == [True] * 4
    assert verdict_smollm2(rows(10, -10)).verdict == "reproduced"
    lost = checks(rows(role_slope=-10, axis_slope=5))
    assert not any(ok for name, (ok, _) in lost.items() if name[0] in "abd")
    assert verdict_smollm2(rows(-10, 5)).verdict == "not reproduced"


def test_a_control_that_gains_as_much_refutes_the_claim():
    assert verdict_smollm2(rows(10, 0, shuffled=30)).verdict == "not reproduced"


def test_the_full_size_is_the_papers():
    full = SmolConfig.full()
    assert (full.questions, full.instructions, full.roles) == (228, 5, ())
