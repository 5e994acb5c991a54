"""Restrictions on arguments: fragments of JSON Schema, checked, made strict and compiled to fast validators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rolecraft.errors import MissingDependencyError, UserError, did_you_mean
from rolecraft.guard._values import NotPlain, plain_value

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
OF_TYPE = {
    "pattern": "string", "minLength": "string", "maxLength": "string",
    "minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
    "multipleOf": "number",
    "items": "array", "minItems": "array", "maxItems": "array",
    "properties": "object", "required": "object", "additionalProperties": "object",
}  # fmt: skip
"""Keywords that speak of one type only, and of which."""
JOINS = ("allOf", "anyOf", "oneOf")
KEYWORDS = (*OF_TYPE, *JOINS, "const", "description", "else", "enum", "if", "list", "not", "then", "type")
MOST_DEPTH = 16
MOST_PATTERN = 1000
REGEX_SIZE = 1 << 20
"""Bytes that a compiled pattern may take."""

Check = Callable[[Any], bool]


def check_schema(
    schema: Any, where: str, lists: Mapping[str, list[Any]] | None = None, depth: int = MOST_DEPTH
) -> dict[str, Any]:
    """Check a restriction, and write its short forms out.

    A text is a pattern that the whole value must match. `{list: NAME}` stands for the values of a named list.

    Args:
        schema: What stands in the file.
        where: Begins messages.
        lists: Named lists of the policy.
        depth: How many levels may follow.

    Returns:
        JSON Schema in the keywords of `KEYWORDS`, without `list` and `description`.

    Raises:
        UserError: If a keyword is unknown or has a wrong operand, a pattern cannot be matched in linear time, or the
            restriction is nested deeper than `MOST_DEPTH`. References (`$ref`) are not followed but refused.
    """
    if isinstance(schema, str):
        return {"type": "string", "pattern": whole(_pattern(schema, where))}
    if not isinstance(schema, dict):
        raise UserError(f"{where}: a restriction is a mapping of JSON Schema or a pattern, got {schema!r:.60}.")
    if depth <= 0:
        raise UserError(f"{where}: nested deeper than {MOST_DEPTH} levels; flatten the restriction.")
    found: dict[str, Any] = {}
    for key, operand in schema.items():
        if key not in KEYWORDS:
            near = did_you_mean(str(key), KEYWORDS)
            raise UserError(f"{where}: unknown keyword {key!r} (keywords: {', '.join(KEYWORDS)}).{near}")
        place = f"{where}.{key}"
        if key == "list":
            found.setdefault("allOf", []).append({"enum": _named(operand, place, lists or {})})
        elif key in JOINS:
            parts = [
                check_schema(part, f"{place}[{n}]", lists, depth - 1) for n, part in enumerate(_listed(operand, place))
            ]
            found[key] = [*found.get(key, []), *parts]
        elif key in ("not", "if", "then", "else", "items"):
            found[key] = check_schema(operand, place, lists, depth - 1)
        elif key == "properties":
            if not isinstance(operand, dict) or not all(isinstance(name, str) for name in operand):
                raise UserError(f"{place}: expected a mapping from names to restrictions, got {operand!r:.60}.")
            found[key] = {
                name: check_schema(part, f"{place}.{name}", lists, depth - 1) for name, part in operand.items()
            }
        elif key != "description":
            found[key] = _operand(key, operand, place)
    return found


def _named(name: Any, where: str, lists: Mapping[str, list[Any]]) -> list[Any]:
    if not isinstance(name, str) or name not in lists:
        near = did_you_mean(str(name), lists)
        raise UserError(f"{where}: no list {name!r:.60} (lists: {', '.join(lists) or 'none'}).{near}")
    return list(lists[name])


def _listed(operand: Any, where: str) -> list[Any]:
    if not isinstance(operand, list) or not operand:
        raise UserError(f"{where}: expected a list with at least one entry, got {operand!r:.60}.")
    return operand


def _operand(key: str, operand: Any, where: str) -> Any:
    try:
        operand = plain_value(operand, where)
    except NotPlain as error:
        raise UserError(f"{error}; quote it if it is meant as text.") from None
    number = isinstance(operand, int | float) and not isinstance(operand, bool)
    if key == "type":
        for name in operand if isinstance(operand, list) else [operand]:
            if name not in TYPES:
                near = did_you_mean(str(name), TYPES)
                raise UserError(f"{where}: unknown type {name!r:.60} (types: {', '.join(TYPES)}).{near}")
        expected, fits = "a type", operand != []
    elif key == "pattern":
        return _pattern(operand, where)
    elif key in ("enum", "required"):
        expected, fits = "a list", isinstance(operand, list)
        fits = fits and (key == "enum" or all(isinstance(name, str) for name in operand))
    elif key == "const":
        return operand
    elif key == "additionalProperties":
        expected, fits = "true or false", isinstance(operand, bool)
    elif OF_TYPE[key] == "number":
        expected, fits = "a number", number and (key != "multipleOf" or operand > 0)
    else:
        expected, fits = "a count of at least 0", number and isinstance(operand, int) and operand >= 0
    if not fits:
        raise UserError(f"{where}: expected {expected}, got {operand!r:.60}.")
    return operand


def whole(pattern: str) -> str:
    """Return a pattern that the whole text must match."""
    return f"^(?:{pattern})$"


def _pattern(pattern: Any, where: str) -> str:
    if not isinstance(pattern, str):
        raise UserError(f"{where}: a pattern is a text, got {pattern!r:.60}.")
    if len(pattern) > MOST_PATTERN:
        raise UserError(f"{where}: the pattern has {len(pattern)} characters; at most {MOST_PATTERN} are taken.")
    try:
        compiled({"type": "string", "pattern": pattern})
        compiled({"type": "string", "pattern": whole(pattern)})
    except MissingDependencyError:
        raise
    except Exception:  # the library tells neither why nor where
        raise UserError(
            f"{where}: the pattern {pattern!r:.80} is not taken: it is no regular expression, or not one that a "
            "linear-time engine can match (look-around, back-references), or too large when counts are written out."
        ) from None
    return pattern


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Add the type that the keywords speak of wherever it is left out.

    JSON Schema lets `{pattern: "^a"}` pass any number; a rule that allows must not. Below `not` and `if` nothing is
    added, for there it would widen what is allowed.
    """
    found = dict(schema)
    spoken = sorted({OF_TYPE[key] for key in schema if key in OF_TYPE})
    if spoken and "type" not in schema:
        found["type"] = spoken[0] if len(spoken) == 1 else spoken
    for key, part in schema.items():
        if key in JOINS:
            found[key] = [strict(entry) for entry in part]
        elif key in ("items", "then", "else"):
            found[key] = strict(part)
        elif key == "properties":
            found[key] = {name: strict(entry) for name, entry in part.items()}
    return found


def compiled(schema: Mapping[str, Any]) -> Check:
    """Compile a schema to a predicate of a plain JSON value. Patterns are matched in linear time.

    Raises:
        MissingDependencyError: If `jsonschema_rs` is not installed.
    """
    try:
        import jsonschema_rs
    except ImportError:
        raise MissingDependencyError("guards need jsonschema-rs: pip install 'rolecraft[guard]'") from None
    options = jsonschema_rs.RegexOptions(size_limit=REGEX_SIZE, dfa_size_limit=REGEX_SIZE)
    validator = jsonschema_rs.Draft202012Validator(dict(schema), pattern_options=options, offline=True)
    check: Check = validator.is_valid
    return check


@lru_cache(maxsize=4096)
def _compiled_text(text: str) -> Check:
    import json

    return compiled(json.loads(text))


def compiled_once(schema: Mapping[str, Any]) -> Check:
    """Compile as `compiled`, remembering the last few thousand."""
    import json

    return _compiled_text(json.dumps(schema))


def first_misfit(value: Any, schema: Mapping[str, Any]) -> str:
    """Say in a few words why a value does not fit a restriction; an empty text if it fits."""
    if compiled_once(schema)(value):
        return ""
    shown = f"{value!r:.60}"
    if "type" in schema and not compiled_once({"type": schema["type"]})(value):
        kinds = schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])
        return f"{shown} is not of type {kinds}"
    for key in schema:
        if key in ("type", "then", "else") or (key == "if"):
            continue
        if key == "allOf":
            return next((said for part in schema[key] if (said := first_misfit(value, part))), shown)
        if not compiled_once({key: schema[key]})(value):
            operand = schema[key]
            few = [*operand[:4], "..."] if isinstance(operand, list) and len(operand) > 4 else operand
            return f"{shown} does not meet {key} {few!r:.80}"
    return f"{shown} does not meet the restriction"


def spoken_values(schema: Any) -> list[Any]:
    """Return all values that the enums and constants of a schema name."""
    if isinstance(schema, list):
        return [value for part in schema for value in spoken_values(part)]
    if not isinstance(schema, Mapping):
        return []
    found = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
    return found + [
        value for key, part in schema.items() if key not in ("enum", "const") for value in spoken_values(part)
    ]
