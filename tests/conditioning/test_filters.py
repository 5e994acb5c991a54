from collections.abc import Sequence

import numpy as np
import pytest

from rolecraft.conditioning import AcceptAll, JudgeFilter, LikelihoodMarginFilter, TraitFilter, extract_direction
from rolecraft.errors import UserError
from rolecraft.measures import JudgeItem, LLMJudge, Score
from rolecraft.measures._llm import GRADE
from rolecraft.models import Chat
from rolecraft.roles import Inventory, Role, load_inventory
from rolecraft.testing import ScriptedModel
from tests.conditioning.planted import PlantedModel, role

PIRATE, POET, JUDGE = (role(name) for name in ("pirate", "poet", "judge"))
INVENTORY = Inventory("three", "1", (PIRATE, POET, JUDGE))
WORDS = ("pirate", "poet", "judge")


class CountingEmbedder:
    """One axis per role word, so that cosines are known."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.count(word) for word in WORDS] for text in texts], np.float32) + 1e-3
        return np.asarray(counts / np.linalg.norm(counts, axis=1, keepdims=True))


class Likelihoods:
    """A scorer in which each reply's text says its log-probability per token, as role and as nobody."""

    name, revision = "local:likelihoods", "1"

    def __init__(self) -> None:
        self.systems: list[str] = []

    def logprobs(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[np.ndarray]:
        scores = []
        for chat, reply in zip(chats, replies, strict=True):
            self.systems.append(chat[0]["content"])
            as_role, as_nobody, tokens = (float(x) for x in reply.split()[-3:]) if reply else (0.0, 0.0, 0.0)
            scores.append(np.full(int(tokens), as_role if chat[0]["content"] else as_nobody, np.float32))
        return scores


@pytest.mark.parametrize(
    ("prompted", "base", "kept"),
    [
        ("pirate -1 -3 4", "x -2 -2 4", True),
        ("poet -1 -3 4", "x -2 -2 4", False),  # margin: speaks as another role
        ("pirate -2 -3 4", "x -1 -2.5 4", False),  # the base fits the role prompt even better
        ("pirate -2 -3 40", "x -1 -1.5 4", True),  # per token, not in sum
        ("pirate -2 -1 4", "", False),  # no base side: must itself gain from the role
        ("pirate -1 -2 4", "", True),
    ],
)
def test_likelihood_margin_needs_both_conditions(prompted: str, base: str, kept: bool) -> None:
    model = Likelihoods()
    accept = LikelihoodMarginFilter(model, CountingEmbedder(), INVENTORY)  # type: ignore[arg-type]
    assert accept.accept(PIRATE, ["Well?"], [prompted], [base]) == [kept]
    assert set(model.systems) == {PIRATE.instructions[0], ""}


def test_likelihood_margin_judges_many_pairs_apart() -> None:
    accept = LikelihoodMarginFilter(Likelihoods(), CountingEmbedder(), INVENTORY)  # type: ignore[arg-type]
    prompted = ["pirate -1 -3 4", "poet -1 -3 4", "pirate -1 -3 2"]
    base = ["x -2 -2 4", "x -2 -2 4", "x -1 -9 2"]
    assert accept.accept(PIRATE, ["a?", "b?", "c?"], prompted, base) == [True, False, False]
    assert accept.accept(PIRATE, ["c?", "a?"], prompted[::-2], base[::-2]) == [False, True]


def test_a_margin_needs_another_role() -> None:
    with pytest.raises(UserError, match="at least two roles"):
        LikelihoodMarginFilter(Likelihoods(), CountingEmbedder(), Inventory("one", "1", (PIRATE,)))  # type: ignore[arg-type]


def test_likelihood_margin_tells_a_player_from_an_assistant() -> None:
    """The scripted player answers as the role its prompt names; its answers must pass, swapped sides must not."""
    model = ScriptedModel("role-player")
    from rolecraft.conditioning import assigned
    from rolecraft.models import Sampling, chat

    asked = list(PIRATE.questions)
    as_role = [r.text for r in model.generate([assigned(PIRATE, 0, q) for q in asked], Sampling(40))]
    as_nobody = [r.text for r in model.generate([chat(q) for q in asked], Sampling(40))]
    accept = LikelihoodMarginFilter(model, CountingEmbedder(), INVENTORY)
    assert all(accept.accept(PIRATE, asked, as_role, as_nobody))
    assert not any(accept.accept(PIRATE, asked, as_nobody, as_role))


class Grades:
    name = "grades"

    def __init__(self) -> None:
        self.graded: list[str] = []

    def grade(self, role: Role, questions: Sequence[str], answers: Sequence[str]) -> list[int | None]:
        assert len(questions) == len(answers)
        self.graded += answers
        return [None if answer == "?" else int(answer) for answer in answers]


def test_judge_filter_keeps_three_against_anything_but_a_refusal() -> None:
    judge = Grades()
    prompted, base = ["3", "3", "3", "2", "?", "3"], ["2", "0", "3", "1", "1", "?"]
    accept = JudgeFilter(judge, agreement=0.85)
    assert accept.accept(PIRATE, ["q?"] * 6, prompted, base) == [True, False, True, False, False, False]
    assert judge.graded == [*prompted, "2", "0", "3", "?"]  # bases of rejected pairs are not paid for
    assert accept.name == "judge grades (agreement 0.85)"
    assert JudgeFilter(judge).accept(PIRATE, ["q?"] * 2, ["3", "1"], ["", ""]) == [True, False]


class Traits:
    """Scores what an answer's first words say: `overall`, and `coherence` if it is among the dimensions."""

    rubric_hash = "0"

    def __init__(self, *dimensions: str) -> None:
        self.name = f"traits({'+'.join(dimensions)})"
        self.dimensions = dimensions

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        values = [dict(zip(self.dimensions, item.answer.split(), strict=False)) for item in items]
        return [Score({k: None if v == "?" else float(v) for k, v in value.items()}) for value in values]


def test_trait_filter_keeps_coherent_rows_on_their_side() -> None:
    positive = ["50 50", "49 90", "90 49", "? 90", "80 ?", "99 99"]
    negative = ["49 50", "50 90", "10 49", "? 90", "10 ?", "0 99"]
    accept = TraitFilter(Traits("overall", "coherence"))
    expected = [True, False, False, False, False, True]
    assert accept.accept_sides(PIRATE, ["q?"] * 6, positive, negative) == (expected, expected)
    mixed = accept.accept(PIRATE, ["q?"] * 3, ["60 60", "60 60", "10 90"], ["10 90", "60 60", "10 90"])
    assert mixed == [True, False, False]


def test_trait_filter_reads_coherence_off_the_text_where_no_judge_scores_it() -> None:
    sound, looping = "90 aye the sea was rough and the crew was glad", "90 " + "arr arr " * 30
    accept = TraitFilter(Traits("overall"))
    assert accept.accept(PIRATE, ["q?"] * 2, [sound, looping], ["", ""]) == [True, False]
    with pytest.raises(UserError, match="does not score 'overall'"):
        TraitFilter(Traits("coherence"))


def test_graders_fit_the_judge_of_measures() -> None:
    """The scripted judge grades by shared words; an answer in the role's words must beat an assistant's."""
    judge = LLMJudge(ScriptedModel("judge"), GRADE, allow_uncalibrated=True)
    pirate = load_inventory("core-v1")["pirate"]
    sailor = "I sail a patched sloop, hunting merchantmen, under an elected captain and honest share."
    kept = JudgeFilter(judge).accept(pirate, ["Who?", "Who?"], [sailor, "As an assistant I help."], ["", ""])
    assert kept == [True, False]


def test_the_filter_stands_in_the_manifest() -> None:
    extraction = extract_direction(PlantedModel(WORDS), PIRATE, accept=AcceptAll())
    assert extraction.manifest.extra["filter"] == "all"
    assert extraction.acceptance == 1.0
