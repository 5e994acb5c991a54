"""What tools take: JSON Schemas of their arguments, from a file, a registry or a server's listing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rolecraft.errors import UserError
from rolecraft.guard._schema import Check, compiled, first_misfit

MOST_REFERENCES = 16


class ToolSchema:
    """The arguments that one tool takes.

    Args:
        name: Name of the tool.
        schema: JSON Schema of the object of its arguments. References into itself are written out. Arguments that it
            does not list are refused, unless it says `additionalProperties: true`.
        description: What the tool does.

    Raises:
        UserError: If the schema is not one of an object, refers to itself without end or outside, or cannot be
            compiled.
    """

    def __init__(self, name: str, schema: Mapping[str, Any], description: str = "") -> None:
        if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
            raise UserError(f"tool {name!r}: its schema must be one of an object, got {schema!r:.80}.")
        self.name = name
        self.description = description
        whole = _written_out(schema, schema, f"tool {name!r}", MOST_REFERENCES)
        self.schema: dict[str, Any] = {"additionalProperties": False, **whole, "type": "object"}
        try:
            self.valid: Check = compiled(self.schema)
        except ValueError as error:
            raise UserError(f"tool {name!r}: its schema cannot be compiled: {str(error)[:200]}") from None

    @property
    def arguments(self) -> dict[str, Any]:
        """Schemas of its arguments by name."""
        return dict(self.schema.get("properties", {}))

    @cached_property
    def types(self) -> dict[str, frozenset[str]]:
        """The types that each argument may have; empty where the schema does not say."""
        return {name: _types(schema) for name, schema in self.arguments.items()}

    def misfit(self, arguments: Mapping[str, Any]) -> str:
        """Say why arguments do not fit; an empty text if they do."""
        if self.valid(dict(arguments)):
            return ""
        known = self.arguments
        if missing := [name for name in self.schema.get("required", ()) if name not in arguments]:
            return f"the required argument {missing[0]!r} is missing"
        if unknown := [name for name in arguments if name not in known]:
            return f"{unknown[0]!r:.60} is no argument of {self.name} (arguments: {', '.join(known) or 'none'})"
        for name, value in arguments.items():
            if said := first_misfit(value, known[name]):
                return f"{name}: {said}"
        return "the arguments do not fit the tool's schema"


def _written_out(part: Any, whole: Mapping[str, Any], where: str, room: int) -> Any:
    """Return a schema with its local references replaced by what they point to."""
    if isinstance(part, list):
        return [_written_out(entry, whole, where, room) for entry in part]
    if not isinstance(part, Mapping):
        return part
    reference = part.get("$ref")
    if reference is None:
        return {
            key: _written_out(entry, whole, where, room)
            for key, entry in part.items()
            if key not in ("$defs", "definitions", "$schema", "$id", "title", "examples", "default")
            or (key in ("title", "default", "examples") and isinstance(entry, Mapping))
        }
    if room <= 0:
        raise UserError(f"{where}: the schema refers to itself; at most {MOST_REFERENCES} steps are followed.")
    target: Any = whole
    steps = str(reference).removeprefix("#/").split("/") if str(reference).startswith("#/") else [None]
    for step in steps:
        target = target.get(step) if isinstance(target, Mapping) else None
    if target is None:
        raise UserError(f"{where}: the reference {reference!r:.60} points nowhere within the schema.")
    return _written_out(target, whole, where, room - 1)


def _types(schema: Any) -> frozenset[str]:
    if not isinstance(schema, Mapping):
        return frozenset()
    if "type" in schema:
        kinds = schema["type"]
        return frozenset([kinds] if isinstance(kinds, str) else kinds)
    if "enum" in schema:
        return frozenset(kind_of(value) for value in schema["enum"])
    parts = [_types(part) for part in schema.get("anyOf", schema.get("oneOf", ()))]
    return frozenset().union(*parts) if parts and all(parts) else frozenset()


def kind_of(value: Any) -> str:
    """Return the JSON type of a plain value."""
    if isinstance(value, bool):
        return "boolean"
    kinds = ((str, "string"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def tool_schemas(source: Any) -> dict[str, ToolSchema]:
    """Return the schemas of tools by name.

    Args:
        source: A `ToolRegistry` of `rolecraft.agents` or another mapping to objects with a `schema`; a list of
            entries as MCP and OpenAI have them (`name`, `description`, and `inputSchema`, `input_schema` or
            `parameters`, alone or below `function`), or a mapping `{"tools": [...]}` of one.

    Raises:
        UserError: If an entry has no name or no schema, or two have the same name.
    """
    if isinstance(source, Mapping) and isinstance(source.get("tools"), list):
        source = source["tools"]
    if isinstance(source, Mapping):
        return {
            name: tool if isinstance(tool, ToolSchema) else ToolSchema(name, tool.schema, tool.description)
            for name, tool in source.items()
        }
    if not isinstance(source, Iterable) or isinstance(source, str | bytes):
        raise UserError(f"tools: expected a list of tools or a registry, got {type(source).__name__}.")
    found: dict[str, ToolSchema] = {}
    for place, entry in enumerate(source):
        if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping):
            entry = entry["function"]
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not name:
            raise UserError(f"tools[{place}]: a tool needs a name.")
        if name in found:
            raise UserError(f"tools[{place}]: the tool {name!r} stands twice.")
        schema = next((entry[key] for key in ("inputSchema", "input_schema", "parameters") if key in entry), None)
        if schema is None:
            raise UserError(f"tools[{place}] ({name}): expected inputSchema, input_schema or parameters.")
        found[name] = ToolSchema(name, schema, str(entry.get("description", "")))
    return found


def read_tools(path: Path) -> dict[str, ToolSchema]:
    """Read a file of tools, see `tool_schemas`."""
    from rolecraft._files import read_mapping

    return tool_schemas(read_mapping(path))
