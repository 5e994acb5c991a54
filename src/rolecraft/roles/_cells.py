"""Roles as rows of a table: what stands in one cell of a CSV file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolecraft.errors import RoleError, did_you_mean
from rolecraft.roles._role import Role, parse_role

SEPARATOR = " | "
"""Between the items of a list in one cell."""
ARROW = " => "
"""Between the two sides of a demonstration, or the name and the value of a trait or a relation."""
LISTS = ("instructions", "questions", "catchphrases", "values", "goals", "boundaries", "knowledge", "tags")
COLUMNS = tuple(name for name in Role.model_fields if name != "arc")
"""A phase has a list of its own and fits no cell: roles with an arc need YAML or JSON."""


def role_from_cells(row: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return a role's fields from one row.

    Raises:
        RoleError: If a column is unknown or a cell cannot be read; file, row and column are named.
    """
    fields: dict[str, Any] = {}
    for column, cell in row.items():
        if column not in COLUMNS:
            raise RoleError(
                f"{where}: unknown column {column!r}.{did_you_mean(column, COLUMNS)} Known: {', '.join(COLUMNS)}."
            )
        fields[column] = _read(column, cell.strip(), f"{where}, column {column!r}")
    return fields


def _read(column: str, cell: str, where: str) -> Any:
    if column in LISTS:
        return [item.strip() for item in cell.split(SEPARATOR.strip()) if item.strip()]
    if column == "demonstrations":
        return [{"user": user, "reply": reply} for user, reply in _sides(cell, where)]
    if column == "relations":
        return dict(_sides(cell, where))
    if column == "traits":
        return {name: _number(value, where) for name, value in _sides(cell, where)}
    return _number(cell, where) if column == "level" else cell


def _sides(cell: str, where: str) -> list[tuple[str, str]]:
    pairs = []
    for item in cell.split(SEPARATOR.strip()):
        left, arrow, right = item.partition(ARROW.strip())
        if not arrow:
            raise RoleError(f"{where}: expected 'left{ARROW}right' in each item, got {item.strip()!r}.")
        pairs.append((left.strip(), right.strip()))
    return pairs


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RoleError(f"{where}: expected a number, got {text!r}.") from None


def role_to_cells(role: Role) -> dict[str, str]:
    """Return one row, with a cell for every column.

    Raises:
        RoleError: If the role does not fit a table: it has an arc, or a text holds a separator.
    """
    if role.arc:
        raise RoleError(f"role {role.id!r} has an arc, which a table cannot hold; save as YAML or JSON.")
    cells: dict[str, str] = {}
    for column in COLUMNS:
        value = getattr(role, column)
        if column in LISTS:
            parts = list(value)
        elif column == "demonstrations":
            parts = [f"{_plain(role, d.user)}{ARROW}{d.reply}" for d in value]
        elif column in ("traits", "relations"):
            parts = [f"{_plain(role, name)}{ARROW}{item}" for name, item in value.items()]
        else:
            cells[column] = "" if value is None else str(value)
            continue
        if any(SEPARATOR.strip() in part for part in parts):
            raise RoleError(
                f"role {role.id!r}: a text in {column!r} holds {SEPARATOR.strip()!r}; save as YAML or JSON."
            )
        cells[column] = SEPARATOR.join(parts)
    where = f"role {role.id!r}"
    if parse_role(role_from_cells({name: cell for name, cell in cells.items() if cell}, where), where) != role:
        raise RoleError(f"{where}: a text holds a character that a table loses; save as YAML or JSON.")
    return cells


def _plain(role: Role, text: str) -> str:
    if ARROW.strip() in text:
        raise RoleError(f"role {role.id!r}: {text!r} holds {ARROW.strip()!r}; save as YAML or JSON.")
    return text
