"""Frozen records in the making: a record that is made for every decision must cost little."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, fields, make_dataclass
from typing import Any


def open_form(kind: type, later: Collection[str] = ()) -> Any:
    """Return a class whose instances are laid out as those of a frozen dataclass, and can be written to.

    A frozen dataclass sets each of its fields by a call, which takes four times as long as to set it. Make the open
    form instead, write to it, and close it by giving it the frozen class:

    ```python
    turn = OpenTurn(0, "Ann", "It is your turn.", "pass")
    turn.after = world.state_hash()
    turn.__class__ = Turn
    ```

    Args:
        kind: A frozen dataclass with slots.
        later: Fields that the open form's constructor leaves unset.

    Example:
        ```python
        OpenTurn = open_form(Turn)
        ```
    """
    return make_dataclass(
        f"Open{kind.__name__}",
        [
            (
                one.name,
                one.type,
                field(init=False)
                if one.name in later
                else field(default=one.default, default_factory=one.default_factory),
            )
            for one in fields(kind)
        ],
        bases=kind.__bases__,
        eq=False,
        slots=True,
    )
