"""A language model in the seats of a dialogue: each seat has its own system text and its own side of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rolecraft.agents._inception import DialoguePrompts, inception_prompts
from rolecraft.errors import UserError
from rolecraft.models import Chat, Completion, LanguageModel, Message, Sampling
from rolecraft.worlds import Act, DialogueView, View, read_dialogue

TALK = Sampling(max_tokens=256, temperature=0.7, top_p=0.95)
"""Default sampling of a message."""
_SILENT = "(says nothing)"


class DialoguePolicy:
    """Speaks for any seat of any `Dialogue`, all in one batch.

    A seat's chat is made from its view alone: the system text of its role, then the dialogue with its own messages as
    the assistant's and its partner's as the user's. Nothing is kept between calls, so that no seat can get at the
    other's prompt, and a resumed dialogue goes on as it would have.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompts: DialoguePrompts | None = None,
        sampling: Sampling = TALK,
        *,
        window: int | None = None,
        size: Callable[[Chat], int] | None = None,
        descriptions: Mapping[str, str] | None = None,
    ) -> None:
        """Bind a model.

        Args:
            model: Speaks for all seats.
            prompts: Default: `inception_prompts()`.
            sampling: Of every message.
            window: Most tokens of a chat and its reply; the oldest exchanges are left out of a longer one, the system
                text and the last message never. Default: the context of a local model, else none.
            size: Tokens of a chat. Default: by the model's own tokenizer where it has one, else a third of the letters.
            descriptions: Text on a role by its id, added to the system text of a view that names it.

        Raises:
            UserError: If the window leaves no room for a prompt.
        """
        self._model, self._sampling = model, sampling
        self._prompts = prompts or inception_prompts()
        self._window = _context(model) if window is None else window
        self._size = size or _tokens(model)
        self._descriptions = descriptions or {}
        if self._window is not None and self._window <= sampling.max_tokens:
            raise UserError(
                f"window must exceed the {sampling.max_tokens} tokens of a reply, got {self._window}; widen it, or "
                "lower max_tokens."
            )

    def act(self, views: Sequence[View]) -> list[Act]:
        """Say something for every view.

        A message that the model failed to write is empty, and its note `failure` says why; in a `Dialogue` that is
        silence, which ends it.

        Raises:
            UserError: If a view is not one of a dialogue.
        """
        if not views:
            return []
        chats, dropped = zip(*(self.chat(view) for view in views), strict=True)
        replies = self._model.generate(chats, self._sampling, None, [view.seed for view in views])
        return [_act(reply, left_out) for reply, left_out in zip(replies, dropped, strict=True)]

    def chat(self, view: View) -> tuple[list[Message], int]:
        """Return what the model is shown for a view, and how many messages were left out.

        Raises:
            UserError: If the view is not one of a dialogue.
        """
        seen = read_dialogue(view.observation)
        text = self._prompts.system(seen)
        if view.role is not None and view.role in self._descriptions:
            text += f"\n{self._descriptions[view.role]}"
        system: Message = {"role": "system", "content": text}
        history = self._history(seen)
        if self._window is None:
            return [system, *history], 0
        room, dropped = self._window - self._sampling.max_tokens, 0
        # Exchanges go in pairs, so that the history still opens with the partner, as chat templates demand.
        while len(history) - dropped > 2 and self._size([system, *history[dropped:]]) > room:
            dropped += 2
        return [system, *history[dropped:]], dropped

    def _history(self, seen: DialogueView) -> list[Message]:
        """Return the dialogue from one seat's side; it opens and ends with a message of the partner."""
        history: list[Message] = []
        if not seen.said or seen.said[0].sender == seen.seat:
            history.append({"role": "user", "content": self._prompts.opening})
        for message in seen.said:
            content = message.text or _SILENT
            history.append({"role": "assistant" if message.sender == seen.seat else "user", "content": content})
        return history


def _act(reply: Completion, dropped: int) -> Act:
    notes = {"tokens": reply.tokens, "prompt_tokens": reply.prompt_tokens, "end": reply.finish}
    text = reply.text.strip()
    if dropped:
        notes["dropped"] = dropped
    if reply.finish == "error":
        return Act("", notes | {"failure": reply.note or "the model gave no reply"})
    return Act(text, notes if text else notes | {"failure": "the model's reply is empty"})


def _context(model: LanguageModel) -> int | None:
    """Return the context length of a local model; None where it is not known."""
    config = getattr(getattr(model, "model", None), "config", None)
    return getattr(config, "max_position_embeddings", None)


def _tokens(model: LanguageModel) -> Callable[[Chat], int]:
    encode = getattr(model, "encode", None)
    if encode is not None:
        return lambda chat: len(encode(chat))
    return lambda chat: sum(4 + len(message["content"]) // 3 for message in chat)
