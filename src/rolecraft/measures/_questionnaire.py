"""Questionnaires: an instrument of rated statements, how it is put to a model, and how its answers are scored."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft._files import bundled, read_mapping
from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models._base import Chat, LanguageModel, Message, Sampling

Floats = NDArray[np.float64]
MISSING_LIMIT = 0.2
"""Share of a trait's items that may lack an answer; above it the trait has no score."""
_FIELDS = {"name": str, "version": str, "instructions": list, "scale": list, "items": list}
_ITEM_FIELDS = {"id": str, "trait": str, "text": str}
_NUMBER = re.compile(r"(?<![\w.,-])-?\d+(?:[.,]\d+)?(?![\w-])(?![.,]\d)")
_OUT_OF = re.compile(r"(?<=\d)\s*(?:/|out of)\s*\d+\b", re.IGNORECASE)
_RANGE = re.compile(r"\b\d+\s*(?:-|–|to)\s*\d+\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\bas an? (?:ai|artificial|(?:large )?language model)\b|\bi (?:cannot|can't|will not|won't)\b", re.I
)


@dataclass(frozen=True)
class QuestionnaireItem:
    """One statement."""

    id: str
    text: str
    trait: str
    reverse: bool = False
    """Agreement counts against the trait."""


@dataclass(frozen=True)
class QuestionnaireScore:
    """What a sheet of answers says."""

    traits: dict[str, float]
    """Mean of the keyed answers; NaN where more than 20 % of the items lack one."""
    missing: dict[str, int]
    """Items without an answer, per trait."""
    straight_lining: bool
    """Every item got the same digit, so that the answers cannot be about the statements."""


@dataclass(frozen=True)
class Questionnaire:
    """A versioned instrument; `load_questionnaire` reads one."""

    name: str
    version: str
    instructions: tuple[str, ...]
    """How an item is asked, in several wordings; `{{statement}}` and `{{scale}}` are filled in."""
    scale: tuple[str, ...]
    """Labels of the answers 1, 2, ..."""
    items: tuple[QuestionnaireItem, ...]
    hash: str

    @property
    def traits(self) -> tuple[str, ...]:
        """The traits, in order of appearance."""
        return tuple(dict.fromkeys(item.trait for item in self.items))

    @property
    def digits(self) -> tuple[str, ...]:
        """The answers as texts: "1", "2", ..."""
        return tuple(str(number) for number in range(1, len(self.scale) + 1))

    def order(self, seed: int) -> tuple[QuestionnaireItem, ...]:
        """Return the items in an order that follows from the seed alone."""
        return tuple(self.items[place] for place in np.random.default_rng(seed).permutation(len(self.items)))

    def ask(self, item: QuestionnaireItem, wording: int = 0) -> Message:
        """Return the message that asks for one rating; wordings are counted modulo how many there are."""
        labels = ", ".join(f"{digit} = {label}" for digit, label in zip(self.digits, self.scale, strict=True))
        text = self.instructions[wording % len(self.instructions)]
        return {"role": "user", "content": text.replace("{{scale}}", labels).replace("{{statement}}", item.text)}

    def short(self, per_trait: int) -> Questionnaire:
        """Return the instrument with the first items of each trait, keyed and reversed ones by turns.

        Raises:
            UserError: If fewer than 2 are asked for, or a trait has too few of either keying.
        """
        kept: set[str] = set()
        for trait in self.traits:
            for reverse, count in ((False, per_trait - per_trait // 2), (True, per_trait // 2)):
                found = [item.id for item in self.items if item.trait == trait and item.reverse == reverse]
                if per_trait < 2 or len(found) < count:
                    raise UserError(
                        f"{self.name}: {per_trait} items per trait cannot be taken; give a number from 2 on for which "
                        f"{trait} has enough items of either keying (it has {len(found)} "
                        f"{'reversed' if reverse else 'plain'} ones)."
                    )
                kept.update(found[:count])
        items = tuple(item for item in self.items if item.id in kept)
        return replace(self, items=items, hash=f"{self.hash}/{per_trait}")

    def keyed(self, answers: Floats) -> Floats:
        """Turn answers so that more is more of the trait: x becomes 1 + top - x on reversed items.

        Args:
            answers: Shape (..., items), in the order of `items`.
        """
        reverse = np.array([item.reverse for item in self.items])
        return np.where(reverse, 1 + len(self.scale) - answers, answers)

    def score_array(self, answers: Floats) -> Floats:
        """Score many sheets at once by the rules of `score`.

        Args:
            answers: Shape (..., items), NaN where there is no answer, in the order of `items`.

        Returns:
            Shape (..., traits), in the order of `traits`.

        Raises:
            UserError: If the last axis is not one of items, or an answer lies outside the scale.
        """
        if answers.shape[-1:] != (len(self.items),):
            raise UserError(f"{self.name}: expected {len(self.items)} answers per sheet, got shape {answers.shape}.")
        off = ~(np.isnan(answers) | ((answers >= 1) & (answers <= len(self.scale))))
        if off.any():
            raise UserError(
                f"{self.name}: answers must lie in 1..{len(self.scale)}, got {float(answers[off][0]):g}; give NaN "
                "(or None) for an answer that is missing."
            )
        keyed = self.keyed(answers)
        result = np.full((*answers.shape[:-1], len(self.traits)), math.nan)
        for place, trait in enumerate(self.traits):
            part = keyed[..., [number for number, item in enumerate(self.items) if item.trait == trait]]
            given = np.isfinite(part)
            enough = (~given).sum(-1) <= MISSING_LIMIT * part.shape[-1] + 1e-9
            means = np.where(given, part, 0).sum(-1) / np.maximum(given.sum(-1), 1)
            result[..., place] = np.where(enough, means, math.nan)
        return result

    def score(self, answers: Mapping[str, float | None]) -> QuestionnaireScore:
        """Score one sheet.

        Args:
            answers: QuestionnaireItem id to an answer in 1..top, or None; items left out have none.

        Raises:
            UserError: If an item is unknown or an answer lies outside the scale.
        """
        known = [item.id for item in self.items]
        for name in answers:
            if name not in known:
                raise UserError(f"{self.name} has no item {name!r}.{did_you_mean(name, known)}")
        row = np.array([math.nan if (value := answers.get(name)) is None else value for name in known], dtype=float)
        traits = dict(zip(self.traits, map(float, self.score_array(row)), strict=True))
        missing = {
            trait: sum(
                bool(np.isnan(value)) for value, item in zip(row, self.items, strict=True) if item.trait == trait
            )
            for trait in self.traits
        }
        given = np.rint(row[np.isfinite(row)])
        return QuestionnaireScore(traits, missing, len(given) > 1 and len(set(given.tolist())) == 1)


def load_questionnaire(source: str | Path = "big-five-v1") -> Questionnaire:
    """Read an instrument.

    Args:
        source: Name of a bundled one (`big-five-v1`), or the path of a YAML or JSON file with `name`, `version`,
            `instructions`, `scale` (labels from 1 upwards) and `items` of `id`, `trait`, `text` and `reverse`.

    Raises:
        UserError: If it is not found, or a field is missing, unknown or unusable; file, item and field are named.
    """
    path = bundled("measures", source)
    data: Any = read_mapping(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: a questionnaire must be a mapping of fields, got {type(data).__name__}.")
    _check_fields(str(path), data, _FIELDS, set())
    scale, instructions = tuple(map(str, data["scale"])), tuple(map(str, data["instructions"]))
    if not 2 <= len(scale) <= 9 or len({label.lower() for label in scale}) < len(scale):
        raise UserError(f"{path}: scale: expected 2 to 9 different labels, got {data['scale']!r}.")
    if not instructions:
        raise UserError(f"{path}: instructions: expected at least one text, got none.")
    for number, text in enumerate(instructions):
        if lacking := [slot for slot in ("{{statement}}", "{{scale}}") if slot not in text]:
            raise UserError(f"{path}: instructions[{number}]: the slot {lacking[0]} is missing; add it to the text.")
    items = tuple(_item(f"{path}: items[{number}]", entry) for number, entry in enumerate(data["items"]))
    _check_keying(path, items)
    content = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
    return Questionnaire(data["name"], data["version"], instructions, scale, items, content)


def _check_fields(where: str, data: Mapping[str, Any], fields: Mapping[str, type], optional: set[str]) -> None:
    for field, kind in fields.items():
        if field not in data:
            raise UserError(f"{where}: the field {field!r} is missing.")
        if not isinstance(data[field], kind) or (kind is str and not data[field].strip()):
            words = {str: "a non-empty text", list: "a list", int: "a whole number"}[kind]
            raise UserError(f"{where}: {field}: expected {words}, got {data[field]!r}.")
    known = [*fields, *sorted(optional)]
    for field in data:
        if field not in known:
            near = did_you_mean(str(field), known)
            raise UserError(f"{where}: unknown field {field!r} (known: {', '.join(known)}).{near}")


def _item(where: str, entry: Any) -> QuestionnaireItem:
    if not isinstance(entry, dict):
        raise UserError(f"{where}: an item must be a mapping of fields, got {entry!r}.")
    where += f" ({entry['id']})" if "id" in entry else ""
    _check_fields(where, entry, _ITEM_FIELDS, {"reverse"})
    if not isinstance(entry.get("reverse", False), bool):
        raise UserError(f"{where}: reverse: expected true or false, got {entry['reverse']!r}.")
    return QuestionnaireItem(entry["id"], entry["text"], entry["trait"], entry.get("reverse", False))


def _check_keying(path: Path, items: Sequence[QuestionnaireItem]) -> None:
    if not items:
        raise UserError(f"{path}: items: expected at least two per trait, got none.")
    ids = [item.id for item in items]
    for number, name in enumerate(ids):
        if name in ids[:number]:
            raise UserError(f"{path}: items[{number}] ({name}): id: stands twice; give each item its own.")
    for trait in dict.fromkeys(item.trait for item in items):
        if len({item.reverse for item in items if item.trait == trait}) < 2:
            raise UserError(
                f"{path}: trait {trait!r}: needs plain and reversed items, or agreeing with everything would pass for "
                "the trait; add `reverse: true` items of the other keying."
            )


def parse_rating(reply: str, scale: Sequence[str]) -> int | None:
    """Return the answer 1..len(scale) that a reply gives, or None for a refusal, or no or several answers.

    One whole number within the scale counts (`4`, `I would say 4.`, `4/5`, `4 out of 5`, `4 = agree a little`), or,
    without any number, a reply that is or begins with a label of the scale.
    """
    if _REFUSAL.search(reply):
        return None
    text = _RANGE.sub(" ", _OUT_OF.sub(" ", reply))
    found = set(_NUMBER.findall(text))
    if len(found) == 1:
        (number,) = found
        return int(number) if number.isdecimal() and 1 <= int(number) <= len(scale) else None
    if found:
        return None
    plain = text.strip(" \t\n\"'*.").lower()
    named = [place for place, label in enumerate(scale, 1) if re.match(rf"{re.escape(label.lower())}\b", plain)]
    return max(named, key=lambda place: len(scale[place - 1])) if named else None


def administer(
    model: LanguageModel,
    questionnaire: Questionnaire,
    contexts: Sequence[Chat],
    *,
    mode: Literal["expected", "sampled"] = "expected",
    seeds: Sequence[int] = (),
    wordings: Sequence[int] = (),
    carry: int = 0,
    temperature: float = 1.0,
) -> Floats:
    """Put an instrument to a model in several contexts.

    Args:
        model: Answers; it must score replies in the mode `expected`.
        questionnaire: What is asked.
        contexts: The chat before the first item: who answers, what happened. One sheet each.
        mode: `expected`: the mean of the digits by their probabilities, renormalised over the digits; `sampled`: one
            reply per item, read by `parse_rating`.
        seeds: One per context, of the item order and the draws; default 0.
        wordings: Which of the instrument's wordings, one per context; default the first.
        carry: Earlier items, with the answers given, that stay in view. With 0 each item is asked alone, and the
            order of the items cannot matter.
        temperature: Of sampled replies.

    Returns:
        Answers of shape (contexts, items), NaN where a reply gives none, in the order of `questionnaire.items`.

    Raises:
        UserError: If the numbers of seeds, wordings and contexts differ, `mode` is unknown, or a digit is not one
            token of the model.
    """
    if mode not in ("expected", "sampled") or carry < 0:
        raise UserError(f"expected mode 'expected' or 'sampled' and carry of 0 or more, got {mode!r} and {carry}.")
    for what, given in (("seeds", seeds), ("wordings", wordings)):
        if given and len(given) != len(contexts):
            raise UserError(f"got {len(given)} {what} for {len(contexts)} contexts; give one per context.")
    seeds, wordings = list(seeds) or [0] * len(contexts), list(wordings) or [0] * len(contexts)
    place = {item.id: number for number, item in enumerate(questionnaire.items)}
    orders = [questionnaire.order(seed) for seed in seeds]
    answers = np.full((len(contexts), len(place)), math.nan)
    shown: list[list[Message]] = [[] for _ in contexts]
    step = 1 if carry else len(place)
    for start in range(0, len(place), step):
        asked = [(row, item) for row, order in enumerate(orders) for item in order[start : start + step]]
        questions = [questionnaire.ask(item, wordings[row]) for row, item in asked]
        chats = [[*contexts[row], *shown[row], q] for (row, _), q in zip(asked, questions, strict=True)]
        drawn = [derive_seed("questionnaire", seeds[row], item.id) for row, item in asked]
        values = _rate(model, questionnaire, chats, mode, drawn, temperature)
        for (row, item), question, value in zip(asked, questions, values, strict=True):
            answers[row, place[item.id]] = value
            if carry and math.isfinite(value):
                said: Message = {"role": "assistant", "content": str(round(value))}
                shown[row] = [*shown[row], question, said][-2 * carry :]
    return answers


def _rate(
    model: LanguageModel,
    questionnaire: Questionnaire,
    chats: Sequence[Chat],
    mode: str,
    seeds: Sequence[int],
    temperature: float,
) -> list[float]:
    if mode == "sampled":
        replies = model.generate(chats, Sampling(12, temperature, 1.0), seeds=seeds)
        parsed = [parse_rating(reply.text, questionnaire.scale) for reply in replies]
        return [math.nan if value is None else float(value) for value in parsed]
    digits = questionnaire.digits
    scores = model.logprobs([chat for chat in chats for _ in digits], digits * len(chats))
    for digit, values in zip(digits, scores, strict=False):
        if len(values) != 1:
            raise UserError(
                f"{model.name} reads the answer {digit!r} as {len(values)} tokens; expected values need one token per "
                "digit: use mode='sampled'."
            )
    table = np.array([float(values[0]) for values in scores]).reshape(len(chats), len(digits))
    table = np.exp(table - table.max(1, keepdims=True))
    expected: Floats = table @ np.arange(1, len(digits) + 1) / table.sum(1)
    return [float(value) for value in expected]
