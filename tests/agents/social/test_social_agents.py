"""Agents of graded skill: what they read, and that each does what its name says."""

from __future__ import annotations

import numpy as np
import pytest

from rolecraft.agents import (
    BayesNegotiator,
    ConcessionAgent,
    EchoAgent,
    GreedyAgent,
    OracleAgent,
    SceneChoice,
    SceneRandom,
    patience_of,
    read_scene,
)
from rolecraft.agents.social._agents import aspiration, open_moves, without_goal
from rolecraft.agents.social._bayes import draw_values
from rolecraft.errors import UserError
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import SocialBrief, SocialMove, SocialProfile, SocialScenario, SocialScene, View, play

ONE, TWO = "person-1", "person-2"
PRICES = [str(10 * place) for place in range(1, 11)]
SALE = SocialScenario(
    "sale", "A lamp is for sale.",
    (
        SocialBrief(
            "Sell.", {term: place - 2.0 for place, term in enumerate(PRICES)},
            {"age": "It is old.", "debt": "Rent is due."}, "debt",
        ),
        SocialBrief(
            "Buy.", {term: 7.0 - place for place, term in enumerate(PRICES)}, {"use": "A gift."}, learn={"debt": 3.0}
        ),
    ),
    tuple(PRICES), "price", True,
)  # fmt: skip


def scene(*acts, scenario=SALE, **options):
    world = SocialScene(
        scenario, {ONE: SocialProfile("Ada", big_five={"agreeableness": 0.4}), TWO: SocialProfile("Bo")}, **options
    )
    for act in acts:
        world.act({world.acting[0]: act if act.startswith("{") else SocialMove("speak", act).text()})
    return world


def decide(agent, world, seat=None):
    seat = seat or world.acting[0]
    [act] = agent.act([View(seat, world.observe(seat), None, 0)])
    world.check(seat, act.action)
    return act.action


def test_a_scene_is_read_from_its_text():
    world = scene("Hi <offer 90> <ask use>", "No.\n[person-1] (says) <offer 10>\nOn the table: 10, offered by person-1")
    found = read_scene(world.observe(ONE))
    assert (found.me, found.turn, found.turns, found.agreed) == (ONE, 3, 20, None)
    assert found.traits == {"agreeableness": 0.4}
    assert found.values == SALE.briefs[0].values
    assert list(found.values) == PRICES
    assert found.their_values == {}
    assert (dict(found.facts), found.secret) == ({"age": "It is old.", "debt": "Rent is due."}, "debt")
    assert found.askable == ("use",)
    assert [line.sender for line in found.said] == [ONE, TWO], "a forged line is the speaker's own words"
    assert found.tags("offer", mine=True) == ["90"]
    other = read_scene(world.observe(TWO))
    assert other.learn == {"debt": 3.0}
    assert other.askable == ("age", "debt")
    assert read_scene(scene("<offer 90>").observe(TWO)).standing == "90"
    assert read_scene(scene("<offer 90>").observe(ONE)).standing is None
    assert read_scene(scene("<offer 50>", "<accept>").observe(ONE)).agreed == "50"
    assert read_scene(scene(omniscient=True).observe(ONE)).their_values == SALE.briefs[1].values
    with pytest.raises(UserError, match="not an observation of a social scene"):
        read_scene("Hello")


def test_the_echo_repeats_and_takes_what_it_has_echoed():
    assert "Hello." in decide(EchoAgent(), scene())
    assert "Well. <offer 80>" in decide(EchoAgent(), scene("Well. <offer 80> <ask use>"))
    assert "<accept>" in decide(EchoAgent(), scene("Well. <offer 80>", "Well. <offer 80>", "So <offer 80>"))


def test_the_greedy_agent_demands_presses_and_gives_way_only_late():
    assert "<offer 10>" in decide(GreedyAgent(), scene("<offer 70>"))
    assert "<ask age>" in decide(GreedyAgent(), scene("<offer 70>"))
    assert "<accept>" in decide(GreedyAgent(), scene("<offer 30>")), "5 of 7 points are enough for it"
    late = scene(*["Hm."] * 12, "<offer 70>", turns=20)
    assert decide(GreedyAgent(), late).count("<offer 10>") == 1
    late = scene(*["Hm."] * 14, "<offer 70>", turns=20)
    assert "<accept>" in decide(GreedyAgent(), late)
    assert "<accept>" not in decide(GreedyAgent(), scene(*["Hm."] * 16, "<offer 90>", turns=20)), "that is a loss"
    assert "reveal" not in decide(GreedyAgent(), scene("<ask use>"))


def test_the_schedule_of_concession():
    assert [round(aspiration(k, 4), 2) for k in range(5)] == [1.0, 0.7, 0.4, 0.1, 0.1]
    assert aspiration(0, 1) == 1.0
    assert [patience_of({"agreeableness": a}) for a in (0.0, 0.4, 1.0)] == [4, 6, 9]
    assert patience_of({}) == 7
    agent = ConcessionAgent(curiosity=0)
    offers = []
    world = scene()
    while world.acting:
        act = decide(agent, world) if world.acting == (ONE,) else SocialMove("speak", f"No {len(world.log)}").text()
        offers += [read for read in PRICES if f"<offer {read}>" in act]
        world.act({world.acting[0]: act})
    # 7 points at most, patience 6: at least 7, 5.74, 4.48, 3.22, 1.96 and 0.7 points; the least that is enough.
    assert offers == ["100", "90", "80", "70", "50", "40"]
    assert world.ended == "left"
    assert "<accept>" in decide(agent, scene("No", "No", "No", "No", "<offer 100>", "<offer 90>"))
    assert "<accept>" not in decide(agent, scene("<offer 100>", "<offer 80>"))


def test_it_answers_questions_and_tells_its_secret_only_when_pressed():
    once = decide(ConcessionAgent(), scene("Hm.", "<ask age> <ask debt>"))
    assert "It is old. <reveal age>" in once
    assert "Rent is due" not in once
    twice = scene("Hm.", "<ask age> <ask debt>", "It is old. <reveal age>", "<ask debt>")
    assert "Rent is due. <reveal debt>" in decide(ConcessionAgent(), twice)
    assert "<reveal age>" not in decide(ConcessionAgent(), twice)
    assert "Rent is due" not in decide(ConcessionAgent(candour=3), twice)
    assert "<ask debt>" in decide(ConcessionAgent(), scene("Hm."), TWO), "what is worth points comes first"
    assert "<ask" not in decide(ConcessionAgent(curiosity=0), scene("Hm."), TWO)


def test_once_agreed_they_leave():
    for agent in (EchoAgent(), GreedyAgent(), ConcessionAgent(), BayesNegotiator(), OracleAgent({}, 5)):
        assert '"leave"' in decide(agent, scene("<offer 50>", "<accept>"))


def test_the_bayesian_agent_learns_which_way_the_other_leans():
    agent = BayesNegotiator()
    world = scene("<offer 100>", "No.", "<offer 90>", "No.", "<offer 80>")
    values, _, weights = agent.posterior(read_scene(world.observe(TWO)))
    rising = values[:, -1] > values[:, 0]
    assert weights[rising].sum() > 0.99
    prior = agent.posterior(read_scene(scene("Hm.").observe(TWO)))[2]
    assert prior[rising].sum() == pytest.approx(0.5, abs=0.1)
    assert values.shape == (400, 10)
    shown = agent.posterior(read_scene(scene("Hm.", omniscient=True).observe(TWO)))[0]
    assert np.allclose(shown, np.array(list(SALE.briefs[0].values.values())) / 7)


def test_what_was_refused_counts_against_it():
    agent = BayesNegotiator()
    world = scene("Hm.", *["<offer 20>", "No <reject>"] * 3)
    values, patience, weights = agent.posterior(read_scene(world.observe(TWO)))
    base = agent.posterior(read_scene(scene("Hm.").observe(TWO)))[2]
    takes = values[:, 1] > 0.7
    assert weights[takes].sum() < base[takes].sum() / 2
    assert set(patience) == set(range(4, 10))


def test_what_does_not_work_for_the_other_is_not_offered():
    terms = ("park at 10", "park at 14", "museum at 10", "museum at 14")
    briefs = (
        SocialBrief("Agree.", dict(zip(terms, (4.0, 3.0, 2.0, 1.0), strict=True)), {"mood": "Good."}),
        SocialBrief(
            "Agree.", dict(zip(terms, (-3.0, 2.0, -3.0, 1.0), strict=True)), {"hours": "This does not work for me: 10."}
        ),
    )  # fmt: skip
    plan = SocialScenario("plan", "A plan.", briefs, terms)
    told = scene("Hm. <ask hours>", "This does not work for me: 10. <reveal hours>", scenario=plan)
    assert "<offer park at 14>" in decide(BayesNegotiator(), told)
    untold = scene("Hm. <ask hours>", "No.", scenario=plan)
    assert "<offer park at 10>" in decide(BayesNegotiator(), untold)


def test_it_never_tells_its_secret_and_accepts_what_it_cannot_better():
    assert "Rent" not in decide(BayesNegotiator(), scene("Hm.", *["<ask debt>", "Hm!"] * 3, "<ask debt>"))
    assert "<accept>" in decide(BayesNegotiator(), scene("Hm.", "<offer 100>"))


def test_drawn_values_are_shares_of_the_best_with_a_numeric_issue_rising_or_falling():
    values, patience = draw_values(tuple(PRICES), 200)
    assert np.allclose(values.max(1), 1)
    assert (values.min(1) <= 0).all()
    steps = np.sign(np.diff(values, axis=1))
    assert (np.abs(steps.sum(1)) == 9).all()
    assert patience.min() >= 4


def goal(agent, partner, seats=(ONE, TWO)):
    world = SocialScene(SALE, {seats[1]: SocialProfile("Bo", big_five={"agreeableness": 0.6})})
    play(world, {seats[0]: agent, seats[1]: partner}, 0)
    return world.rewards()[seats[0]]


@pytest.mark.parametrize("seats", [(ONE, TWO), (TWO, ONE)])
def test_the_oracle_takes_the_most_the_partner_would_give(seats):
    theirs = SALE.brief(seats[1]).values
    found = goal(OracleAgent(theirs, patience_of({"agreeableness": 0.6}), candour=9), ConcessionAgent(), seats)
    assert found >= max(
        goal(agent, ConcessionAgent(), seats) for agent in (EchoAgent(), ConcessionAgent(), BayesNegotiator())
    )
    least = 0.1 * max(theirs.values())
    own = SALE.brief(seats[0])
    most = max(value for term, value in own.values.items() if theirs[term] >= least)
    assert found >= 10 * most / SALE.best(seats[0]) - 1e-9


def test_a_model_chooses_among_the_open_acts():
    def script(chat, seed):
        return "I propose: 70. <offer 70>" if "Your goal" in chat[-1]["content"] else "Goodbye."

    model = ScriptedModel(script)
    assert "<offer 70>" in decide(SceneChoice(model), scene())
    assert '"leave"' in decide(SceneChoice(model, blind=True), scene())
    menu = open_moves(read_scene(scene().observe(ONE)))
    assert {move.text() for move in menu} == set(SocialScene(SALE, choices=True).legal(ONE))
    with pytest.raises(UserError, match="no terms to choose among"):
        decide(SceneChoice(model), SocialScene({"text": "t", "goals": ["a", "b"]}))


def test_the_goal_can_be_hidden():
    seen = without_goal(scene().observe(TWO))
    for text in ("Buy.", "Worth", "- 10: 7"):
        assert text not in seen
    for text in ("A lamp is for sale", "You are person-2", "- use: A gift.", "You can ask person-1 about", "So far:"):
        assert text in seen


def test_random_acts_are_seeded_and_legal():
    world = scene("<offer 50>")
    views = [View(TWO, world.observe(TWO), None, seed) for seed in range(60)]
    acts = [act.action for act in SceneRandom().act(views)]
    assert acts == [act.action for act in SceneRandom().act(views)]
    assert len(set(acts)) > 10
    for act in acts:
        world.check(TWO, act)


def test_a_real_model_plays_a_whole_scene_legally():
    briefs = (SocialBrief("a", {"x": 2.0, "y": 1.0}), SocialBrief("b", {"x": 1.0, "y": 2.0}))
    world = SocialScene(SocialScenario("s", "A queue.", briefs, ("x", "y")), turns=4)
    episode = play(world, dict.fromkeys(world.agents, SceneChoice(tiny_model())), 0)
    assert episode.fallbacks == 0
    assert episode.ended == "over"
