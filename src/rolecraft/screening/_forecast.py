"""What a screen will cost, before it is paid for."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rolecraft.models import LanguageModel, Sampling, chat
from rolecraft.screening._plan import Plan

PROBE_ROWS, PROBE_TOKENS = 32, 16


@dataclass(frozen=True)
class Forecast:
    """Upper bounds of a full screen."""

    responses: int
    """Generated to extract the directions."""
    answers: int
    """Generated for the grid."""
    scored: int
    """Scores, each of one answer for one role by one judge."""
    new_tokens: int
    """At most: every text at full length."""
    seconds: float | None
    """Rough, from a short probe of the model; None without one."""

    @classmethod
    def of(cls, plan: Plan, model: LanguageModel | None = None) -> Forecast:
        """Count what a plan needs, and time a probe of the model if one is given."""
        judges = 2 if plan.config.second_judge else 1
        texts = plan.extraction_texts + plan.answers
        seconds = None
        if model is not None:
            per_text = _probe(model) * plan.config.max_tokens / PROBE_TOKENS
            # Scoring reads each text twice (with and without the role) at roughly the cost of a quarter of writing it.
            seconds = per_text * (texts + 0.5 * (plan.scored * judges + plan.extraction_texts))
        return cls(plan.extraction_texts, plan.answers, plan.scored * judges, texts * plan.config.max_tokens, seconds)


def _probe(model: LanguageModel) -> float:
    """Return seconds per text of `PROBE_TOKENS` tokens in a full batch."""
    chats = [chat("Describe a morning that went wrong.")] * PROBE_ROWS
    sampling = Sampling(PROBE_TOKENS, temperature=1.0)
    model.generate(chats[:2], Sampling(2))
    start = time.perf_counter()
    model.generate(chats, sampling, seeds=range(PROBE_ROWS))
    return (time.perf_counter() - start) / PROBE_ROWS
