"""A cap on activations, as a guard: how far a role's residual stream may go along its direction (Assistant Axis)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rolecraft.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from rolecraft.conditioning import Direction, Intervention
    from rolecraft.models import LanguageModel

CAP_FIELDS = ("at_least", "at_most", "direction", "sha256", "site")


@dataclass(frozen=True)
class Cap:
    """Bounds of the projection on a direction, in the units in which a screen reports it.

    Every new token's state h is moved along the unit vector u of the direction until `at_least <= <h, u> <= at_most`;
    what lies within is left as it is (activation capping, arXiv 2601.10387).
    """

    at_least: float | None = None
    at_most: float | None = None
    direction: str = ""
    """File of the direction, relative to the policy; empty: the role's own, as its screen left it."""
    sha256: str = ""
    """Of that file; empty: not checked."""
    site: int | None = None
    """Decoder block; None: the direction's own."""

    def row(self) -> dict[str, Any]:
        """Return the cap as it may stand in a file."""
        return {name: value for name in CAP_FIELDS if (value := getattr(self, name)) not in (None, "")}

    def compared(self, new: Cap) -> Literal["equal", "narrower", "wider", "unknown"]:
        """Return what another cap is, seen from this one; `unknown` where both bound different things."""
        if (self.direction, self.sha256, self.site) != (new.direction, new.sha256, new.site):
            return "unknown"
        old_low, new_low = (-math.inf if one.at_least is None else one.at_least for one in (self, new))
        old_high, new_high = (math.inf if one.at_most is None else one.at_most for one in (self, new))
        if (old_low, old_high) == (new_low, new_high):
            return "equal"
        return "narrower" if new_low >= old_low and new_high <= old_high else "wider"

    def interventions(
        self, model: LanguageModel, role: str, own: Direction | None = None, folder: Path | None = None
    ) -> tuple[Intervention, ...]:
        """Return what is done to a model, to be put among the interventions of the role's part.

        Args:
            model: Plays the role.
            role: Its id, for messages.
            own: The role's direction, which a cap without a file of its own takes.
            folder: Of the policy's file.

        Raises:
            UserError: If the model is served and its states cannot be reached, or there is no direction, or its file is
                missing, altered, or of another model.
        """
        from rolecraft.conditioning import Direction, ReadableModel

        if not isinstance(model, ReadableModel):
            raise UserError(
                f"the guard of role {role!r} caps activations, and {model.name!r} gives no access to its states; use "
                "local:smollm2 or local:PATH, or a policy without `cap`."
            )
        found = own
        if self.direction:
            path = (folder or Path()) / self.direction
            if not path.is_file():
                raise UserError(f"the guard of role {role!r}: cap.direction: no file {path}.")
            if self.sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != self.sha256:
                raise UserError(f"the guard of role {role!r}: cap.direction: {path} is not the file that was named.")
            found = Direction.load(path)
        if found is None:
            raise UserError(
                f"the guard of role {role!r} caps activations, and the lock has no direction of the role; name a file "
                "in cap.direction, or screen the role by steering."
            )
        found.check(model)
        low, high = self.at_least, self.at_most
        made = [] if high is None else [found.steer(1.0, self.site, operator="cap", threshold=high)]
        return (*made, *([] if low is None else [(-found).steer(1.0, self.site, operator="cap", threshold=-low)]))


def make_cap(data: Any, where: str) -> Cap:
    """Make a cap of what a file holds.

    Raises:
        UserError: If a field is unknown or out of range, or there is no bound.
    """
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a mapping with {', '.join(CAP_FIELDS)}, got {data!r:.60}.")
    for name in data:
        if name not in CAP_FIELDS:
            near = did_you_mean(str(name), CAP_FIELDS)
            raise UserError(f"{where}: unknown field {name!r:.60} (fields: {', '.join(CAP_FIELDS)}).{near}")
    bounds = {name: data.get(name) for name in ("at_least", "at_most")}
    for name, value in bounds.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)
                                  or not math.isfinite(value)):  # fmt: skip
            raise UserError(f"{where}.{name}: expected a number, got {value!r:.40}.")
    low, high = (None if value is None else float(value) for value in bounds.values())
    if low is None and high is None:
        raise UserError(f"{where}: expected at_least or at_most, in units of the projection on the direction.")
    if low is not None and high is not None and low > high:
        raise UserError(f"{where}: at_least {low:g} is above at_most {high:g}.")
    site = data.get("site")
    if site is not None and (isinstance(site, bool) or not isinstance(site, int) or site < 0):
        raise UserError(f"{where}.site: expected the number of a decoder block from 0, got {site!r:.40}.")
    for name in ("direction", "sha256"):
        if not isinstance(data.get(name, ""), str):
            raise UserError(f"{where}.{name}: expected text, got {data[name]!r:.60}.")
    return Cap(low, high, data.get("direction", ""), data.get("sha256", ""), site)
