"""What a simulation will cost, before it is paid for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft.conditioning import conditioned
from rolecraft.models import LanguageModel, Sampling, ServedModel, chat
from rolecraft.worlds import Act, Rules, Table, Turn, TurnLimit, View, play_all
from rolecraft.worlds._limits import CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rolecraft.screening import Admission
    from rolecraft.simulate._study import SimulationStudy

SAMPLES = 3
"""Episodes that a random policy plays, without any model, to see how long they are and how much is read."""
PROBE_ROWS, PROBE_TOKENS = 8, 8


@dataclass(frozen=True)
class Forecast:
    """Estimates for all arms; a reply counts at full length, so that free text is an upper bound."""

    episodes: int
    decisions: int
    prompt_tokens: int
    """One per four characters of role, observation, and of every option where there is a choice."""
    new_tokens: int
    seconds: float | None
    """Rough, from a short probe of a local model; None of a served one, whose probe would cost money."""
    usd: float | None
    """Where the study gives prices."""

    @classmethod
    def of(cls, study: SimulationStudy, cast: Mapping[str, Admission], model: LanguageModel | None = None) -> Forecast:
        """Estimate what a study takes.

        Args:
            study: What is to be played.
            cast: The roles that may act.
            model: Timed by a short probe; None times nothing.
        """
        turns = [turn for number in range(min(SAMPLES, study.episodes)) for turn in _sample(study, number)]
        scale = study.episodes * len(study.arms) / min(SAMPLES, study.episodes)
        system = _system_tokens(cast)
        free = [turn for turn in turns if turn.legal is None]
        read = sum(system + _read(turn) for turn in turns)
        prompt, new = round(scale * read), round(scale * len(free) * study.max_tokens)
        prices = study.serving.prices
        return cls(
            study.episodes * len(study.arms),
            round(scale * len(turns)),
            prompt,
            new,
            None if model is None or isinstance(model, ServedModel) else _seconds(model, prompt, new),
            (prompt * prices[0] + new * prices[1]) / 1e6 if prices else None,
        )


class _Filler:
    """Takes random legal actions, and fills a reply where text is free."""

    def __init__(self, tokens: int) -> None:
        self._text = ("word " * tokens)[: tokens * CHARACTERS_PER_TOKEN].strip()

    def act(self, views: Sequence[View]) -> list[Act]:
        return [
            Act(self._text if view.legal is None else view.legal[int(view.rng().integers(len(view.legal)))])
            for view in views
        ]


def _sample(study: SimulationStudy, number: int) -> tuple[Turn, ...]:
    world = study.make_world()
    table = Table(world, dict.fromkeys(world.agents, _Filler(study.max_tokens)), number)
    limits = (TurnLimit(study.limits.turns),) if study.limits.turns else ()
    [episode] = play_all([table], Rules(study.limit, hashes=False, limits=limits))
    return episode.turns


def _system_tokens(cast: Mapping[str, Admission]) -> float:
    prompts = [conditioned(part.role, "", part.rung) for part in cast.values() if part.conditioner == "prompt"]
    characters = sum(len(message["content"]) for prompt in prompts for message in prompt)
    return characters / CHARACTERS_PER_TOKEN / max(1, len(cast))


def _read(turn: Turn) -> float:
    options = turn.legal or ()
    return (len(turn.observation) + sum(map(len, options))) / CHARACTERS_PER_TOKEN


def _seconds(model: LanguageModel, prompt: int, new: int) -> float:
    """Scale a probe of reading and one of writing."""
    text = "word " * 64
    chats = [chat(text)] * PROBE_ROWS
    model.generate(chats[:1], Sampling(1))
    start = time.perf_counter()
    model.generate([chat(f"{row} {text}") for row in range(PROBE_ROWS)], Sampling(1))
    reading = (time.perf_counter() - start) / (PROBE_ROWS * len(text) / CHARACTERS_PER_TOKEN)
    start = time.perf_counter()
    model.generate(chats, Sampling(PROBE_TOKENS, temperature=1.0), seeds=range(PROBE_ROWS))
    writing = (time.perf_counter() - start) / (PROBE_ROWS * PROBE_TOKENS)
    return prompt * reading + new * writing
