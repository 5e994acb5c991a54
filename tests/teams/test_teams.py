"""Teams: who hears what, what a guard stops, and teams as files."""

from __future__ import annotations

import pytest

from rolecraft.errors import ModelError, UserError
from rolecraft.guard import Decision, Enforcer, FunctionGuard, ToolCall
from rolecraft.models import Completion
from rolecraft.roles import Role
from rolecraft.teams import (
    MESSAGE,
    USER,
    Edge,
    FunctionSpeaker,
    Member,
    ModelSpeaker,
    Team,
    Utterance,
    chain,
    load_team,
    make_team,
    pair,
    run_team,
    solo,
    view_chat,
)

A, B, C = Member("a", "You are a."), Member("b", "You are b."), Member("c", "You are c.")


class Recorder:
    """Says its name and turn, and keeps what it saw."""

    def __init__(self, calls=()):
        self.views, self.calls = [], calls

    def speak(self, view):
        self.views.append(view)
        return Utterance(f"{view.name}{view.turn}", tuple(self.calls))


def test_a_chain_passes_one_message_on_and_the_last_one_answers():
    seen = Recorder()
    run = run_team(chain([A, B, C], "Mission."), seen, "Do it.")
    assert [[(each.sender, each.text) for each in view.heard] for view in seen.views] == [
        [],
        [("a", "a0")],
        [("b", "b1")],
    ]
    assert [view.prompt for view in seen.views] == [f"Mission.\n\nYou are {name}." for name in "abc"]
    assert [event.to for event in run.messages] == [("b",), ("c",), (USER,)]
    assert (run.answer, run.stopped, len(run.events)) == ("c2", "", 3)


@pytest.mark.parametrize(("sees", "heard"), [("last", ["a2"]), ("all", ["a0", "a2"])])
def test_an_edge_shows_the_newest_message_or_all(sees, heard):
    seen = Recorder()
    run = run_team(pair(A, B, rounds=2, sees=sees), seen, "Do it.")
    assert [each.text for each in seen.views[3].heard] == heard
    assert all(each.sender != view.name for view in seen.views for each in view.heard)
    assert run.answer == "b3"


def test_only_the_briefed_are_told_the_task_and_seeds_differ_by_turn():
    seen = Recorder()
    run_team(Team((A, B), ("a", "b"), (Edge("a", "b"),), briefed=("a",)), seen, "Do it.", seed=5)
    assert [view.task for view in seen.views] == ["Do it.", ""]
    assert seen.views[0].seed != seen.views[1].seed
    assert {view.run_seed for view in seen.views} == {5}
    again = Recorder()
    run_team(chain([A, B]), again, "Do it.", seed=5)
    assert [view.seed for view in again.views] == [view.seed for view in seen.views]


def guard(check):
    return Enforcer(FunctionGuard(lambda principal, action, context: check(principal, action)))


def test_a_blocked_message_reaches_nobody_and_the_answer_is_watched_only_if_asked_for():
    seen = Recorder()
    keeper = guard(lambda principal, action: principal != "a")
    run = run_team(chain([A, B]), seen, "Do it.", guard=keeper)
    assert seen.views[1].heard == ()
    assert [event.member for event in run.blocked] == ["a"]
    assert run.answer == "b1"
    assert [row["principal"] for row in keeper.log.rows] == ["a"]
    assert run_team(solo(A), Recorder(), "x", guard=guard(lambda *_: False)).answer == "a0"
    assert run_team(solo(A), Recorder(), "x", guard=guard(lambda *_: False), watch_answer=True).answer is None


def test_a_guard_sees_the_message_and_may_end_the_run():
    actions = []

    def check(principal, action):
        actions.append((action.name, dict(action.arguments)))
        return Decision("stop", "rule", "enough")

    run = run_team(chain([A, B, C]), Recorder(), "Do it.", guard=guard(check))
    assert actions == [(MESSAGE, {"text": "a0", "to": ["b"]})]
    assert (run.stopped, len(run.messages), run.answer) == ("enough", 1, None)


def test_calls_are_carried_out_dry_or_blocked():
    wanted = (ToolCall("add", {"x": 2}), ToolCall("vault.open", {}))
    run = run_team(solo(A), Recorder(wanted), "x", tools={"add": lambda x: x + 1})
    assert [(event.call.name, event.value, event.allowed) for event in run.calls] == [
        ("add", 3, True),
        ("vault.open", None, True),
    ]
    done = []
    keeper = guard(lambda principal, action: action.name != "vault.open")
    tools = {"vault.open": lambda: done.append(1), "add": lambda x: x + 1}
    held = run_team(solo(A), Recorder(wanted), "x", guard=keeper, tools=tools)
    assert ([event.allowed for event in held.calls], done) == ([True, False], [])


def test_a_model_that_fails_ends_the_run_and_another_fault_is_raised():
    def fail(view):
        raise ModelError("the server is away")

    run = run_team(chain([A, B]), {"a": FunctionSpeaker(lambda view: "hello"), "b": FunctionSpeaker(fail)}, "x")
    assert run.stopped == "b: the server is away"
    assert [event.kind for event in run.events] == ["message", "failure"]
    assert (run.answer, run.blocked) == (None, ())
    with pytest.raises(ZeroDivisionError):
        run_team(solo(A), FunctionSpeaker(lambda view: str(1 / 0)), "x")
    with pytest.raises(UserError, match="nobody plays 'b'"):
        run_team(chain([A, B]), {"a": FunctionSpeaker(lambda view: "")}, "x")


def test_a_language_model_plays_a_member():
    class Model:
        name, chats = "fake", []

        def generate(self, chats, sampling, steering=None, seeds=None):
            self.chats += chats
            return [
                Completion("", "error", note="broken") if "a: boom" in chats[0][1]["content"] else Completion(" hi ")
            ]

    model = Model()
    run = run_team(chain([A, B], "M."), ModelSpeaker(model), "Do it.")
    assert run.answer == "hi"
    assert [message["content"] for message in model.chats[1]] == ["M.\n\nYou are b.", "Do it.\n\na: hi"]
    speakers = {"a": FunctionSpeaker(lambda view: "boom"), "b": ModelSpeaker(model)}
    assert "broken" in run_team(chain([A, B]), speakers, "x").stopped
    view = Recorder()
    run_team(Team((A,), ("a",), briefed=()), view, "x")
    assert view_chat(view.views[0])[1]["content"] == "Begin."


def test_a_role_becomes_a_member_and_texts_are_replaced():
    role = Role(id="poet", name="Poet", description="Writes.", boundaries=("Never rhyme.",))
    assert Member.of(role) == Member("poet", "Writes. Never rhyme.")
    assert Member.of(role.edited(instructions=("You write.",))).text == "You write. Never rhyme."
    team = chain([A, B], "M.")
    assert team.with_text("b", "new").prompt("b") == "M.\n\nnew"
    assert team.with_text("b", "new").prompt("a") == team.prompt("a")
    assert team.with_mission("").prompt("a") == "You are a."
    assert team.shared_texts() == ()
    assert team.with_text("b", A.text).shared_texts() == (("a", "b"),)


def test_teams_as_files(tmp_path):
    path = tmp_path / "team.yaml"
    path.write_text("mission: M.\nmembers:\n  a: You are a.\n  b: You are b.\nrounds: 3\n")
    assert load_team(path) == pair(A, B, "M.", rounds=3)
    texts = {"a": A.text, "b": B.text, "c": C.text}
    assert make_team({"members": texts}) == chain([A, B, C])
    assert make_team({"members": {"a": A.text}}) == solo(A)
    graph = {
        "members": texts,
        "topology": "graph",
        "order": ["c", "a"],
        "edges": [{"from": "c", "to": "a", "sees": "all"}],
    }
    assert make_team({**graph, "briefed": ["c"]}) == Team(
        (A, B, C), ("c", "a"), (Edge("c", "a", "all"),), briefed=("c",)
    )


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ([], "expected a mapping"),
        ({"members": {}}, "role text of each member"),
        ({"members": {"a": 1}}, "role text of each member"),
        ({"members": {"a": "x"}, "mision": "x"}, "Did you mean 'mission'"),
        ({"members": {"a": "x"}, "mission": 3}, "mission: expected a text"),
        ({"members": {"a": "x"}, "topology": "pear"}, "Did you mean 'pair'"),
        ({"members": {"a": "x"}, "topology": "pair"}, "a pair has 2 members, got 1"),
        ({"members": {"a": "x", "b": "y"}, "rounds": "two"}, "rounds: expected a whole number"),
        ({"members": {"a": "x", "b": "y"}, "rounds": 0}, "rounds must be at least 1"),
        ({"members": {"a": "x"}, "rounds": 2}, "rounds does not go with the topology 'solo'"),
        ({"members": {"a": "x"}, "topology": "graph"}, "order: expected a list"),
        ({"members": {"a": "x"}, "topology": "graph", "order": ["a"], "edges": 1}, "edges: expected a list"),
        ({"members": {"a": "x"}, "topology": "graph", "order": ["a"], "edges": [{"from": "a"}]}, "from, to"),
        ({"members": {"a": "x"}, "topology": "graph", "order": ["b"]}, "order: no member 'b'"),
        ({"members": {"a": "x"}, "briefed": ["b"]}, "briefed: no member 'b'"),
    ],
)
def test_bad_files(data, part):
    with pytest.raises(UserError, match=part):
        make_team(data, "team.yaml")


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: Team((), ()), "got none"),
        (lambda: Team((A, A), ("a",)), "two called 'a'"),
        (lambda: Team((A,), ()), "at least one member must speak"),
        (lambda: Team((A, B), ("a",), (Edge("a", "x"),)), "edges: no member 'x'"),
        (lambda: Edge("a", "a"), "joins two members"),
        (lambda: Edge("a", "b", "some"), "last or all"),
        (lambda: Member(" ", ""), "name must be some words"),
        (lambda: solo(A).member("b"), "no member 'b'"),
        (lambda: solo(A).with_text("b", ""), "no member 'b'"),
    ],
)
def test_bad_teams(make, part):
    with pytest.raises(UserError, match=part):
        make()
