"""The presets of `ScriptedModel`: replies made out of what the prompt says."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence

from rolecraft.models._base import Chat

_ARTICLE = r"(?:an?|the)\s+"
_NAME = r"[\w'’-]+(?:\s+[\w'’-]+){0,3}"
_ASSIGNS = (
    rf"\b(?:role|part|voice) of\s+{_ARTICLE}({_NAME})",
    rf"\b(?:you are|you're|act as|pretend to be|play|imagine(?: being)?|be|become)\s+{_ARTICLE}({_NAME})",
    r"\b(?:[Yy]ou are|[Aa]ct as|[Pp]lay)\s+((?:[A-Z][\w'’-]*\s?){1,4})",
)
"""How a prompt assigns a role; only these count in a user message."""
_NAMES = (rf"\b(?:as|being|like|portray|yourself|i,)\s+{_ARTICLE}({_NAME})",)
_PROFILE = 6
"""Content words from which on a system message that names nobody still paints a role."""
_END = re.compile(
    r"\s+(?:who|whose|which|that|where|when|at|in|on|of|with|without|for|from|to|by|and|or|but|as|is|are|has|have|after"
    r"|before|during|inside|through|between|over|under|near|about|into|while|\w{2,}ing)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_ASSISTANT = re.compile(r"\b(assistant|chatbot|language model|ai)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{4,}")
_QUOTED = re.compile(r"<(\w+)((?:-\w+)?)>\n?(.*?)\n?</\1\2>", re.DOTALL)
_ASKED = re.compile(r'"(\w+)":(?:\s*<([^<>]*)>)?')
_STOP = frozenset(
    _WORD.findall(
        """
        about above after again also always answer anything because been before being between both character
        could does each ever every everything first from have having here imagine into just like make more
        most much must never only other over own person play please question reply respond role same should
        since some something speak stay such than that their them then there these they thing things this
        those through time under until very voice want were what when where which while will with would your
        yours yourself
        """,
    )
)
_FIRST_PERSON = (
    (r"\b[Yy]ou are\b", "I am"),
    (r"\b[Yy]ou were\b", "I was"),
    (r"\b(for|to|with|of|at|from|by|about|on|in) you\b", r"\1 me"),
    (r"\b[Yy]ou\b", "I"),
    (r"\b[Yy]ourself\b", "myself"),
    (r"\b[Yy]ours\b", "mine"),
    (r"\byour\b", "my"),
    (r"\bYour\b", "My"),
)


def content_words(text: str) -> list[str]:
    """Return the distinct words of four letters and more that carry content, in lower case, in their order."""
    return list(dict.fromkeys(word for word in _WORD.findall(text.lower()) if word not in _STOP))


def find_role(chat: Chat) -> tuple[str, str] | None:
    """Return the name of the role that a chat assigns ("" if it is only painted) and the message that does so, or None.

    A message that calls for a mere assistant assigns no role, nor does a short system message that names nobody.
    """
    for message in chat:
        text = message["content"]
        patterns = {"system": _ASSIGNS + _NAMES, "user": _ASSIGNS}.get(message["role"], ())
        for pattern in patterns:
            if found := re.search(pattern, text, re.IGNORECASE if _ARTICLE in pattern else 0):
                name = _END.sub("", found[1]).strip()
                return None if _ASSISTANT.search(name) else (name, text)
        if message["role"] == "system" and len(content_words(text)) >= _PROFILE:
            return None if _ASSISTANT.search(text) else ("", text)
    return None


def _asked(chat: Chat) -> str:
    return next((message["content"] for message in reversed(chat) if message["role"] == "user"), "")


def role_player(chat: Chat, seed: int) -> str:
    """Speak as the role of the prompt: two of its sentences in the first person, and three of its words."""
    topic = (content_words(_asked(chat)) or ["that"])[-1]
    role = find_role(chat)
    if role is None:
        return f"As an AI assistant, I can offer some general information about {topic}. How can I help you further?"
    name, text = role
    draw = random.Random(f"{seed} {text} {_asked(chat)}")
    parts = [part for part in re.split(r"(?<=[.!?;])\s+", text) if not _ASSISTANT.search(part)]
    told = [part for part in parts if re.match(r"(You|Your)\b(?! are an? )", part)]
    sentences = [_first_person(part) for part in draw.sample(told, min(2, len(told)))]
    words = content_words(" ".join(parts))
    picked = draw.sample(words, min(3, len(words)))
    opening = f"You ask {_with_article(name)} about {topic}?" if name else f"You ask me about {topic}?"
    return " ".join([opening, *sentences, f"I think of {', '.join(picked)}."])


def _with_article(name: str) -> str:
    if name[:1].isupper():
        return name
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _first_person(sentence: str) -> str:
    for pattern, mine in _FIRST_PERSON:
        sentence = re.sub(pattern, mine, sentence)
    return sentence


def echo(chat: Chat, seed: int) -> str:
    """Repeat the last user message."""
    return _asked(chat)


def refuser(chat: Chat, seed: int) -> str:
    """Decline whatever is asked."""
    return "I'm sorry, but I can't help with that request."


def nonsense(chat: Chat, seed: int) -> str:
    """Say what no judge may say: words, a stray brace, a number that is no score."""
    draw = random.Random(f"{seed} {_asked(chat)}")
    words = draw.sample(["ladder", "purple", "seven", "kettle", "moth", "sideways", "brine", "quorum"], 5)
    return f"{{{' '.join(words)} {draw.randint(200, 999)}"


def judge(chat: Chat, seed: int) -> str:
    """Reply with the JSON a rubric asks for, each score growing with the words the answer shares with the role.

    The prompt must quote its texts between tags as `rolecraft.measures` rubrics do (`<role-KEY>`, `<answer-KEY>`, or
    `<first-KEY>` and `<second-KEY>`; the key is optional). Asked-for keys are the quoted names before a colon; the
    numbers in the angle brackets behind one (`"overall": <0 to 100>`) give its scale, else 0 to 100. `first` and
    `second` score those answers, every other key the answer. Five shared words reach the top of the scale; a text that
    repeats its words earns the share of them that is distinct.
    """
    prompt = "\n".join(message["content"] for message in chat)
    texts = {found[1]: found[3] for found in _QUOTED.finditer(prompt)}
    asked = _ASKED.findall(_QUOTED.sub(" ", prompt)) or [("score", "")]
    scores = {}
    for key, scale in asked:
        answer = texts.get(key if key in ("first", "second") else "answer", "")
        limits = [int(number) for number in re.findall(r"\d+", scale)] or [0, 100]
        share = _overlap(answer, texts.get("role", ""))
        scores[key] = round(limits[0] + share * (limits[-1] - limits[0]))
    return json.dumps(scores)


def _overlap(answer: str, role: str) -> float:
    """Return in [0, 1] how much of five content words the answer shares with the role, times its distinct share."""
    words: Sequence[str] = _WORD.findall(answer.lower())
    shared = set(content_words(answer)) & set(content_words(role))
    return min(1.0, len(shared) / 5) * len(set(words)) / max(1, len(words))


PRESETS: dict[str, Callable[[Chat, int], str]] = {
    "echo": echo,
    "judge": judge,
    "nonsense": nonsense,
    "refuser": refuser,
    "role-player": role_player,
}
