"""Policies that change seats: who sits where, that training goes on exactly, and what is refused."""

from __future__ import annotations

import warnings

import pytest
import torch

from rolecraft.errors import UserError
from rolecraft.learning import NoExchangeWarning, RoleExchange
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import WordCodec, tiny_policy
from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer
from tests.learning.trainer.small_worlds import Pick

SEATS = ("ann", "bob")


def policy(words=("red", "green", "blue", "light", "ann", "bob"), **options):
    return tiny_policy(WordCodec(words), hidden=16, heads=2, max_tokens=3, **options)


def trainer(policies=None, iterations=8, **fields):
    made = policies or {"one": policy(seed=1), "two": policy(seed=2)}
    config = TrainConfig(iterations=iterations, episodes=8, monitor=MonitorConfig(action="off"), **fields)
    return Trainer(lambda: Pick(SEATS), made, make_rule("grpo"), config, seed=3)


def weights(made):
    return {f"{n}/{k}": v.detach().clone() for n, p in made.policies.items() for k, v in p.parameters().items()}


def test_who_sits_where():
    two = RoleExchange(("pioneer", "observer"), ("one", "two"), 5)
    pioneers = [two.seated(n)["pioneer"] for n in range(20)]
    assert pioneers == ["one"] * 5 + ["two"] * 5 + ["one"] * 5 + ["two"] * 5
    assert all(set(two.seated(n).values()) == {"one", "two"} for n in range(20))
    assert [n for n in range(20) if two.begins(n)] == [5, 10, 15]
    three = RoleExchange(("a", "b", "c"), ("x", "y", "z"), 1)
    assert [three.seated(n)["a"] for n in range(4)] == ["x", "z", "y", "x"]
    assert [three.seated(n)["b"] for n in range(4)] == ["y", "x", "z", "y"]  # x has moved from a to b
    never = RoleExchange(SEATS, ("one", "two"), None)
    assert never.seated(1000) == {"ann": "one", "bob": "two"}
    assert not any(never.begins(n) for n in range(20))
    alone = RoleExchange(("a",), ("x",), 2)
    assert not any(alone.begins(n) for n in range(20))


def test_seats_change_between_iterations_and_never_within_one():
    made, exchange = trainer(), RoleExchange(SEATS, ("one", "two"), 2)
    exchange.bind(made)
    for number in range(6):
        done = exchange.step(made)
        seated = {(turn.agent, turn.notes["policy"]) for episode in done.episodes for turn in episode.turns}
        assert seated == set(exchange.seated(number).items())


@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("at", [3, 4])
def test_going_on_from_a_checkpoint_keeps_everyone_in_place(tmp_path, rebuild, at):
    """Also where the checkpoint was written just before an exchange."""
    exchange = RoleExchange(SEATS, ("one", "two"), 2, rebuild=rebuild)
    whole, broken, resumed = trainer(), trainer(), trainer()
    for each in (whole, broken, resumed):
        exchange.bind(each)
    figures = [exchange.step(whole).figures for _ in range(7)]
    for _ in range(at):
        exchange.step(broken)
    broken.save(tmp_path / "part")
    resumed.load(tmp_path / "part")
    assert [exchange.step(resumed).figures for _ in range(7 - at)] == figures[at:]
    one, other = weights(whole), weights(resumed)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("rebuild", "steps"), [(False, [1, 2, 3, 4, 5]), (True, [1, 2, 1, 2, 1])])
def test_optimisers_begin_anew_at_an_exchange_where_asked(rebuild, steps):
    made, exchange = trainer(), RoleExchange(SEATS, ("one", "two"), 2, rebuild=rebuild)
    exchange.bind(made)
    found = []
    for _ in range(5):
        exchange.step(made)
        states = [state for optimiser in made.optimisers.values() for state in optimiser.state.values()]
        assert len({float(state["step"]) for state in states}) == 1
        found.append(float(states[0]["step"]))
    assert found == steps


def test_bad_input():
    for seats, names in ((("a", "b"), ("x",)), ((), ())):
        with pytest.raises(UserError, match="one policy per seat"):
            RoleExchange(seats, names)
    with pytest.raises(UserError, match="policy stands twice"):
        RoleExchange(SEATS, ("one", "one"))
    with pytest.raises(UserError, match="seat stands twice"):
        RoleExchange(("ann", "ann"), ("one", "two"))
    with pytest.raises(UserError, match="at least 1"):
        RoleExchange(SEATS, ("one", "two"), 0)
    exchange = RoleExchange(SEATS, ("one", "two"), 2)
    with pytest.raises(UserError, match=r"policies are one, other, expected one, two"):
        exchange.bind(trainer({"one": policy(), "other": policy()}))
    with pytest.raises(UserError, match=r"policy 'two' .* vocabulary"):
        exchange.bind(trainer({"one": policy(), "two": policy(("red", "green", "ann", "bob"))}))
    with pytest.raises(UserError, match=r"policy 'two': .* critic"):
        exchange.bind(trainer({"one": policy(), "two": policy(critic=True)}))
    made = trainer()
    RoleExchange(("ann", "eve"), ("one", "two"), 2).bind(made)
    with pytest.raises(UserError, match="no seat for agent 'bob'"):
        made.step()


def test_an_exchange_that_never_happens_is_reported():
    for every, iterations, warned in ((8, 8, True), (9, 8, True), (7, 8, False), (None, 8, False)):
        exchange = RoleExchange(SEATS, ("one", "two"), every)
        if warned:
            with pytest.warns(NoExchangeWarning, match=f"every {every} iterations never happens in {iterations}"):
                exchange.bind(trainer(iterations=iterations))
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                exchange.bind(trainer(iterations=iterations))
