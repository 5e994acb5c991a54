import pytest

from rolecraft.agents import (
    Argument,
    Call,
    CallRules,
    Tool,
    ToolChooser,
    ToolRegistry,
    execute,
    parse_calls,
    value_spans,
)
from rolecraft.errors import UserError
from rolecraft.models import chat, choose
from rolecraft.testing import ScriptedModel


def fail(item):
    raise KeyError(item)


REGISTRY = ToolRegistry(
    [
        Tool(
            "price",
            "what an item costs",
            {"item": Argument("string", values=("iron sword", "oak bow"))},
            lambda item: 7,
        ),
        Tool("order", "state of an order", {"number": Argument("integer"), "note": Argument("string", required=False)}),
        Tool("break", "fails", {"item": Argument("string")}, fail),
        Tool("hours", "when it is open"),
    ]
)
RULES = CallRules(REGISTRY)


def kinds(checked):
    return [violation.kind for violation in checked.violations]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([Tool("a", "x"), Tool("a", "y")], "'a' is defined twice"),
        ([Tool("a", " ")], "'a' has no description"),
        ([Tool("", "x")], r"tools\[0\]"),
        ([Tool("a b", "x")], "must be an identifier"),
        ([Tool("a", "x", {"n": Argument("int")})], "argument 'n' has type 'int'; expected one of string"),
    ],
)
def test_a_registry_refuses_faulty_tools(tools, message):
    with pytest.raises(UserError, match=message):
        ToolRegistry(tools)


def test_execution_drops_unknown_names_and_turns_exceptions_into_errors():
    results, dropped = execute(
        REGISTRY,
        [Call("price", {"item": "x"}), Call("fly"), Call("break", {"item": "cup"}), Call("hours"), Call("price")],
    )
    assert dropped == [Call("fly")]
    assert results[0].value == 7
    assert results[0].text == "price(item=x) -> 7"
    assert results[1].error == "KeyError: 'cup'"
    assert "error: KeyError" in results[1].text
    assert "cannot be executed" in results[2].error
    assert results[3].error.startswith("TypeError")


@pytest.mark.parametrize(
    ("reply", "calls", "error"),
    [
        ("Nothing to do.", [], ""),
        ('Sure: {"name": "price", "parameters": {"item": "oak bow"}} done.', [Call("price", {"item": "oak bow"})], ""),
        (
            '```json\n[{"name": "hours"}, {"tool": "order", "args": {"number": 3}}]\n```',
            [Call("hours"), Call("order", {"number": 3})],
            "",
        ),
        ('{"function": {"name": "price", "arguments": "{\\"item\\": \\"x\\"}"}}', [Call("price", {"item": "x"})], ""),
        ('{"name": "hours", "parameters": ""}', [Call("hours")], ""),
        ('{"name": "price", "parameters": {"item": "oa', [], "not valid JSON"),
        ('[{"name": "hours"}, {"name": "pri', [Call("hours")], "not valid JSON"),
        ('{"name": "price", "parameters": "oak bow"}', [], "arguments of 'price' are not valid JSON"),
        ('{"name": "price", "parameters": [1]}', [], "must be an object, got list"),
        ('{"parameters": {}}', [], "needs a name"),
        ("[" * 5000, [], ""),
    ],
)  # fmt: skip
def test_calls_are_read_tolerantly(reply, calls, error):
    parsed = parse_calls(reply)
    assert parsed.calls == calls
    assert error in parsed.error
    assert bool(parsed.error) == bool(error)


def test_a_right_call_passes_untouched():
    call = Call("price", {"item": "iron sword"})
    checked = RULES.check([call], "What is the Iron Sword?")
    assert checked.calls == (call,)
    assert not checked.violations


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (Call("prices", {"item": "iron sword"}), "unknown-name"),
        (Call("price"), "schema"),
        (Call("price", {"item": "cannon"}), "schema"),
        (Call("price", {"item": "oak bow"}), "ungrounded"),
        (Call("order", {"number": 1}), "ungrounded"),  # 1 stands only inside 12
        (Call("order", {"number": "twelve"}), "schema"),
        (Call("order", {"number": True}), "schema"),
    ],
)
def test_wrong_calls_are_dropped_with_a_reason_worth_a_second_try(call, kind):
    checked = RULES.check([call], "the iron sword and order 12")
    assert not checked.calls
    assert kinds(checked) == [kind]
    assert checked.retry
    assert call.name in checked.violations[0].message


def test_the_nearest_name_is_suggested():
    assert "Did you mean 'price'?" in RULES.check([Call("prices")], "").violations[0].message


def test_repairs_are_made_and_told():
    checked = RULES.check([Call("order", {"number": "12", "colour": "red"})], "order 12")
    assert checked.calls == (Call("order", {"number": 12}),)
    assert kinds(checked) == ["unknown-argument", "schema"]
    assert all(violation.repaired for violation in checked.violations)
    assert not checked.retry


def test_the_same_call_twice_or_answered_before_is_dropped_without_a_second_try():
    call = Call("order", {"number": 12})
    twice = RULES.check([call, Call("order", {"number": "12"})], "order 12")
    assert twice.calls == (call,)
    assert kinds(twice)[-1] == "duplicate"
    known = RULES.check([call], "order 12", answered=[call])
    assert kinds(known) == ["already-answered"]
    assert not known.calls
    assert not known.retry


def test_a_loop_of_calls_is_cut():
    rules = CallRules(REGISTRY, most_calls=2)
    checked = rules.check([Call("order", {"number": n}) for n in (1, 2, 3, 4)], "orders 1 2 3 4")
    assert len(checked.calls) == 2
    assert kinds(checked) == ["too-many", "too-many"]


def test_values_may_be_freed_from_the_dialogue():
    call = Call("order", {"number": 9})
    assert CallRules(REGISTRY, grounded=False).check([call], "").calls == (call,)
    assert CallRules(REGISTRY, free=frozenset({"order.number"})).check([call], "").calls == (call,)


def test_spans_hold_what_was_said_and_one_value_that_was_not():
    assert value_spans(Argument("string"), "item", "How much is the iron sword?") == [
        "iron",
        "sword",
        "iron sword",
        "item",
    ]
    assert value_spans(Argument("integer"), "number", "Order 12, not x3.") == ["12", "1"]


def test_the_chooser_takes_the_models_name_and_fills_arguments_from_the_dialogue():
    asked = []

    def script(given, seed):
        asked.append(given[-1]["content"])
        if "value of item" in asked[-1]:
            return '"oak bow"'
        return {"m": "enchant", "w": "price", "h": "none"}.get(asked[-1][0], "well")

    chooser = ToolChooser(ScriptedModel(script), REGISTRY, chat("..."), decoys=("enchant",))
    said = ["what is the oak bow", "hello", "magic please"]
    chats = [chat(text) for text in said]
    expected = [[Call("price", {"item": "oak bow"})], [], [Call("enchant")]]
    assert chooser.choose(chats, chats, said) == expected
    count = len(asked)
    assert chooser.choose(chats, chats, said) == expected
    assert set(asked[count:]) == {"..."}  # the rest is answered from memory


def test_what_a_name_is_worth_by_itself_does_not_count():
    model = ScriptedModel(lambda *_: "hours")  # it would say `hours` in whatever chat
    assert choose(model, [chat("price price price")], [["none", "price", "hours"]]) == [2]
    told = ToolChooser(model, REGISTRY, chat("...")).choose([chat("price price price")], [chat("price")], ["price"])
    assert [call.name for call in told[0]] == ["price"]
