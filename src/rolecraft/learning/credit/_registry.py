"""Rules and stages by name, as study files hold them."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit import _rules, _teacher_rules
from rolecraft.learning.credit._baselines import EmaBaseline, NoBaseline
from rolecraft.learning.credit._batch import Stage
from rolecraft.learning.credit._gae_stages import BilevelGae, Gae
from rolecraft.learning.credit._groups import Group
from rolecraft.learning.credit._pivot import Pivot
from rolecraft.learning.credit._returns import Discount, ReturnToGo
from rolecraft.learning.credit._rewards import Mix, Pool, ScaleReward
from rolecraft.learning.credit._rows import AddRow, DropZero, FilterGroups, FlipRate, Weight
from rolecraft.learning.credit._scalarise import Ccrn, PerGroupNormalised, WeightedSum
from rolecraft.learning.credit._teacher_losses import IsK3, Kl, NaiveK3, Opd, Sdar
from rolecraft.learning.credit._teacher_stages import AddToken, MultiplyToken, TeacherCenter, TvaGate, WhitenSignal
from rolecraft.learning.credit._value import Vdn
from rolecraft.learning.credit._whiten import Whiten

Rule = Callable[..., list[Stage]]
Spec = str | Mapping[str, Any] | Sequence[Any]
"""A rule by name; a mapping with its `name` and options; or a list of stages, each a name, a mapping with its `stage`
and options, or a stage."""

RULES: dict[str, Rule] = {
    "adrs": _teacher_rules.adrs,
    "at-grpo": _rules.at_grpo,
    "character-r1": _rules.character_r1,
    "collabuiagents": _rules.collabuiagents,
    "cory": _rules.cory,
    "dr-grpo": _rules.dr_grpo,
    "envace": _rules.envace,
    "gae": _rules.gae,
    "grpo": _rules.grpo,
    "moa": _rules.moa,
    "omar": _rules.omar,
    "opd": _teacher_rules.opd,
    "rae": _rules.rae,
    "reinforce": _rules.reinforce,
    "rft": _rules.rft,
    "rl4mle": _rules.rl4mle,
    "rlsd": _teacher_rules.rlsd,
    "role-agent": _rules.role_agent,
    "sdar": _teacher_rules.sdar,
    "skill-sd": _teacher_rules.skill_sd,
    "triage": _rules.triage,
    "vdn": _rules.vdn,
}
"""Functions from options to stages."""

STAGES: dict[str, Callable[..., Stage]] = {
    "add_row": AddRow,
    "add_token": AddToken,
    "bilevel_gae": BilevelGae,
    "ccrn": Ccrn,
    "discount": Discount,
    "drop_zero": DropZero,
    "ema_baseline": EmaBaseline,
    "filter": FilterGroups,
    "flip_rate": FlipRate,
    "gae": Gae,
    "group": Group,
    "is_k3": IsK3,
    "kl": Kl,
    "mix": Mix,
    "multiply_token": MultiplyToken,
    "naive_k3": NaiveK3,
    "no_baseline": NoBaseline,
    "opd": Opd,
    "per_group_normalised": PerGroupNormalised,
    "pivot": Pivot,
    "pool": Pool,
    "return_to_go": ReturnToGo,
    "scale": ScaleReward,
    "sdar": Sdar,
    "teacher_center": TeacherCenter,
    "tva_gate": TvaGate,
    "vdn": Vdn,
    "weight": Weight,
    "weighted_sum": WeightedSum,
    "whiten": Whiten,
    "whiten_signal": WhitenSignal,
}


def make_rule(spec: Spec, field: str = "credit") -> list[Stage]:
    """Return the stages that a study file asks for.

    Args:
        spec: `grpo`; `{name: grpo, scale: none}`; or `[{stage: group, keys: [task]}, whiten]`.
        field: Where it stands in the file, for messages.

    Raises:
        UserError: If a rule, a stage or an option is unknown, or an option has the wrong type; the field is named.
    """
    if isinstance(spec, str):
        return typing.cast("list[Stage]", _made(RULES, "rule", spec, {}, field))
    if isinstance(spec, Mapping):
        if "name" not in spec:
            raise UserError(
                f"{field}: expected the name of a rule under 'name', got {', '.join(map(str, spec)) or '{}'}."
            )
        options = {key: value for key, value in spec.items() if key != "name"}
        return typing.cast("list[Stage]", _made(RULES, "rule", spec["name"], options, f"{field}.{spec['name']}"))
    if isinstance(spec, Sequence) and spec:
        return [_stage(each, f"{field}[{place}]") for place, each in enumerate(spec)]
    raise UserError(
        f"{field}: expected the name of a rule, a mapping with its name, or a list of stages; got {spec!r}."
    )


def _stage(spec: Any, field: str) -> Stage:
    if isinstance(spec, str):
        return typing.cast("Stage", _made(STAGES, "stage", spec, {}, field))
    if isinstance(spec, Mapping):
        if "stage" not in spec:
            raise UserError(f"{field}: expected a stage under 'stage', got {', '.join(map(str, spec)) or '{}'}.")
        options = {key: value for key, value in spec.items() if key != "stage"}
        return typing.cast("Stage", _made(STAGES, "stage", spec["stage"], options, f"{field}.{spec['stage']}"))
    if callable(spec):
        return typing.cast("Stage", spec)
    raise UserError(f"{field}: expected a stage, its name, or a mapping with both; got {spec!r}.")


def _made(known: Mapping[str, Callable[..., Any]], kind: str, name: Any, given: Mapping[str, Any], field: str) -> Any:
    if name not in known:
        raise UserError(f"{field}: there is no {kind} {name!r} ({_listed(known)}).{did_you_mean(str(name), known)}")
    return _called(known[name], f"{kind} {name}", given, field)


def _called(make: Callable[..., Any], what: str, given: Mapping[str, Any], field: str) -> Any:
    options = inspect.signature(make).parameters
    types = typing.get_type_hints(make)
    checked = {}
    for option, value in given.items():
        if option not in options:
            raise UserError(
                f"{field}: {what} has no option {option!r} ({_listed(options)}).{did_you_mean(str(option), options)}"
            )
        checked[option] = _checked(value, types[option], option, f"{field}.{option}")
    return make(**checked)


def _checked(value: Any, kind: Any, option: str, field: str) -> Any:
    """Return a value as its type wants it; lists become tuples, so that stages stay hashable."""
    from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return _called(typing.cast("Callable[..., Any]", kind), option, value, field)
    frozen = _frozen(value)
    try:
        TypeAdapter(kind).validate_python(frozen, strict=True)
    except PydanticSchemaGenerationError:
        return frozen
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{field}: got {value!r}; {first['msg'][0].lower()}{first['msg'][1:]}.") from None
    return frozen


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def _listed(names: Iterable[str]) -> str:
    return f"known: {', '.join(sorted(names)) or 'none'}"
