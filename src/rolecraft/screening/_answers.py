"""The unit of work of a screen's answers: a shard of rows that one worker decodes in full, mixed batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rolecraft.conditioning import Direction, Intervention, Rung, Steering, conditioned, usable_rung
from rolecraft.models import Chat, LanguageModel, Sampling, chat, load_model
from rolecraft.roles import Question, Role
from rolecraft.screening._grid import Cell, answer_seed

SHARD = 512
"""Rows per shard. Shards are cut from the full round, never from what is missing, so that a resumed run and a run with
more workers decode the same batches and find the same answers."""


@dataclass(frozen=True)
class AnswerShard:
    """Rows to be answered."""

    keys: tuple[str, ...]
    chats: tuple[Chat, ...]
    seeds: tuple[int, ...]
    interventions: tuple[tuple[Intervention, ...], ...]


@cache
def shared_model(spec: str) -> LanguageModel:
    """Load a model once per process."""
    return load_model(spec)


@dataclass(frozen=True)
class ModelTask:
    """Base of what a worker runs: holds a model, or in another process its string alone."""

    model: LanguageModel | None
    spec: str

    def loaded(self) -> LanguageModel:
        """Return the model."""
        return self.model or shared_model(self.spec)


@dataclass(frozen=True)
class Answerer(ModelTask):
    """Answers shards."""

    sampling: Sampling

    def __call__(self, shard: AnswerShard) -> dict[str, dict[str, Any]]:
        """Return one row per key: `answer`, `tokens`, `prompt_tokens`, and `note` where the row failed."""
        steering = Steering(shard.interventions) if any(shard.interventions) else None
        replies = self.loaded().generate(shard.chats, self.sampling, steering, shard.seeds)
        return {
            key: {
                "answer": reply.text.strip(),
                "tokens": reply.tokens,
                "prompt_tokens": reply.prompt_tokens,
                "note": reply.note if reply.finish == "error" else "",
            }
            for key, reply in zip(shard.keys, replies, strict=True)
        }


def answer_shards(
    cells: Iterable[Cell],
    roles: Mapping[str, Role],
    questions: Mapping[str, Question],
    directions: Mapping[tuple[str, str, int], Direction],
    reference: Rung,
) -> list[AnswerShard]:
    """Cut the distinct answers of some cells into shards.

    Args:
        cells: Cells of one round.
        roles: Roles by id.
        questions: Questions by id.
        directions: (role, arm, seed) to the direction that arm applies.
        reference: How the prompted reference is prompted.
    """
    distinct = list({cell.answer_key: cell for cell in cells}.values())
    distinct.sort(
        key=lambda cell: cell.arm == "prompted"
    )  # stable: steered rows share short prompts, references do not
    return [
        _shard(distinct[start : start + SHARD], roles, questions, directions, reference)
        for start in range(0, len(distinct), SHARD)
    ]


def _shard(
    cells: Sequence[Cell],
    roles: Mapping[str, Role],
    questions: Mapping[str, Question],
    directions: Mapping[tuple[str, str, int], Direction],
    reference: Rung,
) -> AnswerShard:
    chats: list[Chat] = []
    interventions: list[tuple[Intervention, ...]] = []
    for cell in cells:
        role, text = roles[cell.role], questions[cell.question].text
        prompt = usable_rung(role, reference)
        chats.append(conditioned(role, text, prompt) if cell.arm == "prompted" else chat(text))
        steered = cell.arm not in ("prompted", "baseline")
        interventions.append((directions[cell.role, cell.arm, cell.seed].steer(cell.strength),) if steered else ())
    keys = tuple(cell.answer_key for cell in cells)
    return AnswerShard(keys, tuple(chats), tuple(answer_seed(key) for key in keys), tuple(interventions))
