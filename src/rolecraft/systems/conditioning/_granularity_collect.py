"""How the granularity axis collects its role vectors: roles, prompts, questions, replies and their mean states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from rolecraft.conditioning._granularity import RoleVectors, check_levels, role_vectors
from rolecraft.errors import ExtractionError, UserError
from rolecraft.systems._base import StudyConfig, row_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rolecraft._run import RunStore
    from rolecraft.conditioning import ReadableModel
    from rolecraft.roles import Role

    Floats = NDArray[np.float64]

LEVELS = {1: "an individual", 2: "a group or community", 3: "an organization", 4: "an institution", 5: "a nation"}
VARIANTS = (
    "You are {who}. {description}",
    "Please play the part of {who} in this conversation. {description}",
    "Act as {who}, who thinks on the scale of {level}. {description}",
    "Answer in the first person as {who}, with the reach and the time horizon such a person has. {description}",
    "Imagine being {who}: feel what this person feels and meet the limits this person meets. {description}",
)
"""Five ways of assigning a role; only the third names the level."""


@dataclass(frozen=True)
class CollectConfig(StudyConfig):
    """How role vectors are collected."""

    model: str = "local:smollm2"
    """Paper: Qwen3-8B and Llama-3.1-8B-Instruct."""
    inventory: str = "core-v1"
    ladders: int = 8
    """Ladders of five roles, one per level in one domain. 0: every role with a level. Paper: 75 roles, 15 per level."""
    variants: int = 2
    """Prompt variants per role. Paper: 5."""
    questions: int = 2
    """Per seed, disjoint between seeds, none of those that admit a micro answer. Paper: 240."""
    max_tokens: int = 32
    """Paper: 1536."""
    temperature: float = 0.7
    """Paper: the same."""
    top_p: float = 0.9
    """Paper: the same."""
    min_count: int = 3
    """Roles with fewer replies are dropped. Paper: 30."""
    site: int | None = None
    """Default: half depth. Paper: 18 of 36 and of 32."""

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size."""
        return cls(seeds=(42,), ladders=0, variants=5, questions=180, max_tokens=1536, min_count=30)


def select_roles(source: str, ladders: int) -> list[Role]:
    """Return the roles of the first complete ladders of an inventory, or with 0 every role that has a level.

    Raises:
        UserError: If there are fewer ladders, or the levels cannot be used.
    """
    from rolecraft.roles import load_inventory

    leveled = [role for role in load_inventory(source) if role.level is not None]
    if not ladders:
        check_levels(leveled)
        return leveled
    steps: dict[str, dict[int | None, Role]] = {}
    for role in leveled:
        if role.ladder:
            steps.setdefault(role.ladder, {})[role.level] = role
    complete = [name for name in sorted(steps) if set(steps[name]) == set(LEVELS)]
    if len(complete) < ladders:
        raise UserError(f"ladders: {ladders} were asked for, but inventory {source!r} has {len(complete)} complete.")
    return [steps[name][level] for name in complete[:ladders] for level in LEVELS]


def system_text(role: Role, variant: int, *, name_only: bool = False) -> str:
    """Return one of the five prompt variants, with the role's name alone if asked for."""
    from rolecraft.conditioning._prompts import with_article

    description = "" if name_only else role.description
    level = LEVELS.get(role.level or 0, "one's own place")
    return VARIANTS[variant].format(who=with_article(role.name), description=description, level=level).strip()


def study_questions(count: int, place: int, *, micro: bool) -> list[str]:
    """Return the texts of the `place`-th block of `count` questions, those that admit a micro answer or the others.

    Raises:
        UserError: If the bank is too small for another block.
    """
    from rolecraft._run import derive_seed
    from rolecraft.roles import load_questions

    bank = [question for question in load_questions("questions-v1").split("evaluation") if question.micro == micro]
    bank.sort(key=lambda question: derive_seed("granularity-axis", question.id))
    if (place + 1) * count > len(bank):
        raise UserError(
            f"questions: {count} for each of {place + 1} seeds are more than the {len(bank)} there are; "
            "ask fewer questions or fewer seeds."
        )
    return [question.text for question in bank[place * count : (place + 1) * count]]


DEFAULT = "default"


def collect(
    model: ReadableModel,
    systems: dict[str, list[str]],
    questions: Sequence[str],
    config: CollectConfig,
    seed: int,
    store: RunStore,
    arm: str,
) -> tuple[dict[str, Floats], dict[str, int], int]:
    """Reply to every question under every system text, and average the states of the replies.

    Args:
        model: Replies and is read.
        systems: Name of a role to its system texts.
        questions: Asked under each.
        config: Sampling.
        seed: Of the sampling.
        store: Keeps the replies, stage `responses`; what is there is not made again.
        arm: Part of the rows' keys.

    Returns:
        Mean state per role (sites, hidden), replies behind it, and the number of empty replies.
    """
    from rolecraft._run import derive_seed
    from rolecraft.conditioning import RunningMoments
    from rolecraft.models import Sampling, chat

    units = {
        row_key(arm, seed, f"{role}/{v}/{q}"): (role, chat(question, text))
        for role, texts in systems.items()
        for v, text in enumerate(texts)
        for q, question in enumerate(questions)
    }
    missing = store.missing("responses", units)
    sampling = Sampling(config.max_tokens, config.temperature, config.top_p)
    seeds = [derive_seed("granularity-axis", key) for key in missing]
    replies = model.generate([units[key][1] for key in missing], sampling, None, seeds)
    store.put_many(
        "responses",
        {
            key: {"role": units[key][0], "chat": list(units[key][1]), "reply": reply.text, "finish": reply.finish}
            for key, reply in zip(missing, replies, strict=True)
        },
    )
    known = store.rows("responses")
    keys = list(units)
    moments = {role: RunningMoments((model.n_sites, model.hidden)) for role in systems}
    pooled = 0
    for row, state in model.activations([units[key][1] for key in keys], [known[key]["reply"] for key in keys]):
        moments[units[keys[row]][0]].add(state)
        pooled += 1
    means = {role: np.asarray(m.mean, dtype=float) for role, m in moments.items() if m.count}
    return means, {role: m.count for role, m in moments.items()}, len(keys) - pooled


def collect_roles(
    model: ReadableModel, config: CollectConfig, place: int, store: RunStore, *, name_only: bool = False
) -> tuple[RoleVectors, Floats]:
    """Collect the roles' vectors with the questions of one seed; also the default assistant's (sites, hidden)."""
    from rolecraft.conditioning import neutral_prompts

    roles = select_roles(config.inventory, config.ladders)
    arm = "name" if name_only else "profile"
    systems = {r.id: [system_text(r, v, name_only=name_only) for v in range(config.variants)] for r in roles}
    systems[DEFAULT] = list(neutral_prompts(model.name)[: config.variants])
    questions = study_questions(config.questions, place, micro=False)
    means, counts, empty = collect(model, systems, questions, config, config.seeds[place], store, arm)
    if DEFAULT not in means:
        raise ExtractionError("the default assistant has only empty replies, which cannot be pooled.")
    return role_vectors(roles, means, counts, empty, config.min_count), means[DEFAULT]
