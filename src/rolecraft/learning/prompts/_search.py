"""Automatic prompt optimisation by textual gradients: criticise failures, edit, select, accept what validates.

After APO for role play (arXiv 2509.00482) and ProTeGi (arXiv 2305.03495). Critic, editor and evaluation are the
caller's; the loop, its memory and its safeguards are here.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rolecraft.errors import UserError
from rolecraft.learning.prompts._split import Split

Prompts = Mapping[str, str]
"""The texts that are optimised together, by name (`function`, `dialogue`)."""
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


@dataclass(frozen=True)
class Sample:
    """How the prompts did on one example."""

    id: str
    score: float
    """In [0, 1]."""
    detail: Any = None
    """Whatever the critic needs to see."""


@dataclass(frozen=True)
class Gradient:
    """A criticism of one sample."""

    target: str
    """Name of the prompt to change, or `both`: all of them."""
    cause: str
    suggestion: str
    priority: float = 1.0
    positive: bool = False
    """Drawn from a good sample: something to keep."""


@dataclass(frozen=True)
class Summary:
    """The criticisms of a round that say the same, as one."""

    target: str
    suggestion: str
    causes: tuple[str, ...]
    weight: float
    """Sum of priorities."""
    positive: bool


@dataclass(frozen=True)
class Tried:
    """What the memory keeps of a candidate."""

    iteration: int
    prompts: Prompts
    gain: float
    """Over its parent, on the mini-batch; NaN for a candidate that was refused."""
    accepted: bool
    refused: str = ""


Evaluate = Callable[[Prompts, Sequence[str]], Sequence[Sample]]
"""Scores prompts on examples, one sample per id."""
Critic = Callable[[Prompts, Sample], Sequence[Gradient]]
Editor = Callable[[Prompts, Sequence[Summary], Sequence[Tried], int], Sequence[Prompts]]
"""From prompts, this round's criticisms, the memory of all rounds and a number to that many new candidates."""


@dataclass(frozen=True)
class SearchConfig:
    """How to search. The paper's values are the defaults, where it states them.

    Raises:
        UserError: If a value is out of range.
    """

    iterations: int = 30
    threshold: float = 0.8
    """Samples below it have failed."""
    criticised: int = 8
    """Most failed samples criticised per round, worst first."""
    positive_ratio: float = 0.0
    """Good samples criticised per failed one. Paper: 0.5 where they are used."""
    selection: Literal["beam", "monte-carlo"] = "beam"
    """`beam` keeps the candidates with the best mini-batch scores; `monte-carlo` draws by a softmax of the scores."""
    width: int = 3
    """Prompts that live on, and candidates that get a full evaluation."""
    candidates: int = 3
    """Edits asked for per living prompt."""
    minibatch: int = 10
    temperature: float = 0.05
    """Of the softmax, in units of score."""
    min_improvement: float = 0.01
    """Gain on the validation set below which nothing is accepted."""
    patience: int = 3
    """Rounds without an accepted candidate before the search stops."""
    longest: int = 4000
    """Most characters per prompt."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "criticised", "width", "candidates", "minibatch", "patience", "longest"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("threshold", "positive_ratio", "min_improvement"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie in 0..1, got {getattr(self, name)}.")
        if self.selection not in ("beam", "monte-carlo") or not self.temperature > 0:
            raise UserError(
                "selection must be beam or monte-carlo and temperature positive, got "
                f"{self.selection!r} and {self.temperature}."
            )


@dataclass(frozen=True)
class Iteration:
    """One round of the search."""

    number: int
    criticisms: tuple[Summary, ...]
    tried: int
    refused: int
    minibatch_best: float
    validation_best: float
    accepted: bool


@dataclass(frozen=True)
class SearchTrace:
    """What a search did."""

    best: Prompts
    validation: tuple[float, float]
    """Mean validation score of the start and of the best."""
    test: tuple[float, float]
    """The same on the test set, which was looked at once, after the search."""
    stopped: str
    """`converged` (nothing failed), `patience`, `iterations`, or `no-candidates`."""
    iterations: tuple[Iteration, ...]
    memory: tuple[Tried, ...] = field(repr=False)


def optimise(
    start: Prompts, evaluate: Evaluate, critic: Critic, editor: Editor, split: Split, config: SearchConfig
) -> SearchTrace:
    """Improve prompts on `split.train`, accept on `split.validation`, report on `split.test`.

    A candidate is accepted if its validation score exceeds the best so far by `min_improvement`; what does worse is
    rolled back by never becoming the best. Equal scores: the shorter prompts.

    Raises:
        UserError: If the start is itself not allowed, or `evaluate` does not score each example in [0, 1].
    """
    flaw = refusal(start, start, config.longest)
    if flaw:
        raise UserError(f"the prompts to start from: {flaw}.")
    search = _Search(start, evaluate, critic, editor, split, config)
    for number in range(config.iterations):
        stopped = search.round(number)
        if stopped:
            break
    else:
        stopped = "iterations"
    before, after = search.mean(start, split.test), search.mean(search.best, split.test)
    return SearchTrace(
        best=search.best,
        validation=(search.start_score, search.best_score),
        test=(before, after),
        stopped=stopped,
        iterations=tuple(search.iterations),
        memory=tuple(search.memory),
    )


class _Search:
    def __init__(
        self,
        start: Prompts,
        evaluate: Evaluate,
        critic: Critic,
        editor: Editor,
        split: Split,
        config: SearchConfig,
    ) -> None:
        self.start, self.best, self.living = start, start, [start]
        self.evaluate, self.critic, self.editor = evaluate, critic, editor
        self.split, self.config = split, config
        self.rng = random.Random(config.seed)
        self.memory: list[Tried] = []
        self.iterations: list[Iteration] = []
        self.stale = 0
        self.start_score = self.best_score = self.mean(start, split.validation)

    def samples(self, prompts: Prompts, ids: Sequence[str]) -> list[Sample]:
        found = list(self.evaluate(prompts, ids))
        if [sample.id for sample in found] != list(ids) or not all(0 <= sample.score <= 1 for sample in found):
            raise UserError("evaluate must return one sample per id, in order, with a score in 0..1.")
        return found

    def mean(self, prompts: Prompts, ids: Sequence[str]) -> float:
        return sum(sample.score for sample in self.samples(prompts, ids)) / len(ids)

    def round(self, number: int) -> str:
        """Do one round; return why the search stops, or an empty text."""
        ids = self.rng.sample(list(self.split.train), min(self.config.minibatch, len(self.split.train)))
        parents, fresh, criticisms = [], [], []
        for prompts in self.living:
            samples = self.samples(prompts, ids)
            summaries = summarise(self._gradients(prompts, samples))
            if any(not summary.positive for summary in summaries):
                level = sum(sample.score for sample in samples) / len(samples)
                parents.append(level)
                criticisms += summaries
                asked = self.editor(prompts, summaries, tuple(self.memory), self.config.candidates)
                fresh += [(candidate, level) for candidate in list(asked)[: self.config.candidates]]
        if not parents:
            return "converged"
        allowed, refused = self._allowed(fresh, number)
        scored = [(prompts, self.mean(prompts, ids), level) for prompts, level in allowed]
        chosen = self._select(scored)
        judged = [(self.mean(prompts, self.split.validation), prompts) for prompts in chosen]
        judged.sort(key=lambda pair: (-pair[0], length(pair[1])))
        accepted = bool(judged) and judged[0][0] >= self.best_score + self.config.min_improvement
        if accepted:
            self.best_score, self.best = judged[0]
        self.memory += [
            Tried(number, prompts, score - level, accepted and prompts == self.best) for prompts, score, level in scored
        ]
        self.living = _distinct([self.best, *(prompts for _, prompts in judged)])[: self.config.width]
        self.stale = 0 if accepted else self.stale + 1
        top = max((score for _, score, _ in scored), default=math.nan)
        validated = judged[0][0] if judged else math.nan
        self.iterations.append(Iteration(number, tuple(criticisms), len(scored), refused, top, validated, accepted))
        if not fresh:
            return "no-candidates"
        return "patience" if self.stale >= self.config.patience else ""

    def _gradients(self, prompts: Prompts, samples: Sequence[Sample]) -> list[Gradient]:
        failed = sorted((s for s in samples if s.score < self.config.threshold), key=lambda s: s.score)
        failed = failed[: self.config.criticised]
        good = sorted((s for s in samples if s.score >= self.config.threshold), key=lambda s: -s.score)
        good = good[: math.ceil(self.config.positive_ratio * len(failed))]
        found = [gradient for sample in failed + good for gradient in self.critic(prompts, sample)]
        for gradient in found:
            if gradient.target != "both" and gradient.target not in self.start:
                known = ", ".join(self.start)
                raise UserError(f"gradient: target {gradient.target!r} is no prompt (known: {known}, both).")
        return found

    def _allowed(self, fresh: Sequence[tuple[Prompts, float]], number: int) -> tuple[list[tuple[Prompts, float]], int]:
        seen = [self.start, *(tried.prompts for tried in self.memory)]
        allowed: list[tuple[Prompts, float]] = []
        refused = 0
        for prompts, level in fresh:
            flaw = refusal(prompts, self.start, self.config.longest)
            if flaw or prompts in seen:
                refused += 1
                if flaw:
                    self.memory.append(Tried(number, prompts, math.nan, False, flaw))
            else:
                seen.append(prompts)
                allowed.append((prompts, level))
        return allowed, refused

    def _select(self, scored: Sequence[tuple[Prompts, float, float]]) -> list[Prompts]:
        ranked = sorted(scored, key=lambda entry: (-entry[1], length(entry[0])))
        if self.config.selection == "beam" or len(ranked) <= self.config.width:
            return [prompts for prompts, _, _ in ranked[: self.config.width]]
        chosen = []
        for _ in range(self.config.width):
            weights = [math.exp((score - ranked[0][1]) / self.config.temperature) for _, score, _ in ranked]
            place = self.rng.choices(range(len(ranked)), [max(weight, 1e-300) for weight in weights])[0]
            chosen.append(ranked.pop(place)[0])
        return chosen


def summarise(gradients: Sequence[Gradient]) -> list[Summary]:
    """Merge criticisms of one target that suggest the same; heaviest first."""
    groups: dict[tuple[str, str, bool], list[Gradient]] = {}
    for gradient in gradients:
        groups.setdefault((gradient.target, gradient.suggestion, gradient.positive), []).append(gradient)
    merged = [
        Summary(target, text, tuple(dict.fromkeys(g.cause for g in group)), sum(g.priority for g in group), positive)
        for (target, text, positive), group in groups.items()
    ]
    return sorted(merged, key=lambda summary: (summary.positive, -summary.weight))


def refusal(prompts: Prompts, start: Prompts, longest: int) -> str:
    """Return why prompts may not be used, or an empty text: empty, too long, other names, or a placeholder lost."""
    if set(prompts) != set(start):
        return f"expected the prompts {', '.join(start)}, got {', '.join(prompts) or 'none'}"
    for name, text in prompts.items():
        if not text.strip():
            return f"the prompt {name!r} is empty"
        if len(text) > longest:
            return f"the prompt {name!r} has {len(text)} characters, more than {longest}"
        lost = Counter(_PLACEHOLDER.findall(start[name])) - Counter(_PLACEHOLDER.findall(text))
        if lost:
            return f"the prompt {name!r} lost its placeholder {next(iter(lost))}"
    return ""


def length(prompts: Prompts) -> int:
    """Return the characters of all prompts together."""
    return sum(map(len, prompts.values()))


def _distinct(prompts: Sequence[Prompts]) -> list[Prompts]:
    found: list[Prompts] = []
    for one in prompts:
        if one not in found:
            found.append(one)
    return found
