"""Rubrics: what a judging model is asked, how the judged texts are quoted, and how its reply is read."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecraft._files import bundled, read_mapping
from rolecraft.errors import UserError
from rolecraft.models._base import Message, chat
from rolecraft.roles import Role

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_SLOTS = ("role", "question", "answer", "reference", "first", "second")
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(r",\s*([}\]])")
_KEYS = {"name", "version", "scores", "system", "user"}
_OPTIONAL = {"max_tokens", "needs_reference"}


@dataclass(frozen=True)
class Rubric:
    """A versioned instruction to a judging model; the hash of its content stands with every score."""

    name: str
    version: str
    system: str
    user: str
    """Template; `{{role}}`, `{{question}}`, `{{answer}}`, `{{reference}}`, `{{first}}`, `{{second}}` are filled in."""
    scales: dict[str, tuple[float, float]]
    """Key of the reply to the lowest and highest value it may have; these become 0 and 100."""
    max_tokens: int
    needs_reference: bool
    hash: str

    def ask(self, texts: Mapping[str, str]) -> list[Message]:
        """Return the chat that asks for scores.

        Each text is quoted between tags that carry a key the text does not contain, so that no judged text can close
        its quotation and pose as an instruction. Braces in texts mean nothing.
        """
        return chat(_SLOT.sub(lambda slot: quoted(slot[1], texts[slot[1]]), self.user), self.system)

    def read(self, reply: str) -> dict[str, float | None]:
        """Return the scores of a reply on 0..100; None for each that is absent, no number, or off its scale."""
        found = parse_json_reply(reply, self.scales)
        return {key: _scaled(found.get(key), *scale) for key, scale in self.scales.items()}


def load_rubric(source: str | Path) -> Rubric:
    """Read a rubric.

    Args:
        source: Name of a bundled one (`role-alignment-v1`), or the path of a YAML or JSON file.

    Raises:
        UserError: If it is not found, or a field is missing, unknown or unusable (file and field are named).
    """
    path = bundled("measures", source)
    data: Any = read_mapping(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: a rubric must be a mapping of fields, got {type(data).__name__}.")
    for field in sorted(_KEYS - set(data)):
        raise UserError(f"{path}: a rubric needs the field {field!r}.")
    for field in sorted(set(data) - _KEYS - _OPTIONAL):
        raise UserError(f"{path}: unknown field {field!r} (known: {', '.join(sorted(_KEYS | _OPTIONAL))}).")
    for slot in _SLOT.findall(data["user"]):
        if slot not in _SLOTS:
            raise UserError(f"{path}: user: unknown slot {slot!r} (known: {', '.join(_SLOTS)}).")
    scales = {}
    for key, scale in dict(data["scores"]).items():
        try:
            scales[str(key)] = (float(scale["low"]), float(scale["high"]))
        except (TypeError, KeyError, ValueError):
            raise UserError(f"{path}: scores.{key}: expected {{low: NUMBER, high: NUMBER}}, got {scale!r}.") from None
        if not scales[str(key)][0] < scales[str(key)][1]:
            raise UserError(f"{path}: scores.{key}: low must be below high, got {scale!r}.")
    return Rubric(
        name=str(data["name"]),
        version=str(data["version"]),
        system=str(data["system"]),
        user=str(data["user"]),
        scales=scales,
        max_tokens=int(data.get("max_tokens", 64)),
        needs_reference=bool(data.get("needs_reference", False)),
        hash=hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16],
    )


def quoted(name: str, text: str) -> str:
    """Quote a text between `<name-KEY>` tags, where KEY is made from the text and does not occur in it."""
    key, seed = "", text
    while not key or key in text:
        seed = hashlib.sha256(seed.encode()).hexdigest()
        key = seed[:8]
    return f"<{name}-{key}>\n{text}\n</{name}-{key}>"


def describe_role(role: Role) -> str:
    """Return what a judge is told of a role."""
    parts = [f"{role.name}. {role.description}"]
    for label, texts in (
        ("How it talks", [role.style]),
        ("What it wants", role.goals),
        ("What it values", role.values),
    ):
        if any(texts):
            parts.append(f"{label}: {'; '.join(texts)}")
    return "\n".join(parts)


def parse_json_reply(reply: str, keys: Collection[str]) -> dict[str, Any]:
    """Return the last JSON object in a reply that holds one of `keys`; empty if there is none.

    Thinking, code fences and prose around it are passed over, and a comma before a closing bracket is forgiven.
    """
    text = _THINKING.sub(" ", reply)
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    for candidate in (text, _TRAILING_COMMA.sub(r"\1", text)):
        start = candidate.find("{")
        while start >= 0:
            try:
                value, end = decoder.raw_decode(candidate, start)
            except (json.JSONDecodeError, RecursionError):
                end = start + 1
            else:
                if set(value) & set(keys):
                    found = value
            start = candidate.find("{", end)
        if found:
            break
    return found


def _scaled(value: Any, low: float, high: float) -> float | None:
    """Map a number, or a string that is one, from its scale to 0..100."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number) or not low <= number <= high:
        return None
    return 100 * (number - low) / (high - low)
