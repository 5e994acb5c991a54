"""Views, acts and turns are made in haste by the engine, and are still what their constructors make."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace
from typing import Any

import pytest

from rolecraft._run import derive_seed
from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import Act, Message, MessageLog, Receipt, Rules, Table, Turn, View, World, play, play_all
from rolecraft.worlds._decision import new_view
from rolecraft.worlds._episode import OpenTurn
from rolecraft.worlds._open import open_form

OWN = [Turn(step, "Ann", "see", f"do {step}") for step in range(5)]


def deferred(recall: int = 2, own: list[Turn] | None = None) -> View:
    return new_view("Ann", "see", ("a", "b"), "pirate", {"tell": "x"}, (7, 5, 0, recall), OWN if own is None else own)


def written() -> View:
    seed = derive_seed(7, "Ann", 5, 0)
    return View("Ann", "see", ("a", "b"), seed, (), "pirate", (OWN[3], OWN[4]), {"tell": "x"})


def closed() -> Turn:
    turn = OpenTurn(3, "Ann", "see", "a", ("a", "b"), notes={"tokens": 2})
    turn.before, turn.after = "x", "y"
    turn.__class__ = Turn
    return turn  # type: ignore[no-any-return]


COMPLETE = Turn(3, "Ann", "see", "a", ("a", "b"), (Receipt("a", True),), False, "x", "y", {"tokens": 2})
PAIRS = [
    pytest.param(deferred, written(), id="view"),
    pytest.param(closed, COMPLETE, id="turn"),
    pytest.param(lambda: Act.each(["go"])[0], Act("go"), id="act"),
]


@pytest.mark.parametrize(("make", "expected"), PAIRS)
class TestAQuicklyMadeRecord:
    def test_is_what_its_constructor_makes(self, make: Callable[[], Any], expected: Any) -> None:
        assert type(make()) is type(expected)
        assert make() == expected
        assert repr(make()) == repr(expected)
        assert asdict(make()) == asdict(expected)
        for one in fields(expected):
            assert getattr(make(), one.name) == getattr(expected, one.name)

    def test_survives_copies(self, make: Callable[[], Any], expected: Any) -> None:
        for again in (pickle.loads(pickle.dumps(make())), copy.copy(make()), copy.deepcopy(make()), replace(make())):
            assert again == expected

    def test_cannot_be_changed(self, make: Callable[[], Any], expected: Any) -> None:
        record = make()
        for one in fields(expected):
            with pytest.raises(FrozenInstanceError):
                setattr(record, one.name, None)
        assert record == expected

    def test_has_no_other_names(self, make: Callable[[], Any], expected: Any) -> None:
        with pytest.raises(AttributeError, match="recipts"):
            _ = make().recipts


def test_only_forms_of_the_same_fields_can_be_closed() -> None:
    @dataclass(frozen=True, slots=True)
    class Other:
        step: int

    with pytest.raises(TypeError, match="layout differs"):
        OpenTurn(0, "Ann", "", "").__class__ = Other
    with pytest.raises(TypeError, match="missing"):
        open_form(Other)()
    one, two = open_form(Act)("a"), open_form(Act)("b")
    assert one.notes == {}
    assert one.notes is not two.notes


@pytest.mark.parametrize("recall", [0, 1, 5, 9])
def test_the_history_of_a_view_is_that_of_its_moment_however_late_it_is_read(recall: int) -> None:
    own = OWN[:3]
    view = deferred(recall, own)
    own += OWN[3:]
    assert view.history == tuple(OWN[max(0, 3 - recall) : 3])
    assert [view.history, view.seed] == [view.history, derive_seed(7, "Ann", 5, 0)]


@pytest.mark.parametrize("repairs", [0, 2])
def test_seeds_and_histories_of_a_whole_episode_follow_from_its_parts(pennies: World, repairs: int) -> None:
    views: list[View] = []

    def choose(view: View) -> str:
        views.append(view)
        return "edge" if view.agent == "even" and len(view.refused) < 2 else str(view.legal[0])  # type: ignore[index]

    episode = play(pennies, dict.fromkeys(pennies.agents, ScriptedPolicy(choose)), 4, repairs=repairs, recall=1)
    for view in views:  # read when all is over
        earlier = [turn for turn in episode.of(view.agent) if turn.before and turn not in view.history]
        step = view.history[-1].step + 1 if view.history else 0
        assert view.seed == derive_seed(4, view.agent, step, len(view.refused))
        assert len(view.history) == (step > 0)
        assert all(turn.step != step - 1 for turn in earlier)
    assert any(turn.fallback for turn in episode.turns) == (repairs == 0)


def test_a_first_attempt_that_is_accepted_has_its_receipt_also_in_json(pennies: World) -> None:
    episode = play(pennies, dict.fromkeys(pennies.agents, RandomPolicy()), 5)
    for turn in episode.turns:
        assert turn.receipts == (Receipt(turn.action, True),)
        assert Turn.from_row(json.loads(json.dumps(asdict(turn)))) == turn


class Strict(World):
    """Refuses more than `legal` tells; counts what it is asked."""

    name = "strict"
    agents = ("a", "b")

    def reset(self, seed: int) -> None:
        self.said: list[Mapping[str, str]] = []

    @property
    def acting(self) -> tuple[str, ...]:
        return self.agents if len(self.said) < 2 else ()

    def observe(self, agent: str) -> str:
        return ""

    def legal(self, agent: str) -> None:
        return None

    def check(self, agent: str, action: str) -> None:
        if action == "bad":
            raise IllegalActionError("strict: bad.")

    def state(self) -> Mapping[str, Any]:
        return {"said": self.said}

    def rewards(self) -> Mapping[str, float]:
        return dict.fromkeys(self.agents, 0.0)

    def _apply(self, actions: Mapping[str, str]) -> None:
        self.said.append(dict(actions))


def test_a_worlds_own_check_is_asked_although_any_text_is_legal() -> None:
    world = Strict()
    policy = ScriptedPolicy(lambda view: "good" if view.refused else "bad")
    episode = play(world, dict.fromkeys(world.agents, policy), 0)
    assert [turn.action for turn in episode.turns] == ["good"] * 4
    assert [[receipt.accepted for receipt in turn.receipts] for turn in episode.turns] == [[False, True]] * 4


def test_a_world_that_acts_in_its_own_way_is_let_to() -> None:
    class Loud(Strict):
        def act(self, actions: Mapping[str, str]) -> None:
            super().act({agent: text.upper() for agent, text in actions.items()})

    world = Loud()
    play(world, dict.fromkeys(world.agents, ScriptedPolicy(lambda view: "hm")), 0)
    assert world.said == [{"a": "HM", "b": "HM"}] * 2


def test_notes_that_say_failed_end_an_episode_as_an_act_that_failed_does() -> None:
    class Noting:
        def act(self, views: Sequence[View]) -> list[Act]:
            return [Act("x", {"failed": "so it says"}) for _ in views]

    world = Strict()
    episode = play(world, dict.fromkeys(world.agents, Noting()), 0)
    assert (episode.ended, len(episode.turns), world.said) == ("failed", 2, [])


class Naming:
    """Answers with its own name and whom it answers for."""

    def __init__(self, name: str, short: int = 0) -> None:
        self.name, self.short = name, short

    def act(self, views: Sequence[View]) -> list[Act]:
        return [Act(f"{self.name} {view.agent} {view.role}") for view in views[: len(views) - self.short]]


def test_answers_go_to_those_that_were_asked_whoever_shares_a_policy() -> None:
    class Crowd(Strict):
        agents = ("a", "b", "c", "d")

    first, second = Naming("first"), Naming("second")
    mixed = {"a": first, "b": second, "c": first, "d": first}
    alone = dict.fromkeys(Crowd.agents, second)
    tables = [Table(Crowd(), given, 1, {"a": f"role {place}"}) for place, given in enumerate((mixed, alone, mixed))]
    for place, episode in enumerate(play_all(tables, Rules())):
        for turn in episode.turns:
            name = "second" if place == 1 or turn.agent == "b" else "first"
            role = f"role {place}" if turn.agent == "a" else None
            assert turn.action == f"{name} {turn.agent} {role}"
        assert [turn.agent for turn in episode.turns] == list(Crowd.agents) * 2
    tables[1].policies = {**alone, "d": Naming("third", short=1)}
    with pytest.raises(UserError, match="policy of d returned 0 actions for 1 views"):
        play_all(tables)


def test_what_is_said_to_all_is_appended_message_by_message() -> None:
    quick, slow = MessageLog(), MessageLog()
    quick.say(3, {"Ann": "one", "Ben": ""})
    for agent, text in {"Ann": "one", "Ben": ""}.items():
        slow.append(Message(3, agent, text))
    assert list(quick) == list(slow)
    assert list(reversed(quick)) == list(slow)[::-1]
    assert quick.rows() == slow.rows() == [asdict(one) | {"to": []} for one in slow]
    with pytest.raises(FrozenInstanceError):
        quick[0].text = "other"
