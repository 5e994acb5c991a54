"""Who plays a member: a function, or a language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft.errors import ModelError
from rolecraft.teams._run_team import TurnView, Utterance

if TYPE_CHECKING:
    from rolecraft.models import LanguageModel, Message, Sampling


@dataclass(frozen=True)
class FunctionSpeaker:
    """A member played by a function of what it sees."""

    say: Callable[[TurnView], Utterance | str]

    def speak(self, view: TurnView) -> Utterance:
        """Say what the function returns; a text is a message without calls."""
        said = self.say(view)
        return Utterance(said) if isinstance(said, str) else said


def view_chat(view: TurnView) -> list[Message]:
    """Return a turn as a chat: the prompt as system text; the task and what was heard as the user's message."""
    from rolecraft.models import chat

    heard = [f"{each.sender}: {each.text}" for each in view.heard]
    return chat("\n\n".join(part for part in (view.task, *heard) if part) or "Begin.", view.prompt)


@dataclass(frozen=True)
class ModelSpeaker:
    """A member played by a language model; it writes messages and calls no tools."""

    model: LanguageModel
    sampling: Sampling | None = None
    """None: greedy, at most 64 tokens."""

    def speak(self, view: TurnView) -> Utterance:
        """Reply to the chat of the turn.

        Raises:
            ModelError: If the model fails on it.
        """
        from rolecraft.models import Sampling

        sampling = self.sampling or Sampling(max_tokens=64, temperature=0.0, top_p=1.0)
        done = self.model.generate([view_chat(view)], sampling, seeds=[view.seed])[0]
        if done.finish == "error":
            raise ModelError(f"{self.model.name}: {done.note}")
        return Utterance(done.text.strip())
