from collections import Counter

import pytest

from rolecraft.errors import UserError
from rolecraft.worlds import FUNCTIONS, WeaponShop, shop_turns
from rolecraft.worlds._weapon_shop import gold_reply


def test_shares_of_the_kinds_are_as_stated():
    counts = Counter(turn.kind for turn in shop_turns(60, 0))
    assert counts == {"call": 36, "tempting": 9, "answered": 9, "chat": 6}


def test_right_calls_name_functions_with_their_arguments_and_values_that_were_said():
    for turn in shop_turns(120, 1):
        assert bool(turn.gold_calls) == (turn.kind == "call")
        for name, given in turn.gold_calls:
            assert set(given) == set(FUNCTIONS[name][1])
            assert all(str(value) in turn.user for value in given.values())


def test_right_replies_follow_from_the_functions():
    shop = WeaponShop.stocked(2).functions()
    turns = [turn for turn in shop_turns(80, 2) if turn.gold_calls and turn.gold_calls[0][0] != "buy"]
    assert turns
    for turn in turns:
        [(name, given)] = turn.gold_calls
        assert turn.gold_reply == gold_reply(name, given, shop[name](**given))


def test_an_answered_question_has_its_answer_in_the_history():
    turns = [turn for turn in shop_turns(60, 3) if turn.kind == "answered"]
    assert all(turn.history[0][1] == turn.gold_reply and turn.answered and not turn.gold_calls for turn in turns)


def test_buying_changes_the_stock_and_has_limits():
    shop = WeaponShop.stocked(0)
    before = shop.left["iron sword"]
    assert shop.buy("iron sword", 2) == 2 * shop.prices["iron sword"]
    assert shop.left["iron sword"] == before - 2
    with pytest.raises(ValueError, match="asked for"):
        shop.buy("iron sword", 99)
    with pytest.raises(KeyError):
        shop.reserve("cannon")


def test_parts_differ_and_turns_repeat_by_seed():
    assert shop_turns(20, 0) == shop_turns(20, 0)
    ids = [turn.id for part in ("train", "validation", "test") for turn in shop_turns(20, 0, part)]
    assert len(set(ids)) == 60
    with pytest.raises(UserError, match="at least 20"):
        shop_turns(5, 0)
