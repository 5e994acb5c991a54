"""Skills that people wrote: text files with an index that says which task needs which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rolecraft._files import read_mapping, read_text
from rolecraft.errors import UserError, did_you_mean

KEYS = ("skills", "general", "tasks", "keywords")


@dataclass(frozen=True)
class StaticSkills:
    """Skill texts by name; a task's own is found by its id, else by the first keyword in its text.

    The general ones stand before it, always.

    Raises:
        UserError: If a skill is empty, or a name is used that has no text.
    """

    skills: Mapping[str, str]
    """Text by name."""
    general: Sequence[str] = ()
    """Names of those that every task gets."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Name by task id."""
    keywords: Sequence[tuple[str, str]] = ()
    """Keyword and name, in the order in which they are tried; case does not count."""

    def __post_init__(self) -> None:
        for name, text in self.skills.items():
            if not text.strip():
                raise UserError(f"static skills: {name!r} is empty; write it, or take it out.")
        if any(not keyword.strip() for keyword, _ in self.keywords):
            raise UserError("static skills: a keyword is empty, and would fit every task; use `general` for that.")
        used = [*self.general, *self.tasks.values(), *(name for _, name in self.keywords)]
        for name in used:
            if name not in self.skills:
                known = ", ".join(self.skills) or "none"
                raise UserError(
                    f"static skills: no skill is called {name!r} (known: {known}).{did_you_mean(name, self.skills)}"
                )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an index in YAML or JSON.

        It maps `skills` to text files beside it by name, and holds `general`, `tasks` and `keywords` (pairs) as here.

        Raises:
            UserError: If the index or a file cannot be read, or does not fit; the key is named.
        """
        index = Path(path)
        data: Any = read_mapping(index)
        if not isinstance(data, Mapping) or "skills" not in data:
            raise UserError(f"{path}: expected a mapping with {', '.join(KEYS)}.")
        for key in data:
            if key not in KEYS:
                raise UserError(f"{path}: unknown key {key!r}; expected {', '.join(KEYS)}.{did_you_mean(key, KEYS)}")
        skills, tasks = data["skills"], data.get("tasks") or {}
        general, keywords = data.get("general") or [], data.get("keywords") or []
        if not isinstance(skills, Mapping) or not isinstance(tasks, Mapping) or not isinstance(general, list):
            raise UserError(f"{path}: `skills` and `tasks` must be mappings by name, `general` a list of names.")
        if not isinstance(keywords, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in keywords):
            raise UserError(f"{path}: `keywords` must be a list of [keyword, skill] pairs; their order counts.")
        return cls(
            {str(name): read_text(_beside(index, str(file))).strip() for name, file in skills.items()},
            tuple(map(str, general)),
            {str(task): str(name) for task, name in tasks.items()},
            tuple((str(keyword), str(name)) for keyword, name in keywords),
        )

    def select(self, task: str, text: str = "") -> str | None:
        """Return the skill text of a task, the general ones first; None if it gets none.

        Args:
            task: Its id.
            text: Its wording, in which keywords are looked for.
        """
        lower = text.lower()
        matched = (name for keyword, name in self.keywords if keyword.lower() in lower)
        own = self.tasks.get(task) or next(matched, None)
        names = dict.fromkeys([*self.general, *([own] if own else [])])
        return "\n\n".join(self.skills[name] for name in names) or None


def _beside(index: Path, file: str) -> Path:
    """Return a file of the index's folder; an index never reads what lies outside it."""
    found = (index.parent / file).resolve()
    if not found.is_relative_to(index.parent.resolve()):
        raise UserError(f"{index}: the skill file {file!r} lies outside the folder of the index; move it there.")
    return found
