"""Tools: functions with a schema for their arguments, a registry, calls and their execution."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolecraft.errors import UserError

TYPES = ("string", "integer", "number", "boolean", "array", "object")
"""Argument types, as JSON Schema has them."""


@dataclass(frozen=True)
class Argument:
    """One argument of a tool."""

    type: str
    """One of `TYPES`."""
    description: str = ""
    required: bool = True
    values: tuple[Any, ...] = ()
    """The only values allowed; empty: any of the type."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of its value."""
        return {"type": self.type} | ({"enum": list(self.values)} if self.values else {})


@dataclass(frozen=True)
class Tool:
    """A function that an agent may call."""

    name: str
    description: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    run: Callable[..., Any] | None = None
    """Takes the arguments by name. None: the tool can be listed and checked, not executed."""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": {name: argument.schema for name, argument in self.arguments.items()},
            "required": [name for name, argument in self.arguments.items() if argument.required],
            "additionalProperties": False,
        }

    @property
    def line(self) -> str:
        """One line for a prompt, such as `price(item): what an item costs`."""
        names = ", ".join(name if argument.required else f"{name}?" for name, argument in self.arguments.items())
        return f"{self.name}({names}): {self.description}"


@dataclass(frozen=True)
class Call:
    """A call as an agent asked for it."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Equal for equal calls."""
        return json.dumps([self.name, dict(self.arguments)], sort_keys=True, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class ToolResult:
    """What a call gave."""

    call: Call
    value: Any = None
    error: str = ""
    """Why it failed; the agent must see it."""

    @property
    def text(self) -> str:
        """One line for a prompt."""
        said = f"error: {self.error}" if self.error else json.dumps(self.value, ensure_ascii=False, default=str)
        given = ", ".join(f"{name}={value}" for name, value in self.call.arguments.items())
        return f"{self.call.name}({given}) -> {said}"


class ToolRegistry(Mapping[str, Tool]):
    """The tools of an agent, checked when it is made.

    Raises:
        UserError: If two tools have one name, a name or description is missing, or an argument's type is unknown.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for position, tool in enumerate(tools):
            where = f"tool {tool.name!r}" if tool.name else f"tools[{position}]"
            if not tool.name.isidentifier():
                raise UserError(f"{where}: a tool's name must be an identifier, got {tool.name!r}.")
            if tool.name in self._tools:
                raise UserError(f"{where} is defined twice; names must differ.")
            if not tool.description.strip():
                raise UserError(f"{where} has no description, by which an agent chooses; write one.")
            for name, argument in tool.arguments.items():
                if argument.type not in TYPES:
                    raise UserError(
                        f"{where}: argument {name!r} has type {argument.type!r}; expected one of {', '.join(TYPES)}."
                    )
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def text(self) -> str:
        """One line per tool, for a prompt."""
        return "\n".join(tool.line for tool in self._tools.values())


def execute(registry: ToolRegistry, calls: Sequence[Call]) -> tuple[list[ToolResult], list[Call]]:
    """Run calls in order; an exception of a tool becomes the error of its result.

    Returns:
        The results, and the calls dropped because no tool has their name.
    """
    results, dropped = [], []
    for call in calls:
        tool = registry.get(call.name)
        if tool is None:
            dropped.append(call)
        elif tool.run is None:
            results.append(ToolResult(call, error="this tool cannot be executed here"))
        else:
            try:
                results.append(ToolResult(call, tool.run(**call.arguments)))
            except Exception as error:  # a tool is foreign code: whatever it raises, the turn goes on
                results.append(ToolResult(call, error=f"{type(error).__name__}: {error}"))
    return results, dropped
