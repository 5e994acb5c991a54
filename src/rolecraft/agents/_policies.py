"""Simple policies: random, scripted, and a language model that does nothing but choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rolecraft.agents._choices import LIKELIEST, Choice
from rolecraft.agents._language_policy import LanguagePolicy
from rolecraft.agents._part import Part
from rolecraft.errors import UserError
from rolecraft.models import LanguageModel
from rolecraft.worlds import Act, View


class RandomPolicy:
    """Takes a uniformly random legal action; says nothing where actions are free text."""

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return [Act(view.legal[int(view.rng().integers(len(view.legal)))] if view.legal else "") for view in views]


class ScriptedPolicy:
    """A function from a view to an action."""

    def __init__(self, choose: Callable[[View], str]) -> None:
        """Wrap a function."""
        self._choose = choose

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return Act.each(map(self._choose, views))


class ChoicePolicy(LanguagePolicy):
    """A language policy that does nothing but choose among legal actions, under plain system texts.

    No reply is parsed, so that the smallest model plays whole games legally. All views are scored in one call.
    """

    def __init__(self, model: LanguageModel, systems: str | Mapping[str, str] = "", choose: Choice = LIKELIEST) -> None:
        """Bind a model.

        Args:
            model: Scores the options.
            systems: The system text: one for all, or by role id or by agent; a role counts before an agent.
            choose: Takes the likeliest, or draws one (`Drawn`).
        """
        super().__init__(model, self._system, sampling=None, choose=choose)
        self._systems = systems

    def _system(self, view: View) -> Part:
        if isinstance(self._systems, str):
            return Part(system=self._systems)
        for name in (view.role, view.agent):
            if name is not None and name in self._systems:
                return Part(system=self._systems[name])
        playing = f", who plays {view.role!r}" if view.role else ""
        raise UserError(f"no system text for {view.agent}{playing}; there are texts for {', '.join(self._systems)}.")
