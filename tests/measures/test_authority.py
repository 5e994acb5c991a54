"""The authority measure: exact cases by hand, the chain against simulation, and what is undefined."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import (
    PanelRates,
    PanelStart,
    PanelTalk,
    measure_authority,
    panel_win_probability,
    split_influence,
)
from rolecraft.measures._authority_chain import CONTEXTS, Context, context_of, estimate_rates

SEATS = ("a", "b", "c")


def said(*stances, seats=SEATS):
    """Return turns of seats in cyclic order; 1 and 2 are the sides, 0 a tie, - none."""
    names = {"1": "A1", "2": "A2", "0": "tie", "-": None}
    return tuple((seats[turn % len(seats)], names[mark]) for turn, mark in enumerate("".join(stances)))


def talk(stances, verdict="A1", label="expert", item="i", **more):
    return PanelTalk(item, label, "a", said(stances), verdict, **more)


def starts(turns, seats=3, place=0):
    return [PanelStart(seats, turns, place, sides) for sides in product((False, True), repeat=seats) if sides[place]]


def simulate(rates, start, rng):
    """Play the model forwards, one discussion; an implementation apart from the chain."""
    sides = list(start.with_it)
    for turn in range(start.turns):
        speaker = turn % start.seats
        against = [seat for seat in range(start.seats) if sides[seat] != sides[speaker]]
        hold = rates.h_auth if speaker == start.authority else rates.h_gen
        pull = sum(rates.c_auth if seat == start.authority else rates.c_gen for seat in against)
        if len(against) == start.seats - 1:
            pull = 1
        chance = (1 - hold) * min(1, pull) if against else rates.drift
        if rng.random() < chance:
            sides[speaker] = not sides[speaker]
    return sum(sides) * 2 > start.seats


# Influence


def test_influence_is_the_paired_difference_of_success():
    talks = [
        talk("122111", "A1", item="x"),
        talk("112222", "A2", item="x", label="control"),
        talk("211222", "A2", item="y"),
        talk("211222", "A2", item="y", label="control"),
        talk("122111", "A1", item="alone"),
    ]
    effect = measure_authority(talks).effect("expert")
    assert effect.influence.estimate == 0.5
    assert effect.influence.n == 2
    assert effect.talks == 3
    # x: the generals go from 0 to 1 with the title and from 0.5 to 0 without; y: both from 0 to 1, so nothing is gained
    assert effect.alignment.estimate == 0.75


def test_a_position_that_is_given_counts_where_none_is_stated():
    hedged = [
        talk("-12-12", verdict, label=label, clear=False, position="A2", item=f"i{n}")
        for n, (verdict, label) in enumerate([("A2", "expert"), ("A1", "expert")])
    ]
    plain = [talk("-12-12", "A1", label="control", clear=False, position="A2", item=f"i{n}") for n in range(2)]
    effect = measure_authority(hedged + plain).effect("expert", clear=False)
    assert effect.influence.estimate == 0.5
    assert math.isnan(effect.steadfast.estimate)
    assert "never has a stance" in effect.reasons["steadfast"]
    assert math.isnan(effect.modelled.estimate)
    assert "0 kinds of start" in effect.reasons["modelled"]
    assert effect.counts["unsettled"] == 2


def test_an_authority_that_never_takes_a_side_violates_the_protocol():
    talks = [talk("-12-12", position="A1"), talk("-12-12", position="A1", label="control")]
    effect = measure_authority(talks).effect("expert")
    assert effect.counts["violations"] == 1
    assert math.isnan(effect.influence.estimate)
    assert "position is known" in effect.reasons["influence"]


def test_clarity_is_the_difference_of_clear_and_hedged_influence():
    talks = []
    for item, clear_verdict, hedged_verdict in (("x", "A1", "A2"), ("y", "A1", "A1")):
        talks += [
            talk("122111", clear_verdict, item=item),
            talk("122222", "A2", item=item, label="control"),
            talk("-12-12", hedged_verdict, item=item, clear=False, position="A1"),
            talk("-12-12", "A2", item=item, label="control", clear=False, position="A1"),
        ]
    report = measure_authority(talks)
    assert report.effect("expert").influence.estimate == 1
    assert report.effect("expert", clear=False).influence.estimate == 0.5
    assert report.clarity["expert"].estimate == 0.5


# Steadfastness


def test_steadfastness_and_flexibility_count_turns_with_a_stance():
    talks = [talk("1221-2101", item=item) for item in "xy"] + [talk("122222", label="control", item=i) for i in "xy"]
    effect = measure_authority(talks).effect("expert")
    # a: 1 1 1; b: 2 - 0; c: 2 2 1
    assert effect.steadfast.estimate == 1
    assert effect.steadfast_control.estimate == 0
    assert effect.flexibility.estimate == pytest.approx(2 / 3)
    assert (effect.counts["silent"], effect.counts["ties"]) == (2, 2)


# Rates


@pytest.mark.parametrize(
    ("speaker", "own", "heard", "context"),
    [
        ("a", "A1", {"b": "A2", "c": "A2"}, ("auth", "all")),
        ("a", "A1", {"b": "A2", "c": "A1"}, ("auth", "gen")),
        ("b", "A1", {"a": "A2", "c": "A1"}, ("gen", "auth")),
        ("b", "A1", {"a": "A1", "c": "A2"}, ("gen", "gen")),
        ("b", "A2", {"a": "A1", "c": "A1"}, ("gen", "all")),
        ("b", "A2", {"a": "A2", "c": "A2"}, ("gen", "nobody")),
        ("b", "A2", {"a": "A1", "c": "A1", "d": "A2"}, ("gen", "some")),
    ],
)
def test_contexts(speaker, own, heard, context):
    assert context_of(speaker, own, heard, "a") == Context(*context)


def test_pressures_of_a_discussion_by_hand():
    found = list(talk("122112111").pressures())
    assert found == [
        (Context("auth", "all"), False),  # a keeps 1 against 2, 2
        (Context("gen", "auth"), True),  # b leaves 2 for a's 1; c is with it
        (Context("gen", "all"), False),  # c keeps 2 against 1, 1
        (Context("auth", "gen"), False),
        (Context("gen", "gen"), False),
        (Context("gen", "all"), True),
    ]
    assert list(talk("1-2012").pressures()) == []  # a tie, or someone unheard, leaves the turn out


def test_rates_by_hand():
    turns = dict(zip(CONTEXTS, [10, 20, 50, 40, 30, 60, 40], strict=True))
    changes = dict(zip(CONTEXTS, [1, 1, 20, 8, 3, 3, 2], strict=True))
    rates = estimate_rates(turns, changes)
    assert rates.h_gen[0] == pytest.approx(0.6)
    assert rates.c_auth[0] == pytest.approx(0.2 / 0.4)
    assert rates.c_gen[0] == pytest.approx(0.1 / 0.4)
    assert rates.h_auth[0] == pytest.approx(1 - 2 / (10 + 0.25 * 20))
    assert rates.drift[0] == pytest.approx(0.05)


def test_talks_that_begin_unanimous_are_left_out_of_the_rates_and_told():
    talks = [talk(marks, item=item, label=label) for item in "xy" for label in ("expert", "control")
             for marks in ("111" "211",)]  # fmt: skip
    effect = measure_authority(talks).effect("expert")
    assert effect.counts["unanimous"] == 2
    assert all(math.isnan(effect.rates[name].estimate) for name in ("h_auth", "h_gen", "c_auth", "c_gen"))
    assert effect.reasons["h_gen"] == "no turn on which a gen speaker was pressed by all"
    assert effect.reasons["c_auth"] == "no turn on which a gen speaker was pressed by auth"
    assert effect.reasons["modelled"] == "a rate is undefined: h_gen, c_auth, c_gen, h_auth"


# The chain


def test_one_turn_by_hand():
    rates = PanelRates(0.9, 0.6, 0.5, 0.2, 0.1)
    unanimous, alone, joined = [
        PanelStart(3, 1, 0, sides) for sides in ((True,) * 3, (True, False, False), (True, True, False))
    ]
    assert panel_win_probability(rates, [unanimous])[0] == 1  # one change leaves two of three
    assert panel_win_probability(rates, [alone])[0] == 0
    assert panel_win_probability(rates, [joined])[0] == pytest.approx(1 - 0.1 * 0.2)  # a may give way to c alone
    second = PanelStart(3, 2, 0, (True, False, False))  # a against all, then b against all or beside c
    assert panel_win_probability(rates, [second])[0] == pytest.approx(0.9 * 0.4 * 0.5)


def test_pulls_and_holds_meet_their_own_seats():
    base = PanelRates(0.6, 0.6, 0.2, 0.2)
    value = panel_win_probability(base, starts(9))[0]
    for better in (PanelRates(0.9, 0.6, 0.2, 0.2), PanelRates(0.6, 0.6, 0.6, 0.2)):
        assert panel_win_probability(better, starts(9))[0] > value + 0.02
    placed = [panel_win_probability(base, starts(9, place=place))[0] for place in range(3)]
    assert len({round(value, 6) for value in placed}) == 3  # who speaks last matters


@pytest.mark.parametrize(("seats", "place"), [(3, 0), (3, 2), (5, 1)])
def test_the_chain_agrees_with_simulation(seats, place):
    rates = PanelRates(0.9, 0.5, 0.6, 0.15, 0.02)
    begun = starts(2 * seats, seats, place)
    rng = np.random.default_rng(seats + place)
    wins = [simulate(rates, begun[int(rng.integers(len(begun)))], rng) for _ in range(6000)]
    assert panel_win_probability(rates, begun)[0] == pytest.approx(np.mean(wins), abs=0.025)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2))
def test_hold_and_switch_add_up_and_an_untitled_panel_has_neither(h_auth, h_gen, c_auth, c_gen, place):
    split = split_influence(PanelRates(h_auth, h_gen, c_auth, c_gen), starts(6, place=place))
    assert split.hold + split.switch == pytest.approx(split.total)
    plain = split_influence(PanelRates(h_gen, h_gen, c_gen, c_gen), starts(6, place=place))
    assert [float(part[0]) for part in plain] == [0, 0, 0]
    only = split_influence(PanelRates(h_auth, h_gen, c_gen, c_gen), starts(6, place=place))
    assert only.switch[0] == pytest.approx(0, abs=1e-12)
    only = split_influence(PanelRates(h_gen, h_gen, c_auth, c_gen), starts(6, place=place))
    assert only.hold[0] == pytest.approx(0, abs=1e-12)


def test_starts_are_weighted():
    rates = PanelRates(0.6, 0.6, 0.2, 0.2)
    begun = [PanelStart(3, 0, 0, sides) for sides in ((True, True, False), (True, False, False))]
    assert panel_win_probability(rates, begun)[0] == 0.5
    assert panel_win_probability(rates, begun, np.array([[3.0, 1.0]]))[0] == 0.75


# The whole on planted talks


def planted(rates, plain, n=900, seed=0):
    """Return talks with the title by `rates`, and without it by `plain`."""
    rng = np.random.default_rng(seed)
    talks = []
    for unit in range(n):
        first = [True, *(bool(rng.integers(2)) for _ in range(2))]
        for label, given_rates in (("expert", rates), ("control", plain)):
            sides, marks = list(first), ["1" if side else "2" for side in first]
            for turn in range(9):
                speaker = turn % 3
                against = [seat for seat in range(3) if sides[seat] != sides[speaker]]
                pull = sum(given_rates.c_auth if seat == 0 else given_rates.c_gen for seat in against)
                hold = given_rates.h_gen if speaker else given_rates.h_auth
                if rng.random() < (1 - hold) * (1 if len(against) == 2 else pull):
                    sides[speaker] = not sides[speaker]
                marks.append("1" if sides[speaker] else "2")
            talks.append(talk("".join(marks), "A1" if sum(sides) > 1 else "A2", label=label, item=str(unit)))
    return talks


PLAIN = PanelRates(0.6, 0.6, 0.2, 0.2)


@pytest.mark.parametrize(
    ("rates", "share"), [(PanelRates(0.95, 0.6, 0.2, 0.2), 1), (PanelRates(0.6, 0.6, 0.8, 0.2), 0)]
)
def test_the_planted_rates_and_cause_are_found(rates, share):
    effect = measure_authority(planted(rates, PLAIN, n=2000), draws=300).effect("expert")
    for name in ("h_auth", "h_gen", "c_auth", "c_gen"):
        found = effect.rates[name]
        assert abs(found.estimate - getattr(rates, name)) < 0.8 * (found.high - found.low)  # three standard errors
    assert effect.influence.low > 0
    assert effect.modelled.estimate == pytest.approx(effect.influence.estimate, abs=0.05)
    assert effect.hold_share.estimate == pytest.approx(share, abs=0.3)
    assert not effect.hold_share.low < 1 - share < effect.hold_share.high


def test_without_an_effect_there_is_no_share():
    effect = measure_authority(planted(PLAIN, PLAIN, n=300)).effect("expert")
    assert not effect.influence.excludes_zero
    assert not effect.modelled.excludes_zero
    assert math.isnan(effect.hold_share.low)
    assert "may be 0" in effect.reasons["hold_share"]


def test_renaming_the_sides_changes_nothing():
    talks = planted(PanelRates(0.95, 0.6, 0.2, 0.2), PLAIN, n=80)
    other = {"A1": "A2", "A2": "A1"}
    flipped = [
        PanelTalk(t.item, t.label, t.authority, tuple((a, other[s]) for a, s in t.said), other[t.verdict])
        for t in talks
    ]
    assert measure_authority(talks) == measure_authority(flipped)


def test_faulty_talks_are_refused():
    with pytest.raises(UserError, match="'z' never speaks"):
        PanelTalk("i", "expert", "z", said("12"), "A1")
    with pytest.raises(UserError, match="a stance is A1, tie, A2 or None, got 'yes'"):
        PanelTalk("i", "expert", "a", (("a", "yes"),), "A1")
    with pytest.raises(UserError, match="a position is A1 or A2"):
        talk("122", position="tie")
    with pytest.raises(UserError, match="talks labelled 'control' that are clear; labels given: expert"):
        measure_authority([talk("122")])
    with pytest.raises(UserError, match="labels given: none"):
        measure_authority([])
    report = measure_authority([talk("122111"), talk("122111", label="control")])
    with pytest.raises(UserError, match=r"no clear talks of 'exprt'.*Did you mean 'expert'"):
        report.effect("exprt")
    with pytest.raises(UserError, match="got 1 starts of up to 11 seats"):
        panel_win_probability(PLAIN, [PanelStart(11, 1, 0, (True,) * 11)])
