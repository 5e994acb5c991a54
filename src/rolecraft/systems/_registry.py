"""Finding the systems: every module of a family's folder that defines `SYSTEM`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import Study, System

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Entry:
    """A system and where its file lies."""

    system: System
    module: ModuleType

    @property
    def studies(self) -> dict[str, Study]:
        """Its studies by name; a file with one study, defined as `Config`, `run` and `verdict`, calls it `small`."""
        if hasattr(self.module, "STUDIES"):
            return {name: Study(*study) for name, study in self.module.STUDIES.items()}
        return {"small": Study(self.module.Config, self.module.run, self.module.verdict)}

    def study(self, name: str) -> Study:
        """Return a study by name.

        Raises:
            UserError: If there is none.
        """
        if name not in self.studies:
            raise UserError(
                f"system {self.system.name!r} has no study {name!r} (studies: {', '.join(self.studies)})."
                + did_you_mean(name, self.studies)
            )
        return self.studies[name]


@cache
def entries() -> tuple[Entry, ...]:
    """Return all systems by number. Importing a system's file imports no heavy library."""
    names = (
        f"rolecraft.systems.{path.parent.name}.{path.stem}"
        for path in sorted(HERE.glob("*/*.py"))
        if not path.stem.startswith("_")
    )
    modules = [module for name in names if hasattr(module := import_module(name), "SYSTEM")]
    return tuple(sorted((Entry(module.SYSTEM, module) for module in modules), key=lambda entry: entry.system.number))


def find_entry(name: str) -> Entry:
    """Return the system of a name (`spiral`), a number (`11`, `011`) or both (`011-spiral`).

    Raises:
        UserError: If there is none.
    """
    found = {entry.system.name: entry for entry in entries()}
    for entry in entries():
        if name in (entry.system.name, entry.system.id, str(entry.system.number), f"{entry.system.number:03}"):
            return entry
    raise UserError(f"system {name!r} is unknown (known: {', '.join(found) or 'none'}).{did_you_mean(name, found)}")
