"""Teams as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rolecraft.errors import UserError, did_you_mean
from rolecraft.teams._team import Edge, Member, Team, chain, pair, solo

FIELDS = ("mission", "members", "topology", "rounds", "edges", "order", "briefed")
TOPOLOGIES = ("solo", "pair", "chain", "graph")


def make_team(data: Any, where: str = "team") -> Team:
    """Make a team from plain data.

    Args:
        data: `members` (name to role text, in order), `mission`, and `topology`: `solo`, `pair` (with `rounds`),
            `chain` or `graph` (with `order`, and `edges` of `from`, `to` and `sees`); default by the number of members.
            `briefed` lists who is told the task.
        where: How errors begin.

    Raises:
        UserError: If a field is unknown, missing or of another form.
    """
    from dataclasses import replace

    from rolecraft._options import refuse_unknown

    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a mapping of fields ({', '.join(FIELDS)}), got {data!r:.60}.")
    refuse_unknown(data, FIELDS, where)
    texts = data.get("members")
    if not isinstance(texts, Mapping) or not texts or not all(isinstance(text, str) for text in texts.values()):
        raise UserError(f"{where}: members: expected the role text of each member by name, got {texts!r:.60}.")
    members = [Member(str(name), text.strip()) for name, text in texts.items()]
    mission = data.get("mission", "")
    if not isinstance(mission, str):
        raise UserError(f"{where}: mission: expected a text, got {mission!r:.60}.")
    topology = data.get("topology", ("solo", "pair")[len(members) - 1] if len(members) < 3 else "chain")
    team = _joined(str(topology), members, mission.strip(), data, where)
    if data.get("briefed") is not None:
        team = replace(team, briefed=_names(data, "briefed", where))
    return team


def load_team(path: str | Path) -> Team:
    """Read a team from a YAML or JSON file; see `make_team`."""
    from rolecraft._files import read_mapping

    return make_team(read_mapping(Path(path)), str(path))


def _joined(topology: str, members: list[Member], mission: str, data: Mapping[str, Any], where: str) -> Team:
    if topology not in TOPOLOGIES:
        near = did_you_mean(topology, TOPOLOGIES)
        raise UserError(f"{where}: topology: expected one of {', '.join(TOPOLOGIES)}, got {topology!r}.{near}")
    needed = {"solo": 1, "pair": 2}.get(topology)
    if needed is not None and len(members) != needed:
        raise UserError(f"{where}: a {topology} has {needed} member{'s' * (needed > 1)}, got {len(members)}.")
    allowed = {"pair": ("rounds",), "graph": ("order", "edges")}.get(topology, ())
    misplaced = [name for name in ("rounds", "order", "edges") if name in data and name not in allowed]
    if misplaced:
        raise UserError(f"{where}: {misplaced[0]} does not go with the topology {topology!r}.")
    if topology == "solo":
        return solo(members[0], mission)
    if topology == "chain":
        return chain(members, mission)
    if topology == "pair":
        rounds = data.get("rounds", 2)
        if isinstance(rounds, bool) or not isinstance(rounds, int):
            raise UserError(f"{where}: rounds: expected a whole number, got {rounds!r}.")
        return pair(members[0], members[1], mission, rounds=rounds)
    edges = data.get("edges", [])
    if not isinstance(edges, list):
        raise UserError(f"{where}: edges: expected a list of mappings with from and to, got {edges!r:.60}.")
    return Team(tuple(members), _names(data, "order", where), tuple(_edge(each, where) for each in edges), mission)


def _names(data: Mapping[str, Any], field: str, where: str) -> tuple[str, ...]:
    names = data.get(field)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{where}: {field}: expected a list of members' names, got {names!r:.60}.")
    return tuple(names)


def _edge(data: Any, where: str) -> Edge:
    if not isinstance(data, Mapping) or not {"from", "to"} <= set(data) <= {"from", "to", "sees"}:
        raise UserError(f"{where}: edges: expected from, to and perhaps sees, got {data!r:.80}.")
    return Edge(str(data["from"]), str(data["to"]), data.get("sees", "last"))
