"""Memories in files, so that an agent enters a new episode with what it knew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rolecraft._files import read_mapping, write_atomic
from rolecraft._run._keys import canonical_json
from rolecraft.agents._memory import Memory, State
from rolecraft.errors import UserError
from rolecraft.worlds import Episode, View

FORMAT = "rolecraft-memory"
VERSION = 1
"""Of the file; a memory's own `version` is of the states in it."""


def remembered(memory: Memory, episode: Episode) -> dict[str, State]:
    """Return what each agent remembers at the end of an episode, its last turn included.

    Raises:
        UserError: If the episode was played with a memory of another kind or version.
    """
    agents = list(dict.fromkeys(turn.agent for turn in episode.turns))
    views = [View(agent, "", None, 0, history=episode.of(agent)) for agent in agents]
    found = memory.recall(views, [{}] * len(views))
    return {agent: one.state for agent, one in zip(agents, found, strict=True)}


def save_memory(path: str | Path, memory: Memory, states: Mapping[str, State]) -> None:
    """Write what agents remember to a JSON file.

    Args:
        path: The file.
        memory: What the states belong to.
        states: By agent, as `remembered` returns them.
    """
    content = {"format": FORMAT, "file_version": VERSION, "kind": memory.kind, "version": memory.version}
    write_atomic(Path(path), canonical_json(content | {"agents": dict(states)}) + "\n")


def load_memory(path: str | Path, memory: Memory) -> dict[str, State]:
    """Return what agents remember, by agent, from a file that `save_memory` wrote.

    Raises:
        UserError: If the file cannot be read, is none of ours, or was written by another version or another kind of
            memory; what to do is said.
    """
    data = read_mapping(Path(path))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f"{path}: not a memory file; expected one that `save_memory` wrote (format {FORMAT!r}).")
    expected = {"file_version": VERSION, "kind": memory.kind, "version": memory.version}
    for name, value in expected.items():
        if data.get(name) != value:
            mend = "use that kind of memory" if name == "kind" else "use the version of Rolecraft that wrote it"
            raise UserError(
                f"{path}: {name} is {data.get(name)!r}, this needs {value!r}; {mend}, or let the agents start anew."
            )
    agents: Any = data.get("agents")
    if not isinstance(agents, dict) or not all(isinstance(state, dict) for state in agents.values()):
        raise UserError(f"{path}: `agents` must map each agent to what it remembers; the file is damaged.")
    return agents
