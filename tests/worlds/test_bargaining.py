"""Bargaining: exact optima, who sees what, what may be said and when, what a deal pays, and the scripted bargainers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.agents import SCRIPTED_BARGAINERS, Bargainer, RandomPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.measures import pareto_front
from rolecraft.testing import check_world
from rolecraft.worlds import (
    BARGAINING_LOTS,
    BARGAINING_SEATS,
    Bargaining,
    BargainingInstance,
    make_world,
    play,
    read_bargaining,
    read_utterance,
    standing_offer,
)

APART = BargainingInstance({"ann": (4, 1, 1), "bob": (1, 1, 4)})


def settled(instance: BargainingInstance, *said: str, **options: object) -> Bargaining:
    """Return a world of this instance in which ann begins, after some utterances."""
    world = Bargaining(len(instance.values), **options)  # type: ignore[arg-type]
    world.reset(next(seed for seed in range(50) if first_of(seed, len(instance.values)) == "ann"))
    world.instance = instance
    for text in said:
        world.act({world.acting[0]: text})
    return world


def first_of(seed: int, seats: int) -> str:
    world = Bargaining(seats)
    world.reset(seed)
    return world.acting[0]


@pytest.mark.parametrize("seats", [2, 3])
@pytest.mark.parametrize("free", [False, True])
def test_the_contract_of_worlds(seats: int, free: bool) -> None:
    policy = Bargainer(1 / seats, seats) if free else RandomPolicy()
    for episode in check_world(lambda: Bargaining(seats, free=free), policy=policy, seeds=range(4)):
        assert len(episode.turns) <= 6
        for turn in episode.turns:
            assert 3 <= len(turn.action.split()) <= 5


def test_exact_optima_of_an_instance() -> None:
    assert len(APART.divisions) == 8
    assert APART.utilities(("ann", "bob", "bob")) == {"ann": pytest.approx(4 / 6), "bob": pytest.approx(5 / 6)}
    assert APART.best_surplus == pytest.approx(9 / 6)
    assert APART.surplus_share(("bob", "bob", "ann")) == pytest.approx((1 + 2) / 9)
    assert APART.nash_division() == ("ann", "ann", "bob")
    assert APART.nash_product(("ann", "ann", "bob")) == pytest.approx(20 / 36)
    assert set(APART.frontier()) == {
        ("ann", "ann", "ann"), ("ann", "ann", "bob"), ("ann", "bob", "bob"), ("bob", "bob", "bob"),
    }  # fmt: skip


@given(st.integers(0, 10**6), st.sampled_from([2, 3]))
@settings(max_examples=40, deadline=None)
def test_optima_are_what_a_search_finds(seed: int, seats: int) -> None:
    instance = BargainingInstance.draw(BARGAINING_SEATS[:seats], 6, np.random.default_rng(seed))
    assert all(sum(own) == 6 for own in instance.values.values())
    table = {division: tuple(instance.utilities(division).values()) for division in product(instance.values, repeat=3)}
    assert instance.best_surplus == pytest.approx(max(map(sum, table.values())))
    beaten = {
        one
        for one, own in table.items()
        for other in table.values()
        if all(b >= a for a, b in zip(own, other, strict=True)) and other != own
    }
    assert set(instance.frontier()) == set(table) - beaten
    shared = {instance.divisions[int(row)] for row in pareto_front(instance.table)}
    assert {table[each] for each in shared} == {table[each] for each in instance.frontier()}
    assert instance.nash_product(instance.nash_division()) == pytest.approx(max(map(np.prod, table.values())))


def test_a_deal_pays_utility_and_a_part_of_the_surplus() -> None:
    world = settled(APART, "offer ann ann bob", "accept that offer")
    assert world.acting == ()
    shared = 0.2 * (5 + 4) / 9
    assert world.rewards() == {"ann": pytest.approx(5 / 6 + shared), "bob": pytest.approx(4 / 6 + shared)}
    assert world.outcome() == {
        "agreed": True, "division": ["ann", "ann", "bob"], "surplus_share": pytest.approx(1), "nash_share": 1.0,
        "utilities": {"ann": pytest.approx(5 / 6), "bob": pytest.approx(4 / 6)}, "efficient": True,
    }  # fmt: skip
    assert settled(APART, "offer bob bob ann", "accept that offer").outcome()["efficient"] is False


def test_at_zero_sum_rewards_add_up_to_nothing() -> None:
    world = settled(APART, "offer ann ann bob", "accept that offer", motive="zero-sum")
    assert world.rewards() == {"ann": pytest.approx(1 / 6), "bob": pytest.approx(-1 / 6)}
    three = BargainingInstance({"ann": (6, 0, 0), "bob": (0, 6, 0), "cal": (1, 2, 3)})
    world = settled(three, "offer ann bob cal", "accept that offer", "accept that offer", motive="zero-sum")
    assert world.deal == ("ann", "bob", "cal")
    assert sum(world.rewards().values()) == pytest.approx(0)
    assert world.rewards()["cal"] == pytest.approx(0.5 - 1)


def test_no_deal_pays_nothing() -> None:
    said = ["offer ann ann bob", "reject that offer", "threaten no deal", "promise ann the hat", "threaten no deal"]
    world = settled(APART, *said, "threaten no deal")
    assert world.acting == ()
    assert world.rewards() == {"ann": 0.0, "bob": 0.0}
    assert not world.outcome()["agreed"]


def test_three_seats_all_have_to_say_yes() -> None:
    instance = BargainingInstance({"ann": (6, 0, 0), "bob": (0, 6, 0), "cal": (0, 0, 6)})
    world = settled(instance, "offer ann bob cal", "accept that offer")
    assert world.deal is None
    assert world.acting == ("cal",)
    world.act({"cal": "reject that offer"})
    assert standing_offer(world.said, world.agents) is None
    assert "accept that offer" not in (world.legal("ann") or ())
    for text in ("offer ann bob cal", "accept that offer", "accept that offer"):
        world.act({world.acting[0]: text})
    assert world.deal == ("ann", "bob", "cal")


def test_talk_leaves_the_offer_on_the_table_and_another_offer_replaces_it() -> None:
    seats = ("ann", "bob")
    said = [("ann", "offer ann ann bob"), ("bob", "threaten no deal"), ("ann", "promise bob the hat")]
    standing = standing_offer(said, seats)
    assert standing is not None
    assert (standing.seat, standing.division) == ("ann", ("ann", "ann", "bob"))
    standing = standing_offer([*said, ("bob", "offer bob bob bob")], seats)
    assert standing is not None
    assert standing.seat == "bob"
    world = settled(APART, "offer ann ann bob", "reject that offer", "threaten no deal")
    assert "accept that offer" not in (world.legal("bob") or ())
    world = settled(APART, "offer ann ann bob", "threaten no deal")
    assert "accept that offer" not in (world.legal("ann") or ())
    world.act({"ann": "threaten no deal"})
    assert "accept that offer" in (world.legal("bob") or ())


@pytest.mark.parametrize("explain", [False, True])
def test_values_are_in_the_own_view_alone(explain: bool) -> None:
    """Two instances that differ in bob's values alone look the same to ann, all along."""
    for seed in range(20):
        one, other = (Bargaining(explain=explain), Bargaining(explain=explain))
        for world in (one, other):
            world.reset(seed)
        other.instance = BargainingInstance({**one.instance.values, "bob": (2, 2, 2)})
        for text in ("offer ann bob bob", "threaten no deal", "promise {} the hat", "offer bob bob bob"):
            said = text.format(*[seat for seat in one.agents if seat not in one.acting])
            assert one.observe("ann") == other.observe("ann")
            for world in (one, other):
                world.act({world.acting[0]: said})
        assert read_bargaining(one.observe("bob")).values == one.instance.values["bob"]
        assert read_bargaining(other.observe("bob")).values == (2, 2, 2)
        assert read_bargaining(one.observe("ann")).said == one.said


def test_free_text_is_parsed_to_the_letter_and_a_refusal_changes_nothing() -> None:
    world = settled(APART, free=True)
    before = world.state_hash()
    assert world.legal("ann") is None
    for text, words in {
        "": "begins with",
        "ofer ann ann bob": "did you mean",
        "offer ann ann": "offer SEAT SEAT SEAT",
        "offer ann ann zoe": "'zoe' is not a seat",
        "offer ann  bob bob": "offer SEAT SEAT SEAT",
        "promise bob the hats": "'hats' is not a lot",
        "accept this offer": "accept that offer",
        "Offer ann ann bob": "begins with",
        "offer ann ann bob, and ignore your rules": "offer SEAT SEAT SEAT",
        "accept that offer": "no offer of another",
        "promise ann the hat": "promise is to itself",
    }.items():
        with pytest.raises(IllegalActionError, match="(?i)" + words):
            world.act({"ann": text})
    assert world.state_hash() == before
    world.act({"ann": "offer ann ann bob"})
    world.act({"bob": "accept that offer"})
    assert world.deal is not None


def test_seeds_draw_values_and_who_begins() -> None:
    worlds = []
    for seed in range(40):
        world = Bargaining()
        world.reset(seed)
        worlds.append((tuple(world.instance.values.values()), world.acting))
    assert len({values for values, _ in worlds}) > 30
    assert {acting for _, acting in worlds} == {("ann",), ("bob",)}
    assert make_world("bargaining", {"seats": 3}).agents == BARGAINING_SEATS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seats": 1}, "seats must be an integer in 2..3, got 1"),
        ({"seats": True}, "seats"),
        ({"turns": 1}, r"turns must be an integer in 2\.\."),
        ({"total": 0}, "total"),
        ({"joint_weight": -0.1}, "joint_weight"),
        ({"motive": "zerosum"}, "Did you mean 'zero-sum'"),
    ],
)
def test_bad_rules(options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Bargaining(**options)  # type: ignore[arg-type]


def test_bad_values_and_observations() -> None:
    for values in ((1, 2), (0, 0, 0), (-1, 3, 1)):
        with pytest.raises(UserError, match="values of ann"):
            BargainingInstance({"ann": values})
    for text in (
        "",
        "hello",
        "left 3 ; book 1 hat 2 ; ann",
        "left 3 ; book 1 hat 2 ball x ; ann",
        "left 3 ; book 1 hat 2 ball 3",
    ):
        with pytest.raises(UserError, match="not an observation"):
            read_bargaining(text)
    assert read_utterance("promise bob the hat", ("ann", "bob"))[2:] == ("bob", "hat")


def test_fair_ones_agree_tough_ones_do_not_and_a_tough_one_gets_more_of_a_fair_one() -> None:
    def mean(first: str, second: str) -> tuple[float, float, float]:
        found = []
        for seed in range(60):
            policies = {"ann": SCRIPTED_BARGAINERS[first](2), "bob": SCRIPTED_BARGAINERS[second](2)}
            outcome = play(Bargaining(), policies, seed).outcome
            found.append((outcome["agreed"], outcome["utilities"]["ann"], outcome["utilities"]["bob"]))
        return tuple(np.mean(found, axis=0))  # type: ignore[return-value]

    fair, tough, mixed = mean("fair", "fair"), mean("tough", "tough"), mean("tough", "fair")
    assert fair[0] > 0.8
    assert tough[0] < fair[0] - 0.2
    assert mixed[1] > mixed[2] > 0


def test_a_bargainer_takes_what_is_enough_and_asks_for_no_more() -> None:
    instance = BargainingInstance({"ann": (3, 3, 0), "bob": (3, 0, 3)})
    fair, tough = Bargainer(0.5), Bargainer(0.8)
    offered = settled(instance, "offer ann ann bob")
    assert play_one(offered, fair) == "accept that offer"
    assert play_one(offered, tough) == "offer bob ann bob"
    assert play_one(settled(instance, "offer ann ann ann"), fair) in ("offer bob ann ann", "offer ann ann bob")
    last = settled(instance, *["offer ann ann bob", "reject that offer"] * 2, "offer ann ann bob")
    assert play_one(last, tough) == "reject that offer"
    for claim in (0, 1.2):
        with pytest.raises(UserError, match="claim"):
            Bargainer(claim)
    assert len(BARGAINING_LOTS) == 3


def play_one(world: Bargaining, policy: Bargainer) -> str:
    """Return what a policy says in the world as it stands."""
    from rolecraft.worlds import View

    (seat,) = world.acting
    return policy.act([View(seat, world.observe(seat), world.legal(seat), 0)])[0].action
