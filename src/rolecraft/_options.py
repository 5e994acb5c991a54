"""Options that a file gives to something that is called by keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rolecraft.errors import UserError, did_you_mean

Made = TypeVar("Made")


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
    for option in options:
        if option not in known:
            raise UserError(
                f"{what} has no option {option!r} (options: {', '.join(known) or 'none'}).{did_you_mean(option, known)}"
            )
    missing = [name for name, one in known.items() if one.default is one.empty and name not in options]
    if missing:
        raise UserError(f"{what} needs the option {missing[0]!r}.")
    return call(**options, **fixed)
