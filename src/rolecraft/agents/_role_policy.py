"""Screened roles as policies: every agent acts under its own role, by prompt or by direction, in one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft.conditioning import Direction, Intervention, Steering, conditioned
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models import Chat, LanguageModel, Sampling, chat, choose
from rolecraft.worlds import Act, View

if TYPE_CHECKING:
    from rolecraft.screening import Admission

SPEECH = Sampling(max_tokens=64, temperature=0.7, top_p=0.95)
"""Default sampling of free text."""


@dataclass(frozen=True)
class Part:
    """How one role is put on: the system side of its prompts, and what is done to the residual stream."""

    admission: Admission | None
    """None: no role, the model as it is."""
    interventions: tuple[Intervention, ...] = ()

    @classmethod
    def of(cls, admission: Admission | None) -> Part:
        """Read the direction of a steered role.

        Raises:
            UserError: If its file cannot be read.
        """
        if admission is None or admission.conditioner == "prompt":
            return cls(admission)
        assert admission.direction is not None
        assert admission.strength is not None
        direction = Direction.load(admission.direction)
        return cls(admission, (direction.steer(admission.strength, admission.site),))

    def chat(self, observation: str) -> Chat:
        """Return what the model is shown: a steered role needs no system text."""
        if self.admission is None or self.interventions:
            return chat(observation)
        return conditioned(self.admission.role, observation, self.admission.rung)


class RolePolicy:
    """One model that acts for all agents, each under the role its view names.

    Where there are legal actions, the likeliest is taken, so that the smallest model plays whole games legally; where
    actions are free text, a reply is drawn. All views of a call are scored, or decoded, in one batch.
    """

    def __init__(
        self,
        model: LanguageModel,
        cast: Mapping[str, Admission],
        sampling: Sampling = SPEECH,
        bare: bool = False,
        adjust: Callable[[View, Part], Part] | None = None,
    ) -> None:
        """Bind a model and the roles that may act.

        Args:
            model: Plays all roles.
            cast: What `RolesLock.admit` let in, by role id.
            sampling: For free text.
            bare: Leave every role out: the control that shows what roles change.
            adjust: Changes how a role is put on for one decision, such as what a drift watch orders.

        Raises:
            UserError: If the direction of a steered role cannot be read.
        """
        self._model, self._sampling, self._adjust = model, sampling, adjust
        self._parts = {name: Part.of(None if bare else admission) for name, admission in cast.items()}

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view.

        Raises:
            UserError: If a view names a role outside the cast.
        """
        acts: list[Act | None] = [None] * len(views)
        for free in (False, True):
            places = [place for place, view in enumerate(views) if (view.legal is None) == free]
            answer = self._speak if free else self._choose
            for place, act in zip(places, answer([views[place] for place in places]), strict=True):
                acts[place] = act
        return [act for act in acts if act is not None]

    def _choose(self, views: Sequence[View]) -> list[Act]:
        parts = [self._part(view) for view in views]
        options = [view.legal or () for view in views]
        chats = [part.chat(view.observation) for part, view in zip(parts, views, strict=True)]
        chosen = choose(self._model, chats, options, steering=_steering(parts))
        return [Act(option[index]) for option, index in zip(options, chosen, strict=True)]

    def _speak(self, views: Sequence[View]) -> list[Act]:
        if not views:
            return []
        parts = [self._part(view) for view in views]
        chats = [part.chat(view.observation) for part, view in zip(parts, views, strict=True)]
        replies = self._model.generate(chats, self._sampling, _steering(parts), [view.seed for view in views])
        return [
            Act(
                reply.text.strip(),
                {"tokens": reply.tokens, "prompt_tokens": reply.prompt_tokens, "end": reply.finish}
                | ({"note": reply.note} if reply.note else {}),
            )
            for reply in replies
        ]

    def _part(self, view: View) -> Part:
        if view.role is None:
            return Part(None)
        if view.role not in self._parts:
            raise UserError(
                f"{view.agent} plays {view.role!r}, which is not in the cast ({', '.join(self._parts)})."
                f"{did_you_mean(view.role, self._parts)}"
            )
        part = self._parts[view.role]
        return self._adjust(view, part) if self._adjust else part


def _steering(parts: Sequence[Part]) -> Steering | None:
    rows = tuple(part.interventions for part in parts)
    return Steering(rows) if any(rows) else None
