"""Guard: microseconds of a decision on a policy of 50 rules, beside checks by the `jsonschema` package.

Two calls: one that the first rule decides, one that only the last does. Every rule restricts three arguments: an enum,
a number and a pattern. The peers walk the same rules: one hands every restriction to `jsonschema.validate`, as the
reference implementation of Progent does, the other keeps `jsonschema` validators ready.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from _entries import Entry
from rolecraft.guard import PolicyGuard, ToolCall, make_policy

RULES = 50
LIMITS = {"first": 10.0, "last": 60.0}
"""Microseconds that a decision may take, by the rule that decides."""


def rules() -> list[dict[str, Any]]:
    """Return the rules as they stand in a file."""
    return [
        {"priority": place + 1, "when": {
            "recipient": {"type": "string", "enum": [f"account-{place}", f"other-{place}"]},
            "amount": {"type": "number", "maximum": 100 + place},
            "url": {"type": "string", "pattern": f"^https://host-{place}\\.example/"},
        }}
        for place in range(RULES)
    ]  # fmt: skip


def call(place: int) -> dict[str, Any]:
    """Return arguments that one rule alone allows."""
    return {"recipient": f"account-{place}", "amount": 50, "url": f"https://host-{place}.example/x"}


def walk(checks: list[Mapping[str, Callable[[Any], bool]]], arguments: Mapping[str, Any]) -> bool:
    """Decide as the peers do: rule by rule, argument by argument."""
    return any(all(check(arguments[name]) for name, check in rule.items() if name in arguments) for rule in checks)


def peers() -> dict[str, list[Mapping[str, Callable[[Any], bool]]]]:
    """Return the checks of both peers."""
    import jsonschema

    def each_time(schema: Mapping[str, Any]) -> Callable[[Any], bool]:
        def check(value: Any) -> bool:
            try:
                jsonschema.validate(value, schema)
            except jsonschema.ValidationError:
                return False
            return True

        return check

    ready = jsonschema.Draft202012Validator
    return {
        "jsonschema each time": [{name: each_time(part) for name, part in rule["when"].items()} for rule in rules()],
        "jsonschema kept ready": [
            {name: ready(part).is_valid for name, part in rule["when"].items()} for rule in rules()
        ],
    }


def times(decide: Callable[[], Any], rounds: int) -> list[float]:
    """Return microseconds of single decisions."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        decide()
        found.append(1e6 * (time.perf_counter() - start))
    return found


def entries(quick: bool = False) -> list[Entry]:
    """Time both calls on the guard and on both peers, in turns; then the 99th of a hundred against its limit."""
    rounds, blocks = (200, 3) if quick else (2000, 7)
    guard = PolicyGuard(make_policy({"tools": {"pay": rules()}}))
    known = peers()
    found = []
    for which, place in (("first", 0), ("last", RULES - 1)):
        arguments = call(place)
        ask = ToolCall("pay", arguments)
        decide = lambda ask=ask: guard.decide("clerk", ask)  # noqa: E731
        assert decide().rule == f"pay[{place}]"
        assert all(walk(checks, arguments) for checks in known.values())
        ours = [times(decide, rounds) for _ in range(blocks)]
        late = [statistics.quantiles(block, n=100)[98] for block in ours]
        shape = f"{RULES} rules of three restrictions, the {which} decides"
        for name, checks in known.items():
            theirs = [
                statistics.median(times(lambda c=checks, a=arguments: walk(c, a), max(10, rounds // 40)))
                for _ in range(blocks)
            ]
            middle = [statistics.median(block) for block in ours]
            found.append(_entry(f"guard: {shape}, against {name}", middle, theirs, f"median of {rounds} decisions"))
        limit = [LIMITS[which]] * blocks
        found.append(_entry(f"guard: {shape}, 99th percentile", late, limit, "the peer is the limit that was set"))
        middle = [statistics.median(block) for block in ours]
        found.append(_entry(f"guard: {shape}, median", middle, limit, "the peer is the limit that was set"))
    return found


def _entry(name: str, ours: list[float], peer: list[float], conditions: str) -> Entry:
    from _entries import entry

    return entry(name, "us", ours, peer, f"{conditions}; {len(ours)} rounds in turns, one core")
