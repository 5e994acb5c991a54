"""Writing inventories, in every format that `load_inventory` reads."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import yaml

from rolecraft._files import write_atomic
from rolecraft.errors import RoleError
from rolecraft.roles._cells import COLUMNS, role_to_cells
from rolecraft.roles._inventory import Inventory


def save_inventory(inventory: Inventory, path: str | Path) -> Path:
    """Write an inventory atomically; fields at their defaults are left out.

    Args:
        inventory: The roles. JSONL and CSV have no place for the inventory's name and version.
        path: Its suffix decides the format: .yaml, .yml, .json, .jsonl or .csv.

    Raises:
        RoleError: If the suffix is another one, or a role does not fit a table (CSV).
    """
    path = Path(path)
    roles = [role.model_dump(mode="json", exclude_defaults=True) for role in inventory]
    whole = {"name": inventory.name, "version": inventory.version, "roles": roles}
    writers: dict[str, Any] = {
        ".yaml": lambda: yaml.dump(whole, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120),
        ".yml": lambda: yaml.dump(whole, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120),
        ".json": lambda: json.dumps(whole, ensure_ascii=False, indent=2) + "\n",
        ".jsonl": lambda: "".join(json.dumps(role, ensure_ascii=False) + "\n" for role in roles),
        ".csv": lambda: _table(inventory),
    }
    if path.suffix not in writers:
        raise RoleError(f"{path}: expected one of {', '.join(writers)}, got {path.suffix or 'no suffix'!r}.")
    write_atomic(path, writers[path.suffix]())
    return path


class _Dumper(yaml.SafeDumper):
    """Quotes the line separators that PyYAML would write bare and read back as line breaks."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if {"\x85", "\u2028", "\u2029"} & set(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def _table(inventory: Inventory) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(role_to_cells(role) for role in inventory)
    return text.getvalue()
