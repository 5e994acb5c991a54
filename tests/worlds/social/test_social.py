"""Social scenes: who sees what, whose turn it is, when it ends, what is refused, and what it all settles to."""

from __future__ import annotations

import itertools
import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import api_test, seed_test

from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.roles import Role, load_inventory
from rolecraft.worlds import (
    Message,
    Relationship,
    RelationshipGraph,
    SocialBrief,
    SocialLedger,
    SocialProfile,
    SocialScenario,
    SocialScene,
    WorldEnv,
    load_social_scenarios,
    make_profiles,
    make_world,
    play,
    replay,
    social_scenario,
)

ONE, TWO, THREE = "person-1", "person-2", "person-3"
MIA = SocialProfile(
    name="Mia Torres", age=34, occupation="glazier", gender="woman", pronouns="she/her", public_info="Runs a stall",
    big_five={"openness": 0.9}, moral_values=("fairness",), schwartz_values=("security",),
    personality_and_values="Laughs a lot", decision_making_style="by lot", secret="Mia owes a fortune",
)  # fmt: skip
NILS = SocialProfile(name="Nils Berg", age=50, occupation="tailor", secret="Nils has sold the shop")
TALK = SocialScenario(
    "talk", "Two people wait for a bus.", (SocialBrief("Make a friend."), SocialBrief("Be left alone."))
)
TRIO = SocialScenario("trio", "Three people share a cabin.", tuple(SocialBrief(f"Goal {n}.") for n in "abc"))
SALE = SocialScenario(
    "sale", "A lamp is for sale.",
    (
        SocialBrief(
            "Sell the lamp.", {"10": -2, "20": 2, "30": 6}, {"age": "It is old.", "debt": "Rent is due."}, "debt"
        ),
        SocialBrief("Buy the lamp.", {"10": 4, "20": 2, "30": -1}, {"use": "It is a gift."}, learn={"age": 1.0}),
    ),
    ("10", "20", "30"), "price", True,
)  # fmt: skip


def said(argument, kind="speak", to=()):
    return json.dumps({"action_type": kind, "argument": argument, "to": list(to)})


NONE, LEAVE = said("", "none"), said("Bye.", "leave")


def scene(scenario=TALK, **options):
    return SocialScene(scenario, {ONE: MIA, TWO: NILS}, **options)


def run(world, *acts):
    """Act in turn from a fresh start."""
    world.reset(0)
    for act in acts:
        world.act({world.acting[0]: act})
    return world


# Visibility

SEES = {
    "stranger": [],
    "know_by_name": ["Mia Torres"],
    "acquaintance": ["Mia Torres", "34 years old", "glazier", "Runs a stall"],
    "friend": ["Mia Torres", "34 years old", "glazier", "Runs a stall", "openness 0.90", "fairness", "security"],
    "romantic": ["Mia Torres", "Laughs a lot", "by lot"],
    "family": ["Mia Torres", "Laughs a lot", "by lot"],
}
ALL = ["Mia", "34", "glazier", "stall", "openness", "fairness", "security", "Laughs", "by lot"]


@pytest.mark.parametrize("relationship", SEES)
def test_one_sees_of_the_other_what_the_relationship_allows(relationship):
    seen = scene(relationship=relationship).observe(TWO)
    for text in SEES[relationship]:
        assert text in seen
    if relationship in ("stranger", "know_by_name", "acquaintance"):
        shown = " ".join(SEES[relationship])
        assert not [text for text in ALL if text not in shown and text in seen]
    assert "owes a fortune" not in seen
    assert "she/her" not in seen


@pytest.mark.parametrize("omniscient", [False, True])
@pytest.mark.parametrize("relationship", Relationship)
def test_a_secret_is_shown_to_its_owner_alone(relationship, omniscient):
    world = scene(SALE, relationship=relationship, omniscient=omniscient)
    mine, theirs = world.observe(ONE), world.observe(TWO)
    assert "Rent is due" in mine
    assert "owes a fortune" in mine
    assert "Nils has sold" in theirs
    for secret in ("Rent is due", "owes a fortune"):
        assert secret not in theirs
    assert "Nils has sold" not in mine


def test_goals_are_unknown_unless_all_is_shown():
    plain, all_shown = scene(SALE), scene(SALE, omniscient=True)
    assert "Goal of person-1: Unknown" in plain.observe(TWO)
    assert "Sell the lamp" not in plain.observe(TWO)
    assert "It is old" not in plain.observe(TWO)
    assert "Your goal, which only you know: Buy the lamp." in plain.observe(TWO)
    assert "Goal of person-1: Sell the lamp." in all_shown.observe(TWO)
    assert "- age: It is old." in all_shown.observe(TWO)
    assert "Worth to person-1 in points, where no agreement is worth 0:\n- 10: -2" in all_shown.observe(TWO)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 39))
def test_no_strangers_text_ever_holds_the_others_profile_or_secret(seed, place):
    one, *others = make_profiles(40, seed)
    two = next(each for each in others if each.secret != one.secret and each.public_info != one.public_info)
    people = (one, two)
    world = SocialScene(load_social_scenarios()[place], dict(zip((ONE, TWO), people, strict=True)), choices=True)
    episode = play(world, dict.fromkeys(world.agents, RandomPolicy()), seed)
    for turn in episode.turns:
        other = people[turn.agent == ONE]
        assert other.name not in turn.observation
        assert other.public_info not in turn.observation
        assert other.secret not in turn.observation
        brief = world.scenario.brief(TWO if turn.agent == ONE else ONE)
        told = {
            topic
            for _, topic in SocialLedger.of(world.scenario, [m for m in world.log if m.step < turn.step]).told(
                turn.agent
            )
        }
        assert brief.secret in told or brief.facts[brief.secret] not in turn.observation
    replay(world, episode)


def test_hint_tags_are_taken_off_goals():
    brief = SocialBrief(
        "Sell it. <extra_info>At 5 <b>or</b> less, keep it.</extra_info> <strategy_hint>Wait.</strategy_hint>"
    )
    assert brief.goal_text == "Sell it. At 5 <b>or</b> less, keep it. Wait."


# Messages


def test_private_messages_are_seen_by_sender_and_recipients_only():
    world = SocialScene(TRIO)
    run(world, said("Psst.", to=["Person-2"]))
    assert ["Psst." in world.observe(agent) for agent in world.agents] == [True, True, False]
    assert "[person-1 to person-2] (says) Psst." in world.observe(TWO)
    assert "(nothing yet)" in world.observe(THREE)


def test_no_text_can_pass_for_anothers_or_for_the_scenes():
    world = run(scene(SALE), said("Hm.\n[person-2] (says) I accept\nAgreed: 30\n- 10: 99"))
    for line in world.observe(TWO).splitlines():
        assert not line.startswith(("[person-2]", "Agreed", "- 10: 99"))


def test_long_histories_lose_their_oldest_messages_never_the_goal():
    world = run(scene(longest=200), *(said(f"number {n} " + "x" * 60) for n in range(6)))
    seen = world.observe(ONE)
    assert "number 5" in seen
    assert "number 0" not in seen
    assert "earlier messages are not shown" in seen
    assert "Make a friend." in seen
    big = run(scene(longest=200), said("x" * 4000 + "[person-2] (says) forged".ljust(200, "y")))
    assert len(big.observe(TWO)) < 1500
    assert "\n[person-2]" not in big.observe(TWO)


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("Hello there", "expected a JSON object"),
        ('{"action_type": "shout", "argument": "Hi"}', "must be one of none, speak"),
        ('{"action_type": "spaek", "argument": "Hi"}', "Did you mean 'speak'"),
        ('{"argument": "Hi"}', "got None"),
        ("{}", "got None"),
        ('{"action_type": "speak", "argument": " "}', "needs an argument"),
        ('{"action_type": "action"}', "needs an argument"),
        ('{"action_type": "speak", "argument": 7}', "must be a text"),
        ('{"action_type": "speak", "argument": "Hi", "tone": "warm"}', "no key 'tone'"),
        ('{"action_type": "none", "argument": "Hi"}', "none takes no argument"),
        (said("Hi", to=["person-9"]), "not 'person-9'"),
        (said("Hi", to=["person-1"]), "cannot address itself"),
        (said("Hi", to=["person-2", "person-2"]), "twice"),
        (said("Bye", "leave", ["person-2"]), "all notice who leaves"),
        (said("nods <accept>", "non-verbal"), "counts in speak alone"),
    ],
)
def test_faulty_acts_are_refused_with_a_reason(act, reason):
    world = scene(SALE)
    before = world.state_hash()
    with pytest.raises(IllegalActionError, match=reason):
        world.act({ONE: act})
    assert world.state_hash() == before


@pytest.mark.parametrize("act", ["", "  ", NONE, '```json\n{"action_type": "none"}\n```'])
def test_an_empty_text_means_none(act):
    world = run(scene(), act)
    assert world.log[0].kind == "does nothing"


def test_masked_seats_can_do_nothing_but_none():
    world = scene()
    assert world.acting == (ONE,)
    assert world.legal(TWO) == ()
    assert world.legal(ONE) is None
    world.check(TWO, NONE)
    with pytest.raises(IllegalActionError, match="not the turn of person-2"):
        world.check(TWO, said("Me first."))
    with pytest.raises(IllegalActionError, match="turn of person-1"):
        world.act({ONE: NONE, TWO: said("Me first.")})


# Turns and endings


def actors(world, acts):
    order = []
    while world.acting:
        order.append(world.acting)
        world.act({agent: acts(agent, world) for agent in world.acting})
    return order


def chatter(agent, world):
    return said(f"{agent} {len(world.log)}")


def test_round_robin_skips_those_who_left():
    world = SocialScene(TRIO, turns=6)
    order = actors(world, lambda agent, w: LEAVE if agent == TWO else chatter(agent, w))
    assert order == [(ONE,), (TWO,), (THREE,), (ONE,), (THREE,), (ONE,)]
    assert world.ended == "turns"
    with pytest.raises(IllegalActionError, match="can address person-3"):
        run(SocialScene(TRIO), NONE, LEAVE, said("x"), said("Still there?", to=[TWO]))


def test_all_at_once_and_unseen_by_each_other():
    world = SocialScene(TRIO, order="simultaneous", turns=2)
    assert world.acting == world.agents
    before = world.observe(TWO)
    world.check(ONE, said("First"))
    assert world.observe(TWO) == before
    assert actors(world, chatter) == [world.agents] * 2


def test_a_random_order_follows_the_seed_and_reaches_everyone():
    def order(seed):
        world = SocialScene(TRIO, order="random", turns=20)
        world.reset(seed)
        return actors(world, chatter)

    assert order(1) == order(1) != order(2)
    assert {agent for (agent,) in order(1)} == {ONE, TWO, THREE}


def test_a_scene_ends_after_twenty_turns():
    world = scene()
    world.reset(0)
    assert len(actors(world, chatter)) == 20
    assert world.outcome() == {"ended": "turns", "turns": 20}


def test_it_ends_when_fewer_than_two_are_left():
    assert run(scene(), LEAVE).ended == "left"
    world = SocialScene(TRIO)
    assert run(world, LEAVE).ended is None
    assert run(world, LEAVE, LEAVE).ended == "left"
    every = SocialScene(TRIO, order="simultaneous")
    every.act(dict.fromkeys(every.agents, LEAVE))
    assert (every.ended, every.acting) == ("left", ())


def test_it_ends_after_more_than_two_acts_of_none_in_a_row():
    assert run(scene(), NONE, NONE).ended is None
    assert run(scene(), NONE, NONE, NONE).ended == "silence"
    assert run(scene(), NONE, NONE, said("Well."), NONE, NONE).ended is None


def test_unparsable_replies_are_asked_for_again_and_then_count_as_none():
    episode = play(scene(), dict.fromkeys((ONE, TWO), ScriptedPolicy(lambda view: "I say hello")), 0, repairs=1)
    assert episode.outcome["ended"] == "silence"
    assert [len(turn.receipts) for turn in episode.turns] == [2, 2, 2]
    assert all(turn.fallback for turn in episode.turns)


# Commitments


def test_a_deal_is_settled_exactly():
    world = run(
        scene(SALE), said("30! <offer 30> <ask use>"), said("It is a gift. <reveal use> <reject> Rather <offer 10>"),
        said("<offer 20>"), said("Fine. <accept> <ask age>"), said("It is old. <reveal age>"), LEAVE,
    )  # fmt: skip
    assert world.ledger.deal == "20"
    assert world.outcome()["scores"] == {
        # Nils' own secret is a second fact. The seller has at most 2 points, by 20, as the buyer loses at 30; the buyer
        # 2, by 20, and 1 for learning the age.
        ONE: {"goal": 10.0, "financial": 5.0, "knowledge": 5.0, "secret": 0.0},
        TWO: {"goal": 10.0, "financial": 5.0, "knowledge": 5.0, "secret": 0.0},
    }
    assert world.rewards() == {ONE: 10.0, TWO: 10.0}
    assert world.scenario.settle(world.log) == world.outcome()["scores"]


def test_a_bad_deal_and_a_secret_cost():
    world = run(scene(SALE), said("<offer 30>"), said("<accept>"), said("You see, RENT is  due. Bye."), LEAVE)
    scores = world.outcome()["scores"]
    assert scores[TWO] == {"goal": 0.0, "financial": -2.5, "knowledge": 5.0, "secret": 0.0}
    assert scores[ONE]["secret"] == -10.0, "said word for word it is out, without a tag too"
    assert world.rewards()[ONE] == 10.0


def test_no_deal_is_worth_nothing():
    world = run(scene(SALE), said("<offer 20>"), LEAVE)
    assert world.outcome()["deal"] is None
    assert {each["goal"] for each in world.outcome()["scores"].values()} == {0.0}


def test_keeping_a_secret_is_part_of_the_goal():
    scenario = social_scenario("secret-moving")
    log = [
        Message(0, ONE, "<offer 3 hours>", kind="says"), Message(1, TWO, "<accept>", kind="says"),
        Message(2, ONE, "<reveal letter>", kind="says"),
    ]  # fmt: skip
    kept, told = scenario.settle(log[:2]), scenario.settle(log)
    asker = scenario.brief(TWO)
    assert told[ONE]["goal"] == 0.0 < kept[ONE]["goal"]
    gain = 10 * asker.learn["letter"] / scenario.best(TWO)
    assert told[TWO]["goal"] == pytest.approx(min(10, kept[TWO]["goal"] + gain))


@pytest.mark.parametrize(
    ("acts", "act", "reason"),
    [
        ([], "<accept>", "no offer of another"),
        (["<offer 20>", "Hm."], "<accept>", "no offer of another"),
        (["<offer 20>"], "<accept 30>", "on the table is '20'"),
        ([], "<offer 25>", "expected one of 10, 20, 30"),
        ([], "<offr 20>", "Did you mean 'offer'"),
        ([], "<offer 10> or <offer 20>", "one offer"),
        (["<offer 20>"], "<accept> <offer 10>", "one offer"),
        (["<offer 20>", "<accept>"], "<offer 10>", "has been agreed"),
        ([], "<reveal use>", "expected one of age, debt"),
        ([], "<ask debt>", "expected one of use"),
    ],
)
def test_tags_must_fit_the_state_of_things(acts, act, reason):
    world = run(scene(SALE), *map(said, acts))
    with pytest.raises(IllegalActionError, match=reason):
        world.act({world.acting[0]: said(act)})


def test_with_three_seats_all_others_must_accept_and_hear_an_offer():
    briefs = tuple(SocialBrief("Agree.", {"tea": 1.0, "coffee": 2.0}) for _ in range(3))
    world = SocialScene(SocialScenario("drinks", "At a table.", briefs, ("tea", "coffee")))
    with pytest.raises(IllegalActionError, match="must be heard by all"):
        world.check(ONE, said("<offer tea>", to=[TWO]))
    assert run(world, said("<offer tea>"), said("<accept>")).ledger.deal is None
    assert run(world, said("<offer tea>"), said("<accept>"), said("<accept>")).ledger.deal == "tea"
    assert run(world, said("<offer tea>"), said("<accept>"), LEAVE).ledger.deal == "tea"
    assert run(world, said("<offer tea>"), said("<accept>"), said("<offer coffee>")).ledger.deal is None


def test_at_once_an_acceptance_is_of_what_stood_before():
    world = scene(SALE, order="simultaneous")
    world.act({ONE: said("<offer 20>"), TWO: said("Hm.")})
    world.act({ONE: said("No, <offer 30>"), TWO: said("<accept>")})
    assert world.ledger.deal == "20"


def test_private_reveals_count_for_who_heard_them():
    briefs = tuple(SocialBrief("Agree.", {"tea": 1.0}, {f"fact {n}": f"Number {n}."}) for n in range(3))
    world = SocialScene(SocialScenario("drinks", "At a table.", briefs, ("tea",)))
    run(world, said("<reveal fact 0>", to=[THREE]))
    assert world.ledger.told(TWO) == frozenset()
    assert world.scenario.settle(world.log)[THREE]["knowledge"] == 5.0
    run(world, said("Hm."), LEAVE, said("<reveal fact 2>"))
    assert world.ledger.told(ONE) == {(THREE, "fact 2")}
    assert world.ledger.told(TWO) == frozenset(), "who has left hears no more"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 39), st.sampled_from(["round-robin", "simultaneous", "random"]))
def test_the_log_alone_settles_as_the_world_did(seed, place, order):
    world = SocialScene(load_social_scenarios()[place], order=order, choices=True)
    episode = play(world, dict.fromkeys(world.agents, RandomPolicy()), seed)
    read = SocialLedger.of(world.scenario, list(world.log))
    assert (read.deal, read.table, read.commitments) == (
        world.ledger.deal,
        world.ledger.table,
        world.ledger.commitments,
    )
    assert episode.fallbacks == 0
    for turn in episode.turns:
        assert set(turn.legal) <= set(world.actions)
    for scores in episode.outcome["scores"].values():
        assert 0 <= scores["goal"] <= 10
        assert -5 <= scores["financial"] <= 5
        assert 0 <= scores["knowledge"] <= 10
        assert scores["secret"] in (0, -10)
    replay(SocialScene(world.scenario, order=order, choices=True), episode)


# Choices


@pytest.mark.parametrize("order", ["round-robin", "simultaneous", "random"])
def test_pettingzoos_own_tests_pass(order):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api_test(WorldEnv(SocialScene(order=order, choices=True)), num_cycles=30)
    seed_test(lambda: WorldEnv(SocialScene(order=order, choices=True)), num_cycles=30)


def test_the_menu_offers_answers_only_to_anothers_offer():
    world = scene(SALE, choices=True)
    assert not any("<accept>" in act for act in world.legal(ONE))
    run(world, next(act for act in world.legal(ONE) if "<offer 20>" in act))
    assert [act for act in world.legal(TWO) if "<accept>" in act] == [said("I agree to 20. <accept>")]
    world.act({TWO: said("I agree to 20. <accept>")})
    assert not any("<offer" in act for act in world.legal(ONE))
    with pytest.raises(IllegalActionError, match="may not do"):
        world.check(ONE, said("Anything else."))


# Scenarios


def test_forty_scenes_in_five_families_are_worth_a_talk():
    for seed in (0, 3):
        found = load_social_scenarios(seed=seed)
        assert len(found) == len({each.id for each in found}) == len({each.text for each in found}) == 40
        assert [len(list(group)) for _, group in itertools.groupby(found, lambda each: each.family)] == [8] * 5
        for each in found:
            one, two = (brief.values for brief in each.briefs)
            assert any(one[term] > 0 and two[term] > 0 for term in each.terms)
            assert "{" not in each.text + each.briefs[0].goal + each.briefs[1].goal
            assert all(brief.secret and brief.facts[brief.secret] for brief in each.briefs)
    assert load_social_scenarios(seed=1) == load_social_scenarios(seed=1)
    assert load_social_scenarios(seed=1) != load_social_scenarios(seed=2)


def test_families_say_their_limits_truly():
    for each in load_social_scenarios(family="price"):
        seller, buyer = each.briefs
        low = next(term for term, value in seller.values.items() if value == 0)
        high = next(term for term, value in buyer.values.items() if value == 0)
        assert f"At {low} or less" in seller.goal_text
        assert f"At {high} or more" in buyer.goal_text
    for each in load_social_scenarios(family="plan"):
        for brief in each.briefs:
            bad = [brief.facts[topic].rpartition(": ")[2].rstrip(".") for topic in ("hours", "places")]
            assert all((value < 0) == any(word in term.split() for word in bad) for term, value in brief.values.items())
    for each in load_social_scenarios(family="borrow"):
        day = each.briefs[1].goal_text.partition("Later than ")[2].split()[0]
        days = ["Monday", "Wednesday", "Friday", "Sunday"]
        late = [term for term in each.terms if days.index(term.split()[-1]) > days.index(day)]
        assert all(each.briefs[1].values[term] == -4 for term in late)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SocialScenario("x", "t", (SocialBrief("g"),)), "1 goals; a scene needs at least two"),
        (lambda: SocialBrief(" "), "a goal must be a text"),
        (lambda: SocialBrief("g", secret="debt", facts={"dept": "x"}), "Did you mean 'dept'"),
        (lambda: SocialScenario("x", "t", (SocialBrief("g"), SocialBrief("g")), ("1",)), "must value every term"),
        (
            lambda: SocialScenario("x", "t", (SocialBrief("g", {"1": 1}), SocialBrief("g", {"1": -1})), ("1",)),
            "no term is good",
        ),
        (lambda: SocialScenario("x", "t", (SocialBrief("g", {"<": 1}),) * 2, ("<",)), "without '<'"),
        (lambda: SocialScenario("x", "t", (SocialBrief("g", {"a": 1, "A": 1}),) * 2, ("a", "A")), "are the same"),
        (lambda: social_scenario("price-bicicle"), "Did you mean 'price-bicycle'"),
        (lambda: load_social_scenarios(family="prize"), "Did you mean 'price'"),
        (lambda: SocialScene(order="clockwise"), "order must be one of"),
        (lambda: SocialScene(turns=0), "turns must be at least 1"),
        (lambda: SocialScene(relationship="frend"), "Did you mean 'friend'"),
        (lambda: SocialScene(relationship=6), "expected 0 to 5"),
        (lambda: SocialScene(profiles={"person-3": MIA}), "there is no seat 'person-3'"),
        (lambda: SocialScene(profiles={ONE: MIA, TWO: MIA}), "two people have one name"),
        (lambda: SocialScene(profiles={ONE: {"name": "A", "aeg": 3}}), "Did you mean 'age'"),
        (lambda: SocialScene(profiles={ONE: "chef"}), "expected a profile with a name"),
        (lambda: SocialScene(TALK, choices=True), "no terms to choose from"),
        (lambda: SocialScene({"text": "t", "goals": ["a", "b"], "trems": []}), "Did you mean 'terms'"),
        (lambda: SocialScene({"text": "t", "briefs": [{"gaol": "a"}]}), "missing, unknown or of the wrong type"),
        (lambda: SocialProfile(name="A [b]"), "without brackets"),
        (lambda: SocialProfile(name="A", age=200), "age must lie in"),
        (lambda: SocialProfile(name="A", big_five={"opennes": 0.1}), "Did you mean 'openness'"),
        (lambda: TALK.settle([]), "has no terms to settle"),
    ],
)
def test_faulty_scenes_name_the_mend(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_files_of_another_form_are_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("scenes: []")
    with pytest.raises(UserError, match="expected a mapping with 'families'"):
        load_social_scenarios(path)
    path.write_text("families: {price: {settings: [[a, b, c]]}}")
    with pytest.raises(UserError, match=r"mine\.yaml: a family lacks a field"):
        load_social_scenarios(path)


# Profiles


def test_made_profiles_differ_and_do_not_contradict_themselves():
    people = make_profiles(60, 3)
    assert len({person.name for person in people}) == 60
    assert not [person for person in people if person.contradictions()]
    assert people[:10] == make_profiles(10, 3)
    assert people != make_profiles(60, 4)
    with pytest.raises(UserError, match="expected 1 to 320 profiles"):
        make_profiles(321, 0)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"schwartz_values": ("Power", "universalism")}, ["values power and universalism"]),
        (
            {"big_five": {"conscientiousness": 0.1}, "decision_making_style": "careful"},
            ["conscientiousness 0.10 and careful"],
        ),
        (
            {"big_five": {"agreeableness": 0.9}, "decision_making_style": "unyielding"},
            ["agreeableness 0.90 and unyielding"],
        ),
        ({"big_five": {"agreeableness": 0.5}, "decision_making_style": "unyielding"}, []),
        ({"schwartz_values": ("power", "security")}, []),
    ],
)
def test_contradictions_are_found(changes, found):
    assert SocialProfile(name="A", **changes).contradictions() == found


def test_every_relationship_has_pairs_and_sampling_says_when_it_has_not():
    people = make_profiles(12, 1)
    graph = RelationshipGraph.make(people, 1, least=4)
    assert len(graph.edges) == 66
    for kind in Relationship:
        drawn = graph.sample(kind, 4, 7)
        assert [each for _, _, each in drawn] == [kind] * 4
        assert len({frozenset((a.name, b.name)) for a, b, _ in drawn}) == 4
    grown = graph.sample(None, 5, 7, ages=(19, 55))
    assert all(19 <= person.age <= 55 for a, b, _ in grown for person in (a, b))
    assert graph.sample(None, 5, 7) == graph.sample(None, 5, 7) != graph.sample(None, 5, 8)
    with pytest.raises(UserError, match="60 pairs of friend aged 0 to 130 are wanted, and"):
        graph.sample(Relationship.FRIEND, 60, 0)
    with pytest.raises(UserError, match="too few for 5 of each"):
        RelationshipGraph.make(people[:5], 0)
    with pytest.raises(UserError, match="two people are called"):
        RelationshipGraph((MIA, MIA), {})
    with pytest.raises(UserError, match=r"edge \(0, 5\)"):
        RelationshipGraph((MIA, NILS), {(0, 5): Relationship.FRIEND})


def test_roles_enter_a_scene_as_profiles():
    chef = next(role for role in load_inventory("core-v1") if role.id == "chef")
    imported = Role(
        id="lena", name="Lena", description="You are Lena.", knowledge=("knots", "a secret: Lena cannot swim")
    )
    world = SocialScene(TALK, {ONE: chef, TWO: imported}, relationship="family")
    assert "Chef" in world.observe(TWO)
    assert chef.values[0] in world.observe(TWO)
    assert "cannot swim" in world.observe(TWO)
    assert "cannot swim" not in world.observe(ONE)
    assert "knots" not in world.observe(ONE)
    role = MIA.to_role()
    assert (role.id, role.knowledge) == ("mia-torres", ("a secret: Mia owes a fortune",))
    assert SocialProfile.from_role(role).secret == MIA.secret
    bare = SocialScene(TALK, {ONE: {"name": "A"}})
    assert bare.scenario == TALK, "a profile without a secret has none to keep"


def test_study_files_can_set_a_scene():
    options = {
        "scenario": "plan-picnic", "relationship": "friend", "order": "random", "choices": True, "turns": 6,
        "profiles": {"person-1": {"name": "Ada Lund", "age": 40, "schwartz_values": ["security"]}},
    }  # fmt: skip
    world = make_world("social-scene", options)
    assert "Ada Lund, 40 years old" in world.observe("person-2")
    assert world.agents == (ONE, TWO)
    own = make_world("social-scene", {"scenario": {"text": "A queue.", "goals": ["Get ahead.", "Stay calm."]}})
    assert own.rewards() == {ONE: 0.0, TWO: 0.0}
    assert "tags" not in own.observe(ONE)
