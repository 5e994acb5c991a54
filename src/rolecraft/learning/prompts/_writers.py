"""A language model as critic and as editor of prompts, for `optimise`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rolecraft.learning.prompts._search import Critic, Editor, Gradient, Prompts, Sample, Summary, Tried
from rolecraft.measures import parse_json_reply
from rolecraft.models import LanguageModel, Sampling, chat

_CRITIC = (
    "You review the prompts of an agent. Given the prompts and one example that went badly, name the root cause and "
    'one general instruction that would have prevented it. Reply with JSON only: {"target": TARGET, "cause": TEXT, '
    '"suggestion": TEXT, "priority": NUMBER from 0 to 1}, where TARGET is one of '
)
_EDITOR = (
    "You edit the prompts of an agent. Apply the suggestions, heaviest first, change nothing else, keep every "
    "placeholder in braces, and do not repeat what was tried without gain. Reply with JSON only: an object with the "
    "keys "
)
_REMEMBERED = 6
"""Tried candidates the editor is told of."""


def model_critic(model: LanguageModel, max_tokens: int = 300) -> Critic:
    """Return a critic that asks a model for the cause of a failure; a reply it cannot read gives no criticism."""

    def criticise(prompts: Prompts, sample: Sample) -> list[Gradient]:
        targets = [*prompts, "both"]
        shown = json.dumps({"prompts": prompts, "score": sample.score, "example": sample.detail}, default=str)
        asked = chat(shown, _CRITIC + ", ".join(targets) + ".")
        reply = model.generate([asked], Sampling(max_tokens=max_tokens, temperature=0.0, top_p=1.0))[0].text
        found = parse_json_reply(reply, ("suggestion",))
        target, priority = found.get("target"), found.get("priority", 1.0)
        if target not in targets or not str(found.get("suggestion", "")).strip():
            return []
        weight = float(priority) if isinstance(priority, int | float) and 0 <= priority <= 1 else 1.0
        return [Gradient(str(target), str(found.get("cause", "")), str(found["suggestion"]), weight)]

    return criticise


def model_editor(model: LanguageModel, max_tokens: int = 1500, temperature: float = 0.7) -> Editor:
    """Return an editor that asks a model for whole new prompts; replies it cannot read give no candidate."""

    def edit(prompts: Prompts, criticisms: Sequence[Summary], memory: Sequence[Tried], count: int) -> list[Prompts]:
        shown = json.dumps(
            {
                "prompts": prompts,
                "suggestions": [
                    {"target": one.target, "suggestion": one.suggestion, "weight": one.weight, "keep": one.positive}
                    for one in criticisms
                ],
                "tried": [
                    {"prompts": one.prompts, "gain": None if one.refused else one.gain, "refused": one.refused}
                    for one in memory[-_REMEMBERED:]
                ],
            }
        )
        asked = chat(shown, _EDITOR + ", ".join(prompts) + ".")
        sampling = Sampling(max_tokens=max_tokens, temperature=temperature)
        replies = model.generate([asked] * count, sampling, seeds=range(len(memory), len(memory) + count))
        found = [parse_json_reply(reply.text, tuple(prompts)) for reply in replies]
        return [{name: str(one.get(name, prompts[name])) for name in prompts} for one in found if one]

    return edit
