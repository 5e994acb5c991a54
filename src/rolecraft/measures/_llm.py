"""The LLM judge: any language model, asked by rubric at temperature 0, believed after calibration only."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rolecraft._run import RunStore, content_key
from rolecraft.errors import JudgeError, UserError
from rolecraft.measures._calibration import MAX_MISSING, PASSING, Calibration, calibrate
from rolecraft.measures._cases import RoleCase, load_cases
from rolecraft.measures._judge import DIMENSIONS, JudgeItem, Score
from rolecraft.measures._rubric import Rubric, describe_role, load_rubric
from rolecraft.models._base import Chat, LanguageModel, Sampling
from rolecraft.roles import Role

RUBRICS = ("role-alignment-v1", "role-style-v1")
"""Absolute alignment on 0..100, and five Likert scores against the reference: the six dimensions of CastVectors."""
GRADE = "role-grade-v1"
"""The 0-3 scale of CastVectors and the Assistant Axis, for extraction."""
PAIRWISE = "role-pairwise-v1"
STAGE = "judge-replies"
"""Stage of a run store in which replies are cached."""
_CHUNK = 64
"""Replies asked for before the cache is written."""


@dataclass(frozen=True)
class Comparison:
    """Two answers to one question, compared in both orders."""

    first: float | None
    """Mean over both orders, 0..100; None unless both replies could be read."""
    second: float | None
    consistent: bool
    """Both orders prefer the same answer."""

    @property
    def winner(self) -> str:
        """`first`, `second`, or `tie`: equal, or the orders disagree; empty where a score is missing."""
        if self.first is None or self.second is None:
            return ""
        if not self.consistent or self.first == self.second:
            return "tie"
        return "first" if self.first > self.second else "second"


class LLMJudge:
    """Scores answers by asking a language model.

    A reply that cannot be read leaves its scores missing. `counts` tells `asked`, `cached`, `failed` (the model gave no
    reply) and `unreadable` replies; `check` refuses the lot when more than 5 % gave nothing.
    """

    def __init__(
        self,
        model: LanguageModel,
        rubric: str | Path | Sequence[str | Path] = RUBRICS,
        cache: RunStore | None = None,
        *,
        allow_uncalibrated: bool = False,
    ) -> None:
        """Make a judge.

        Args:
            model: The judging model.
            rubric: One or several rubrics, bundled names or files, whose scores together are the dimensions.
            cache: Where replies are kept by content, so that nothing is asked twice; default: in memory.
            allow_uncalibrated: Score without `calibrated`.

        Raises:
            UserError: If a rubric cannot be read, or two score the same dimension.
        """
        self._model = model
        self.rubrics = tuple(load_rubric(source) for source in ([rubric] if isinstance(rubric, str | Path) else rubric))
        names = Counter(name for each in self.rubrics for name in each.scales)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise UserError(f"rubric: {twice[0]!r} is scored by more than one of the given rubrics; give one of them.")
        self._dimensions = tuple(sorted(names, key=[*DIMENSIONS, *names].index))
        self._cache = cache
        self._memory: dict[str, str] = {}
        self._trusted = allow_uncalibrated
        self.calibration: Calibration | None = None
        self.counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """Kind of judge and what it runs on."""
        return f"llm({self._model.name}, {'+'.join(rubric.name for rubric in self.rubrics)})"

    @property
    def rubric_hash(self) -> str:
        """Content hash of the rubrics and the model."""
        parts = (*(rubric.hash for rubric in self.rubrics), self._model.name, self._model.revision)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What the rubrics score."""
        return self._dimensions

    @property
    def missing_share(self) -> float:
        """Share of the replies so far that gave no score, 0..1."""
        return (self.counts["failed"] + self.counts["unreadable"]) / max(
            1, self.counts["asked"] + self.counts["cached"]
        )

    def check(self) -> None:
        """Refuse the scores given so far if too many are missing.

        Raises:
            JudgeError: If more than 5 % of the replies gave no score.
        """
        if self.missing_share > MAX_MISSING:
            raise JudgeError(
                f"{self.name}: {self.missing_share:.0%} of the replies gave no score ({self.counts['unreadable']} "
                f"unreadable, {self.counts['failed']} failed; at most {MAX_MISSING:.0%} may): the report is not valid. "
                "Use a judge model that follows the rubric."
            )

    def calibrated(self, cases: Sequence[RoleCase] | None = None, passing: float = PASSING) -> Self:
        """Score labelled cases, refuse to go on if the agreement is too low, and return the judge, ready for use.

        Args:
            cases: Labelled cases; default: the bundled 96.
            passing: Least agreement.

        Raises:
            JudgeError: If the agreement is below `passing`, too many scores are missing, or no rubric scores `overall`.
        """
        rubrics = [rubric for rubric in self.rubrics if "overall" in rubric.scales]
        if not rubrics:
            raise JudgeError(f"{self.name}: no rubric scores 'overall', which the labelled cases are labelled for.")
        cases = cases or load_cases()
        self.calibration = calibrate(_Only(self, rubrics), cases)
        self.calibration.check(passing)
        self._trusted = True
        return self

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        """Score each item on the rubrics' dimensions; those that need a reference are missing where there is none.

        An empty answer scores 0 without being asked about.

        Raises:
            JudgeError: If the judge has not been calibrated and that was not allowed.
        """
        if not self._trusted:
            raise JudgeError(
                f"{self.name} has not been calibrated: call calibrated() first, or pass allow_uncalibrated=True."
            )
        return self._score(items, self.rubrics)

    def grade(self, role: Role, questions: Sequence[str], answers: Sequence[str]) -> list[int | None]:
        """Grade answers on 0-3 for extraction; needs the rubric `role-grade-v1`. None where a reply is unreadable.

        Raises:
            UserError: If the judge was made with other rubrics.
        """
        if [rubric.name for rubric in self.rubrics] != [GRADE]:
            raise UserError(f"grade() needs a judge with rubric={GRADE!r}, this one is {self.name}.")
        items = [JudgeItem(role, question, answer) for question, answer in zip(questions, answers, strict=True)]
        values = [score.values["overall"] for score in self.score(items)]
        return [None if value is None else round(value * 3 / 100) for value in values]

    def compare(self, items: Sequence[tuple[JudgeItem, str]], rubric: str | Path = PAIRWISE) -> list[Comparison]:
        """Compare each item's answer (first) with another answer to the same question (second), in both orders."""
        loaded = load_rubric(rubric)
        chats = []
        for item, other in items:
            for first, second in ((item.answer, other), (other, item.answer)):
                chats.append(loaded.ask(_texts(item) | {"first": first, "second": second}))
        read = [self._read(loaded, reply) for reply in self._replies(loaded, chats)]
        return [_both(*read[place : place + 2]) for place in range(0, len(read), 2)]

    def _score(self, items: Sequence[JudgeItem], rubrics: Sequence[Rubric]) -> list[Score]:
        values: list[dict[str, float | None]] = [{} for _ in items]
        notes: list[list[str]] = [[] for _ in items]
        for rubric in rubrics:
            asked = []
            for place, item in enumerate(items):
                if not item.answer.strip():
                    values[place] |= dict.fromkeys(rubric.scales, 0.0)
                    notes[place] = ["empty answer"]
                elif rubric.needs_reference and not item.reference.strip():
                    values[place] |= dict.fromkeys(rubric.scales)
                    notes[place].append("no reference")
                else:
                    asked.append(place)
            replies = self._replies(rubric, [rubric.ask(_texts(items[place])) for place in asked])
            for place, reply in zip(asked, replies, strict=True):
                scores = self._read(rubric, reply)
                values[place] |= scores
                if None in scores.values():
                    notes[place].append(f"{rubric.name}: {'no reply' if reply is None else 'unreadable reply'}")
        return [Score(found, "; ".join(note)) for found, note in zip(values, notes, strict=True)]

    def _read(self, rubric: Rubric, reply: str | None) -> dict[str, float | None]:
        if reply is None:
            self.counts["failed"] += 1
            return dict.fromkeys(rubric.scales)
        scores = rubric.read(reply)
        self.counts["unreadable"] += None in scores.values()
        return scores

    def _replies(self, rubric: Rubric, chats: Sequence[Chat]) -> list[str | None]:
        """Return the model's reply to each chat, None where it failed; each distinct chat is asked once."""
        identity = {"model": self._model.name, "revision": self._model.revision, "max_tokens": rubric.max_tokens}
        keys = [content_key(chat=list(chat), **identity) for chat in chats]
        known = {key: self._remembered(key) for key in dict.fromkeys(keys)}
        wanted = {key: chat for key, chat in zip(keys, chats, strict=True) if known[key] is None}
        self.counts["cached"] += len(chats) - len(wanted)
        self.counts["asked"] += len(wanted)
        sampling, todo = Sampling(max_tokens=rubric.max_tokens, temperature=0.0, top_p=1.0), list(wanted)
        for start in range(0, len(todo), _CHUNK):
            part = todo[start : start + _CHUNK]
            completions = self._model.generate([wanted[key] for key in part], sampling)
            fresh = {k: c.text for k, c in zip(part, completions, strict=True) if c.finish != "error"}
            known |= fresh
            self._remember(fresh)
        return [known[key] for key in keys]

    def _remembered(self, key: str) -> str | None:
        if self._cache is None:
            return self._memory.get(key)
        row = self._cache.get(STAGE, key)
        return None if row is None else str(row["reply"])

    def _remember(self, replies: Mapping[str, str]) -> None:
        if self._cache is None:
            self._memory |= replies
        else:
            self._cache.put_many(STAGE, {key: {"reply": reply} for key, reply in replies.items()})


class _Only:
    """A judge's view through some of its rubrics, for its own calibration."""

    def __init__(self, judge: LLMJudge, rubrics: Sequence[Rubric]) -> None:
        self._judge, self._rubrics = judge, rubrics
        self.name, self.rubric_hash = judge.name, judge.rubric_hash
        self.dimensions = ("overall",)

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        return self._judge._score(items, self._rubrics)


def _texts(item: JudgeItem) -> dict[str, str]:
    return {
        "role": describe_role(item.role),
        "question": item.question,
        "answer": item.answer,
        "reference": item.reference or "(none)",
    }


def _both(straight: Mapping[str, float | None], swapped: Mapping[str, float | None]) -> Comparison:
    a, b, c, d = straight["first"], swapped["second"], straight["second"], swapped["first"]
    if a is None or b is None or c is None or d is None:
        return Comparison(None, None, False)
    return Comparison((a + b) / 2, (c + d) / 2, consistent=(a - c) * (b - d) > 0)
