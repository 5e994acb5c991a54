"""Audits as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft.errors import UserError
from rolecraft.guard.audit._audit import RoleAudit
from rolecraft.guard.audit._canary import CanaryPolicy, make_canary
from rolecraft.guard.audit._graded import GradedSpeaker, asked
from rolecraft.guard.audit._reviewer import SuitabilityReviewer, WordHashEncoder
from rolecraft.guard.audit._tester import Probe
from rolecraft.teams import ModelSpeaker, make_team

if TYPE_CHECKING:
    from rolecraft.teams import Speaker

FIELDS = ("team", "policies", "tasks", "probes", "model", "tools", "levels", "operators", "rounds", "children", "tau")
GRADED = "graded"
ENCODERS = ("minilm", "words")


def read_audit(path: str | Path, *, model: str | None = None, encoder: str = "minilm") -> RoleAudit:
    """Read an audit from a YAML or JSON file.

    Args:
        path: A file with `team` (see `rolecraft.teams.make_team`), `policies` (see `make_canary`), `tasks` (each is
            asked once per policy, with its request) or `probes` (`task` and `policy` each), and where wanted `model`
            (`graded`, the scripted member, or a language model), `tools` (names members may call), `levels`,
            `operators`, `rounds`, `children` and `tau`.
        model: Instead of the file's.
        encoder: Of the reviewer: `minilm` or `words`.

    Raises:
        UserError: If a field is unknown, missing or of another form, or the audit refuses itself.
    """
    from rolecraft._files import read_mapping
    from rolecraft._options import refuse_unknown

    where, data = str(path), read_mapping(Path(path))
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a mapping of fields ({', '.join(FIELDS)}).")
    refuse_unknown(data, FIELDS, f"{where}: an audit")
    if encoder not in ENCODERS:
        raise UserError(f"encoder must be one of {', '.join(ENCODERS)}, got {encoder!r}.")
    policies = tuple(
        make_canary(each, f"{where}: policies[{place}]") for place, each in enumerate(_list(data, "policies", where))
    )
    if not policies:
        raise UserError(f"{where}: policies: at least one is needed.")
    given: dict[str, Any] = {name: tuple(_texts(data, name, where)) for name in ("levels", "operators") if name in data}
    given |= {name: _number(data, name, where) for name in ("rounds", "children") if name in data}
    tau = data.get("tau", 0.8)
    if isinstance(tau, bool) or not isinstance(tau, int | float):
        raise UserError(f"{where}: tau: expected a number, got {tau!r:.40}.")
    return RoleAudit(
        make_team(data.get("team"), f"{where}: team"),
        policies,
        tuple(_probes(data, policies, where)),
        _speaker(model or data.get("model", GRADED), policies, where),
        reviewer=SuitabilityReviewer(float(tau), WordHashEncoder() if encoder == "words" else None),
        allowed_tools=tuple(_texts(data, "tools", where)),
        **given,
    )


def _probes(data: Mapping[str, Any], policies: Sequence[CanaryPolicy], where: str) -> list[Probe]:
    tasks = _texts(data, "tasks", where)
    found = [
        Probe(f"{number}-{policy.name}", asked(task, policy), policy.name)
        for number, task in enumerate(tasks)
        for policy in policies
    ]
    for number, each in enumerate(_list(data, "probes", where)):
        if not isinstance(each, Mapping) or not isinstance(each.get("task"), str) or set(each) - {"task", "policy"}:
            raise UserError(f"{where}: probes[{number}]: expected a task and perhaps a policy, got {each!r:.60}.")
        found.append(Probe(f"probe-{number}", each["task"], str(each.get("policy", ""))))
    if not found:
        raise UserError(f"{where}: tasks or probes: at least two are needed.")
    return found


def _speaker(model: Any, policies: tuple[CanaryPolicy, ...], where: str) -> Speaker:
    if model == GRADED:
        return GradedSpeaker(policies)
    if not isinstance(model, str):
        raise UserError(f"{where}: model: expected {GRADED} or the name of a language model, got {model!r:.60}.")
    from rolecraft.models import load_model

    return ModelSpeaker(load_model(model))


def _list(data: Mapping[str, Any], field: str, where: str) -> list[Any]:
    value = data.get(field, [])
    if not isinstance(value, list):
        raise UserError(f"{where}: {field}: expected a list, got {value!r:.60}.")
    return value


def _texts(data: Mapping[str, Any], field: str, where: str) -> list[str]:
    value = _list(data, field, where)
    odd = next((each for each in value if not isinstance(each, str)), None)
    if odd is not None:
        raise UserError(f"{where}: {field}: expected texts, got {odd!r:.60}.")
    return value


def _number(data: Mapping[str, Any], field: str, where: str) -> int:
    value = data[field]
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(f"{where}: {field}: expected a whole number, got {value!r:.40}.")
    return value
