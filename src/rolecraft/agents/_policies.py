"""Policies that need no training: random, scripted, and a language model that chooses by log-probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, chat, choose
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
        return [Act(self._choose(view)) for view in views]


class ChoicePolicy:
    """A language model that takes the legal action it finds likeliest as its reply.

    No reply is parsed, so that the smallest model plays whole games legally. All views are scored in one call.
    """

    def __init__(
        self, model: LanguageModel, systems: str | Mapping[str, str] = "", length_normalised: bool = True
    ) -> None:
        """Bind a model.

        Args:
            model: Scores the options.
            systems: The system text, of all agents or by agent.
            length_normalised: See `rolecraft.models.choose`.
        """
        self._model, self._systems, self._length_normalised = model, systems, length_normalised

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view.

        Raises:
            UserError: If actions are free text, or an agent has no system text.
        """
        chats = [chat(view.observation, self._system(view.agent)) for view in views]
        options = [self._options(view) for view in views]
        chosen = choose(self._model, chats, options, self._length_normalised)
        return [Act(option[index]) for option, index in zip(options, chosen, strict=True)]

    def _system(self, agent: str) -> str:
        if isinstance(self._systems, str):
            return self._systems
        if agent not in self._systems:
            raise UserError(f"no system text for {agent}; there are texts for {', '.join(self._systems)}.")
        return self._systems[agent]

    def _options(self, view: View) -> tuple[str, ...]:
        if view.legal is None:
            raise UserError(f"{view.agent} may say any text here; a choice needs legal actions.")
        return view.legal
