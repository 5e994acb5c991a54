"""Degenerate turns and failed evaluations: what is flagged, what is masked, and what credit makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rolecraft.errors import UserError
from rolecraft.learning import JudgedTurn, RuleTurnJudge, evaluate_rows, judge_turns, social_reward
from rolecraft.learning.credit import BilevelGae, CreditBatch, assign_credit
from rolecraft.learning.trainer import Rows
from rolecraft.measures import SOTOPIA_DIMENSIONS
from rolecraft.worlds import Episode, Turn, read_utterance

TALK = [
    ("ann", "offer ann ann bob"), ("bob", "threaten no deal"), ("ann", "offer ann ann bob"), ("bob", ""),
    ("ann", "Offer  ann ann bob"), ("bob", "accept that offer"),
]  # fmt: skip


def rows_of(*conversations: list[tuple[str, str]], order: list[int] | None = None) -> Rows:
    """Return rows as the trainer gathers them: one per turn, two tokens each."""
    turns, keys = [], []
    for traj, talk in enumerate(conversations):
        said: dict[str, int] = {}
        for step, (agent, text) in enumerate(talk):
            turns.append(Turn(step, agent, "", text))
            keys.append((traj, ("ann", "bob").index(agent), said.get(agent, 0)))
            said[agent] = said.get(agent, 0) + 1
    order = list(range(len(turns))) if order is None else order
    table = np.array(keys)[order]
    batch = CreditBatch(
        np.ones((len(turns), 2), dtype=bool),
        dict(zip(("traj", "agent", "turn"), table.T, strict=True)),
        {"outcome": np.ones(len(turns))},
        {"value": np.full((len(turns), 2), 0.25)},
    )
    return Rows([], ["policy"] * len(turns), batch, {}, [turns[row] for row in order])


def episode_of(talk: list[tuple[str, str]]) -> Episode:
    turns = tuple(Turn(step, agent, "", text) for step, (agent, text) in enumerate(talk))
    return Episode("bargaining", 7, {}, turns, {"ann": 0.0, "bob": 0.0}, {}, "over")


@pytest.mark.parametrize("shuffled", [False, True])
def test_rules_flag_what_is_empty_off_the_format_or_said_again(shuffled: bool) -> None:
    order = [4, 1, 0, 5, 2, 3] if shuffled else list(range(6))
    rows, log = judge_turns(rows_of(TALK, order=order), RuleTurnJudge(repeats=2), max_filtered=0.4)
    keep = np.empty(6)
    keep[order] = rows.batch.row["turn_keep"]
    assert keep.tolist() == [1, 1, 1, 0, 0, 1]
    assert log.reasons == {"empty": 1, "repetition": 1}
    assert log.share == pytest.approx(2 / 6)
    strict = RuleTurnJudge(repeats=9, parse=lambda text: read_utterance(text, ("ann", "bob")))
    _, log = judge_turns(rows_of(TALK), strict, max_filtered=0.4)
    assert log.reasons == {"empty": 1, "off-format": 1}


def test_what_another_said_is_no_repetition_and_one_word_over_and_over_is() -> None:
    judge = RuleTurnJudge(repeats=1)
    again = [("ann", "yes of course"), ("bob", "yes of course"), ("ann", "no")]
    assert judge_turns(rows_of(again), judge)[1].reasons == {}
    assert judge_turns(rows_of([*again, ("bob", "yes of course")]), judge)[1].reasons == {"repetition": 1}
    stuck = JudgedTurn(Turn(0, "ann", "", "great great great great idea bob"), [])
    assert judge([stuck, JudgedTurn(Turn(0, "ann", "", "great great idea"), [])]) == ["repetition", ""]


def test_a_flagged_turn_gets_no_credit_of_its_own_and_passes_on_that_of_later_ones() -> None:
    rows, _ = judge_turns(rows_of(TALK), RuleTurnJudge(), max_filtered=0.4)
    values = np.random.default_rng(3).normal(size=(6, 2))
    batch = replace(rows.batch, token={"value": values})
    plain = assign_credit(batch, [BilevelGae(max_filtered=1)]).advantages
    found = assign_credit(batch, [BilevelGae(quality="turn_keep", max_filtered=1)]).advantages
    np.testing.assert_allclose(found[[0, 1, 2, 5]], plain[[0, 1, 2, 5]])
    assert (found[[3, 4], 1] == 0).all()
    np.testing.assert_allclose(found[[3, 4], 0], values[[3, 4], 1] - values[[3, 4], 0])
    assert (plain[[3, 4], 1] != 0).all()


def test_too_many_flagged_turns_stop_the_run() -> None:
    with pytest.raises(UserError, match=r"33% of 6 turns are flagged .* more than 30% \(empty 1, repetition 1\)"):
        judge_turns(rows_of(TALK), RuleTurnJudge())


def test_a_judge_without_an_answer_leaves_the_turn_and_is_counted() -> None:
    rows, log = judge_turns(rows_of(TALK), lambda turns: [None, *["flattery"], *[""] * (len(turns) - 2)])
    assert rows.batch.row["turn_keep"].tolist() == [1, 0, 1, 1, 1, 1]
    assert (log.unjudged, log.reasons) == (1, {"flattery": 1})
    with pytest.raises(UserError, match="given 6 turns and answered for 1"):
        judge_turns(rows_of(TALK), lambda turns: [""])


def test_a_failed_evaluation_masks_that_participant_alone() -> None:
    rows = rows_of(TALK, TALK)
    said = iter([{"ann": 0.8, "bob": None}, {"ann": -0.5, "bob": 0.1}])
    found, masked = evaluate_rows(rows, [episode_of(TALK)] * 2, lambda episode: next(said))
    assert masked == 1
    assert found.batch.row["outcome"].tolist() == pytest.approx([0.8, 0] * 3 + [-0.5, 0.1] * 3)
    assert found.batch.known.tolist() == [True, False] * 3 + [True] * 6
    credit = assign_credit(found.batch, [BilevelGae()])
    assert (credit.advantages[[1, 3, 5]] == 0).all()
    assert (credit.weights > 0).tolist() == found.batch.known.tolist()
    # masked, not paid 0: the advantages of the others are what they are without that participant
    last = credit.advantages[4, 1]
    assert last == pytest.approx(0.8 - 0.25)


@pytest.mark.parametrize(("given", "words"), [({"ann": 1.0}, "bob is missing"), ({"ann": 1, "bob": np.inf}, "inf")])
def test_an_evaluator_that_says_nothing_or_nonsense_is_an_error(given: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=rf"bargaining, seed 7: .*{words}"):
        evaluate_rows(rows_of(TALK), [episode_of(TALK)], lambda episode: given)


MIDDLE = {each.name: (each.low + each.high) / 2 for each in SOTOPIA_DIMENSIONS}


def test_dimensions_are_scaled_before_they_are_summed() -> None:
    assert social_reward(MIDDLE) == pytest.approx(3.5)
    best = {each.name: each.high for each in SOTOPIA_DIMENSIONS}
    assert social_reward(best) == pytest.approx(7)
    # a kept secret (0 of -10..0) is as good as a full goal (10 of 0..10)
    assert social_reward({**MIDDLE, "secret": 0}) == social_reward({**MIDDLE, "goal": 10}) == pytest.approx(4)
    assert social_reward({**MIDDLE, "relationship": 5}) == pytest.approx(4)
    assert social_reward(MIDDLE, weights={"goal": 2, "secret": 1}) == pytest.approx(1.5)


def test_a_missing_dimension_masks_unless_it_does_not_count() -> None:
    broken = {**MIDDLE, "knowledge": None}
    assert social_reward(broken) is None
    assert social_reward({name: value for name, value in MIDDLE.items() if name != "goal"}) is None
    assert social_reward(broken, weights={"goal": 1}) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("scores", "weights", "words"),
    [
        ({**MIDDLE, "charm": 3.0}, None, "no dimension with a known range 'charm'"),
        ({**MIDDLE, "secret": 4.0}, None, r"secret must lie in -10\.\.0, got 4"),
        (MIDDLE, {"gaol": 1.0}, "Did you mean 'goal'"),
        (MIDDLE, {"goal": float("nan")}, "weight of goal"),
    ],
)
def test_bad_scores_and_weights(scores: dict[str, float], weights: dict[str, float] | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        social_reward(scores, weights=weights)


@pytest.mark.parametrize("options", [{"repeats": 0}, {"same_word": 0.0}, {"same_word": 1.5}])
def test_bad_rules(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match="repeats must be at least 1"):
        RuleTurnJudge(**options)  # type: ignore[arg-type]
