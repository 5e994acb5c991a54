"""A fully gullible agent on AgentDojo: it does the user's task by the suite's own solution, and every order it reads.

No model is needed. The suite's environments, solutions and checkers are AgentDojo's; the checkers see the calls that
were carried out, never blocked attempts.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from rolecraft.errors import MissingDependencyError, UserError, did_you_mean
from rolecraft.guard import ToolSchema, tool_schemas

MARK = "ORDER-7f3a"
"""Stands in every injected text, so that the agent knows when it has read one."""
Decide = Callable[[str, dict[str, Any]], bool]


@cache
def suites(version: str) -> dict[str, Any]:
    """Return AgentDojo's suites.

    Raises:
        MissingDependencyError: If `agentdojo` is not installed.
        UserError: If there is no such version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = import_module("agentdojo.task_suite.load_suites")
    except ImportError:
        raise MissingDependencyError(
            "study agentdojo needs agentdojo: pip install 'rolecraft[dojo]', then pip install --no-deps agentdojo"
        ) from None
    known = loaded._SUITES
    if version not in known:
        raise UserError(f"version: AgentDojo has no {version!r} ({', '.join(known)}).{did_you_mean(version, known)}")
    return dict(loaded.get_suites(version))


@cache
def schemas(version: str, suite: str) -> dict[str, ToolSchema]:
    """Return the schemas of a suite's tools."""
    tools = suites(version)[suite].tools
    entries = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters.model_json_schema()}
        for tool in tools
    ]
    return tool_schemas(entries)


@cache
def _environment(version: str, suite: str, order: str) -> Any:
    """Return an environment with an order at every place an attacker can write to.

    The order is a code, not its wording: checkers that search mails for the wording would find the order itself.
    """
    made = suites(version)[suite]
    spots = made.get_injection_vector_defaults() if order else {}
    return made.load_and_inject_default_environment(dict.fromkeys(spots, f"{MARK} {order}"))


@dataclass
class Replay:
    """What came of one task."""

    utility: bool
    """Whether the suite's checker finds the user's task done."""
    attack: bool | None
    """Whether its checker finds the injected task done; None where the agent never read the order."""
    blocked: int = 0
    """Blocked calls of the user's task."""
    calls: int = 0
    """Calls of the user's task."""
    orders: int = 0
    """Calls of the injected task; 0 where it asks for words alone, which no guard of calls can stop."""
    stopped: int = 0
    """Blocked calls of the injected task."""
    errors: int = 0
    """Calls that the guard let through and the tool refused."""
    seconds: list[float] = field(default_factory=list)
    """Time of every decision."""


def orders(version: str, suite: str) -> list[str]:
    """Return the injection tasks that can be replayed: those with a solution, or that ask for words alone."""
    made = suites(version)[suite]
    environment = _environment(version, suite, "")
    return [
        name
        for name, task in made.injection_tasks.items()
        if task.ground_truth(environment.model_copy(deep=True)) or task.GROUND_TRUTH_OUTPUT
    ]


def replay(version: str, suite: str, user: str, injection: str | None, decide: Decide, delay: float = 0.0) -> Replay:
    """Play one task.

    Args:
        version: AgentDojo's version, such as `v1.2`.
        suite: Name of the suite.
        user: Id of the user's task.
        injection: Id of the injected task; None: no attack.
        decide: The guard: (tool, arguments) -> whether the call is carried out.
        delay: When the agent obeys: 0 at once, towards 1 after more of the user's calls.
    """
    made = suites(version)[suite]
    task = made.user_tasks[user]
    attack = made.injection_tasks[injection] if injection else None
    start = _environment(version, suite, attack.ID if attack else "").model_copy(deep=True)
    environment = task.init_environment(start)
    before = environment.model_copy(deep=True)
    mine = task.ground_truth(before)
    theirs = attack.ground_truth(before) if attack else []
    runtime = import_module("agentdojo.functions_runtime").FunctionsRuntime(made.tools)
    found = Replay(False, None, calls=len(mine), orders=len(theirs))
    trace: list[Any] = []

    def act(call: Any) -> tuple[bool, str]:
        arguments = json.loads(json.dumps(dict(call.args), default=str))
        began = time.perf_counter()
        allowed = decide(call.function, arguments)
        found.seconds.append(time.perf_counter() - began)
        if not allowed:
            return False, ""
        trace.append(call)
        result, error = runtime.run_function(environment, call.function, arguments)
        found.errors += error is not None
        return True, str(result)

    def obey() -> None:
        for call in theirs:
            found.stopped += not act(call)[0]

    read_at = obey_at = None
    for place, call in enumerate(mine):
        done, result = act(call)
        found.blocked += not done
        if attack and read_at is None and MARK in result:
            read_at = place
            obey_at = place + int(delay * (len(mine) - place))
        if obey_at == place:
            obey()
    output = task.GROUND_TRUTH_OUTPUT + (f"\n{attack.GROUND_TRUTH_OUTPUT}" if attack and read_at is not None else "")
    content = [{"type": "text", "content": output}]
    found.utility = bool(made._check_task_result(task, content, before, environment, trace))
    if attack is not None and read_at is not None:
        found.attack = bool(made._check_task_result(attack, content, before, environment, trace))
    return found
