"""The index of systems and studies: claim, published figure, ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rolecraft._files import read_mapping
from rolecraft.errors import UserError
from rolecraft.systems._registry import entries
from rolecraft.systems._studies import results_folder

COLUMNS = (
    "number", "name", "study", "family", "claim", "published", "ours", "interval", "seeds", "minutes", "commit",
    "verdict",
)  # fmt: skip


def read_outcomes(folder: Path | None = None) -> dict[str, dict[str, dict[str, Any]]]:
    """Read what was recorded: `{"011-spiral": {study: outcome}}`.

    Raises:
        UserError: If the folder is missing or a file is damaged.
    """
    folder = folder or results_folder()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of results.")
    found = {}
    for path in sorted(folder.glob("[0-9][0-9][0-9]-*.json")):
        content = read_mapping(path)
        if not isinstance(content, dict) or not isinstance(content.get("studies"), dict):
            raise UserError(f"{path}: expected the key 'studies'; record the study again with --record.")
        found[path.stem] = content["studies"]
    return found


def table_rows(folder: Path | None = None) -> list[dict[str, Any]]:
    """Return one row per study with the fields of `COLUMNS`; figures are None where nothing was recorded."""
    outcomes = read_outcomes(folder)
    return [
        _row(entry.system, study, outcomes.get(entry.system.id, {}).get(study, {}))
        for entry in entries()
        for study in entry.studies
    ]


def _row(system: Any, study: str, outcome: dict[str, Any]) -> dict[str, Any]:
    effect = outcome.get("effect") or {}
    return {
        "number": system.number,
        "name": system.name,
        "study": study,
        "family": system.family,
        "claim": system.claim,
        "published": system.published,
        "ours": effect.get("estimate"),
        "interval": [effect["low"], effect["high"]] if effect.get("low") is not None else None,
        "seeds": len(outcome["seeds"]) if outcome else None,
        "minutes": outcome.get("minutes"),
        "commit": outcome.get("commit"),
        "verdict": outcome.get("verdict", "not run"),
        "note": outcome.get("note", ""),
    }
