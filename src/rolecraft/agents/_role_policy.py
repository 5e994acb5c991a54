"""Screened roles as policies: every agent acts under its own role, by prompt or by direction, in one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Unpack

from rolecraft.agents._language_policy import SPEECH, LanguagePolicy, PolicyParts
from rolecraft.agents._part import Part
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models import LanguageModel, Sampling
from rolecraft.worlds import View

if TYPE_CHECKING:
    from rolecraft.screening import Admission

__all__ = ["SPEECH", "Part", "RolePolicy"]


class RolePolicy(LanguagePolicy):
    """A language policy for a cast: each agent acts under the role that its view names."""

    def __init__(
        self,
        model: LanguageModel,
        cast: Mapping[str, Admission],
        sampling: Sampling = SPEECH,
        bare: bool = False,
        adjust: Callable[[View, Part], Part] | None = None,
        **parts: Unpack[PolicyParts],
    ) -> None:
        """Bind a model and the roles that may act.

        Args:
            model: Plays all roles.
            cast: What `RolesLock.admit` let in, by role id.
            sampling: For free text.
            bare: Leave every role out: the control that shows what roles change.
            adjust: Changes how a role is put on for one decision, such as what a drift watch orders.
            parts: Memory, tools and the other optional parts of `LanguagePolicy`.

        Raises:
            UserError: If the direction of a steered role cannot be read, or parts do not fit together.
        """
        self._cast = {name: Part.of(None if bare else admission) for name, admission in cast.items()}
        self._adjust = adjust
        super().__init__(model, self._put_on, sampling=sampling, **parts)

    def _put_on(self, view: View) -> Part:
        if view.role is None:
            return Part(None)
        if view.role not in self._cast:
            raise UserError(
                f"{view.agent} plays {view.role!r}, which is not in the cast ({', '.join(self._cast)})."
                f"{did_you_mean(view.role, self._cast)}"
            )
        part = self._cast[view.role]
        return self._adjust(view, part) if self._adjust else part
