"""Options that a file gives to something that is called by keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rolecraft.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

Made = TypeVar("Made")
Model = TypeVar("Model", bound="BaseModel")


def refuse_unknown(given: Iterable[Any], known: Collection[str], what: str, kind: str = "field") -> None:
    """Refuse the first name that is not known.

    Args:
        given: Names.
        known: Those there are.
        what: What they belong to, as an error begins.
        kind: What they are names of.

    Raises:
        UserError: With all known names and the nearest one.
    """
    for name in given:
        if name not in known:
            near = did_you_mean(str(name), known)
            raise UserError(f"{what} has no {kind} {name!r} ({kind}s: {', '.join(known) or 'none'}).{near}")


def read_model(
    path: Path, kind: type[Model], *, also: Collection[str] = (), given: Mapping[str, Any] | None = None
) -> Model:
    """Read a file of fields into a pydantic model.

    Args:
        path: The file.
        kind: The model.
        also: Names that its validators take beside its fields.
        given: Fields instead of those in the file.

    Raises:
        UserError: If the file cannot be read, or a field is unknown, missing or out of range; file and field are named.
    """
    from pydantic import ValidationError

    from rolecraft._files import read_mapping
    from rolecraft.roles._role import describe

    names = [*kind.model_fields, *also]
    data = read_mapping(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping of fields ({', '.join(names)}).")
    refuse_unknown(data, names, f"{path}: a study")
    try:
        return kind.model_validate({**data, **(given or {})})
    except ValidationError as error:
        raise UserError(f"{path}: {describe(error)}.") from None


def call_with(call: Callable[..., Made], options: Mapping[str, Any], what: str, **fixed: Any) -> Made:
    """Call with options from a file.

    Args:
        call: Takes all of them by keyword.
        options: By name.
        what: What they belong to, as an error begins.
        fixed: Arguments that no file may give.

    Raises:
        UserError: If an option is unknown or missing, or what is called refuses a value.
    """
    found = inspect.signature(call).parameters
    known = {name: one for name, one in found.items() if name not in fixed and not name.startswith("_")}
    refuse_unknown(options, known, what, "option")
    missing = [name for name, one in known.items() if one.default is one.empty and name not in options]
    if missing:
        raise UserError(f"{what} needs the option {missing[0]!r}.")
    return call(**options, **fixed)
