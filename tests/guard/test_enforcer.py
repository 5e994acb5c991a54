"""Enforcement: what is called, what is asked, what is on record, and that every failure blocks."""

from __future__ import annotations

import json
import threading
import time

import pytest

from rolecraft._run import RunStore
from rolecraft.agents import Argument, Call, Tool, ToolLoop, ToolRegistry, execute
from rolecraft.errors import UserError
from rolecraft.guard import (
    CallBlocked,
    Chain,
    Decision,
    DecisionLog,
    Enforcer,
    FunctionGuard,
    Guard,
    PolicyGuard,
    RunStopped,
    TimedGuard,
    ToolCall,
    guard_function,
    guard_registry,
    make_policy,
)
from tests.guard.conftest import call, guard_of

ALLOW = FunctionGuard(lambda *_: True, "yes")


def refuse(reason="no"):
    return FunctionGuard(lambda *_: reason, "no")


def test_the_first_guard_of_a_chain_that_refuses_decides():
    assert Chain([ALLOW, ALLOW]).decide("", call("t")).allowed
    assert Chain([ALLOW, refuse("first"), refuse("second")]).decide("", call("t")).reason == "first"
    assert Chain([]).decide("", call("t")).effect == "block"
    assert all(isinstance(guard, Guard) for guard in (ALLOW, Chain([]), TimedGuard(ALLOW, 1), guard_of({})))


@pytest.mark.parametrize("said", [None, 1, "yes", False, {"effect": "allow"}])
def test_anything_but_true_or_a_decision_blocks(said):
    assert not FunctionGuard(lambda *_: said).decide("", call("t")).allowed

    class Sloppy:
        def decide(self, principal, action, context=None):
            return said

    assert Chain([Sloppy()]).decide("", call("t")).effect == "block"


def test_a_guard_that_raises_blocks_and_the_reason_is_on_record():
    def broken(*_):
        raise KeyError("lost")

    enforcer = Enforcer(Chain([FunctionGuard(broken), ALLOW]))
    said = enforcer.check("r", call("t"))
    assert said.effect == "block"
    assert "KeyError" in enforcer.log.rows[0]["reason"]


def test_a_guard_that_is_too_slow_blocks():
    slow = TimedGuard(FunctionGuard(lambda *_: time.sleep(0.5) or True), 0.02)
    said = slow.decide("", call("t"))
    assert (said.effect, "0.02 s" in said.reason) == ("block", True)
    assert TimedGuard(ALLOW, 5).decide("", call("t")).allowed
    with pytest.raises(UserError, match="positive"):
        TimedGuard(ALLOW, 0)


def test_a_function_is_called_with_what_the_guard_saw():
    seen = []
    enforcer = Enforcer(guard_of({"pay": [{"when": {"amount": {"maximum": 5}, "to": {"items": {"const": "a"}}}}]}))

    def pay(to, amount=9):
        seen.append((to, amount))
        return "paid"

    guarded = guard_function(pay, enforcer, "clerk")
    to = ["a"]
    assert guarded(to, amount=5) == "paid"
    assert seen == [(["a"], 5)]
    assert seen[0][0] is not to, "the tool gets the copy that was checked"
    with pytest.raises(CallBlocked, match="9 does not meet maximum"):
        guarded(to)  # the default is checked like any other value
    with pytest.raises(CallBlocked, match="plain JSON"):
        guarded(to, amount=object())
    assert len(seen) == 1
    assert [row["effect"] for row in enforcer.log.rows] == ["allow", "block", "block"]
    with pytest.raises(UserError, match="positional"):
        guard_function(lambda *values: None, enforcer, "clerk", name="many")


def test_a_stop_ends_the_run():
    enforcer = Enforcer(guard_of({"t": [{"effect": "forbid", "fallback": "stop"}], "u": [{}]}))
    assert guard_function(lambda: 1, enforcer, "r", name="u")() == 1
    with pytest.raises(RunStopped):
        guard_function(lambda: 1, enforcer, "r", name="t")()
    with pytest.raises(CallBlocked, match="the run was ended"):
        guard_function(lambda: 1, enforcer, "r", name="u")()
    assert enforcer.stopped is not None


@pytest.mark.parametrize(
    ("approve", "effect", "part"),
    [
        (None, "block", "nobody can be asked"),
        (lambda *_: True, "allow", ""),
        (lambda *_: "yes", "block", "refused"),
        (lambda *_: False, "block", "refused"),
        (lambda *_: time.sleep(1) or True, "block", "no answer within 0.05 s"),
        (lambda *_: 1 / 0, "block", "no answer"),
    ],
)
def test_asking_and_silence(approve, effect, part):
    enforcer = Enforcer(guard_of({"t": [{"effect": "forbid", "fallback": "ask"}]}), approve=approve, patience=0.05)
    said = enforcer.check("r", call("t"))
    assert said.effect == effect
    assert part in said.reason
    assert enforcer.log.rows[0]["note"]


def test_the_log_says_all_and_reaches_a_file_and_a_run(tmp_path):
    guard = guard_of({"t": [{"when": {"n": {"maximum": 5}}}]})
    with RunStore.open(tmp_path / "run", "guard", {}) as store:
        enforcer = Enforcer(guard, DecisionLog(tmp_path / "log.jsonl", store))
        enforcer.check("clerk", call("t", n=1))
        enforcer.check("clerk", call("t", n="\ud800" * 900))
        enforcer.check("clerk", call("t", n="a" * 900))
        rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert list(store.rows("decisions").values()) == rows == enforcer.log.rows
    assert [row["effect"] for row in rows] == ["allow", "block", "block"]
    assert {"rule", "reason", "principal", "latency_us", "version", "tool", "time"} <= set(rows[0])
    assert rows[0]["version"] == guard.version
    assert 0 < rows[0]["latency_us"] < 1e6
    assert len(rows[2]["arguments"]["n"]) < 300
    quiet = DecisionLog(keep_arguments=False)
    quiet.add("r", call("t", secret=1), Decision("block", "", ""), 0.0)
    assert "arguments" not in quiet.rows[0]


def test_our_tool_registry_reports_blocked_calls_as_errors():
    made = []
    send = Tool("send", "Send.", {"to": Argument("string")}, lambda to: made.append(to) or "sent")
    enforcer = Enforcer(guard_of({"send": [{"when": {"to": {"enum": ["anna"]}}}]}))
    registry = guard_registry(ToolRegistry([send]), enforcer, "clerk")
    results, _ = execute(registry, [Call("send", {"to": "anna"}), Call("send", {"to": "eve"})])
    assert [result.value for result in results] == ["sent", None]
    assert "'eve' does not meet enum" in results[1].error
    assert made == ["anna"]


def test_an_agents_tool_loop_is_told_what_was_blocked():
    price = Tool("price", "Tell a price.", {"item": Argument("string")}, lambda item: 7)
    enforcer = Enforcer(guard_of({"price": [{"when": {"item": "sword|bow"}}]}))
    turn = ToolLoop(guard_registry(ToolRegistry([price]), enforcer, "clerk")).begin(None)
    calls = [{"name": "price", "arguments": {"item": item}} for item in ("sword", "crown")]
    shown = turn.run(turn.read(f"<call>{json.dumps(calls)}</call>"))
    assert "price(item=sword) -> 7" in shown
    assert "price was blocked by default" in shown
    assert [record.get("failed", False) for record in turn.records] == [False, True]


def test_decision_and_call_are_one_step():
    """A change of policy waits for the call; the call after it meets the new policy."""
    guard = guard_of({"t": [{}]})
    enforcer = Enforcer(Chain([guard, ALLOW]))
    inside, go, order = threading.Event(), threading.Event(), []

    def tool():
        inside.set()
        go.wait(5)
        order.append("called")

    thread = threading.Thread(target=lambda: enforcer.call("r", call("t"), tool))
    thread.start()
    inside.wait(5)
    change = threading.Thread(target=lambda: (guard.replace(make_policy({})), order.append("replaced")))
    change.start()
    time.sleep(0.05)
    assert order == []
    go.set()
    thread.join(5)
    change.join(5)
    assert order == ["called", "replaced"]
    assert not enforcer.call("r", call("t"), tool).decision.allowed


def test_a_tool_may_use_a_guarded_tool():
    enforcer = Enforcer(guard_of({"outer": [{}], "inner": [{}]}))
    inner = guard_function(lambda: 3, enforcer, "r", name="inner")
    assert guard_function(lambda: inner() + 1, enforcer, "r", name="outer")() == 4


def test_what_a_tool_raises_is_raised():
    enforcer = Enforcer(guard_of({"t": [{}]}))
    with pytest.raises(ZeroDivisionError):
        enforcer.call("r", ToolCall("t", {}), lambda: 1 / 0)
    assert isinstance(enforcer.guard, PolicyGuard)
    enforcer.guard.replace(make_policy({}), timeout=0.1)  # the call is over, though it failed
    with pytest.raises(UserError, match="patience"):
        Enforcer(ALLOW, patience=0)
