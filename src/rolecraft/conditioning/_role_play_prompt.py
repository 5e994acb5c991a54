"""A role that the user sets and the model accepts in its own words, before the question is put (arXiv 2308.07702)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rolecraft._run import derive_seed
from rolecraft.errors import ModelError
from rolecraft.models import LanguageModel, Message, Sampling, chat

_REFUSAL = re.compile(
    r"\bas an? (?:AI|artificial|language model|large language)|"
    r"\bI(?:'m| am) (?:just |only )?an? (?:AI|language model)\b|"
    r"\bI(?:'m| am) sorry,? (?:but )?I|\bI (?:can(?:no|')t|am unable to|won't|will not) (?:play|do|act|take|help|be)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RolePlayPrompt:
    """A role, set by the user and accepted by the model."""

    role_setting: str
    """Assigns the role and its skill, and gives the user the counterpart."""
    role_feedback: str = ""
    """The model's reply; empty: the role stands in one message with the question, without immersion."""
    user_counter_role: str = "the one who asks"
    """Whom the user plays."""

    def frame(self, question: str) -> list[Message]:
        """Return the dialogue in which a question is asked."""
        if not self.role_feedback:
            return chat(f"{self.role_setting}\n\n{question}")
        accepted: Message = {"role": "assistant", "content": self.role_feedback}
        return chat(question, history=[{"role": "user", "content": self.role_setting}, accepted])


def feedback_flaw(reply: str) -> str:
    """Return why a reply is no role-feedback, or an empty text: it is empty, or it refuses the role."""
    if not reply.strip():
        return "empty"
    return "refusal" if _REFUSAL.search(reply.replace("’", "'")) else ""


def sample_feedback(
    model: LanguageModel, setting: str, count: int, *, seed: int = 0, attempts: int = 4, max_tokens: int = 48
) -> list[str]:
    """Sample distinct replies that accept a role.

    Args:
        model: Plays the role.
        setting: The role-setting message.
        count: How many are wanted; fewer come back if the model repeats or refuses itself.
        seed: Of the draws.
        attempts: Rounds of `count` draws at most.
        max_tokens: Per reply; a reply that was cut ends with its last whole sentence.

    Raises:
        ModelError: If no reply is valid; the replies are shown.
    """
    found: dict[str, None] = {}
    refused: list[str] = []
    for attempt in range(attempts):
        seeds = [derive_seed("role-feedback", setting, seed, attempt, draw) for draw in range(count)]
        sampling = Sampling(max_tokens=max_tokens, temperature=0.7, top_p=0.95)
        for completion in model.generate([chat(setting)] * count, sampling, seeds=seeds):
            reply = completion.text.strip()
            if completion.finish == "length" and (cut := re.match(r".*[.!?]", reply, re.DOTALL)):
                reply = cut[0]
            flaw = feedback_flaw(reply)
            if flaw:
                refused.append(f"{flaw}: {reply[:80]!r}")
            elif len(found) < count:
                found[reply] = None
        if len(found) >= count:
            break
    if not found:
        shown = "\n  ".join(refused[:5])
        raise ModelError(f"{model.name} did not accept the role {setting[:60]!r} in {len(refused)} replies:\n  {shown}")
    return list(found)
