"""Who is asked in the BFI-Adapt studies: planted agents with known shifts, and personas played by a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.models import Chat, LanguageModel, Sampling
from rolecraft.models._base import Message
from rolecraft.roles import Role

if TYPE_CHECKING:
    from rolecraft.measures import HumanChange, HumanScale, LifeEvents, Questionnaire, Shifts
    from rolecraft.measures._statistics import Floats

# Planted agents


@dataclass(frozen=True)
class PlantedAgent:
    """A population that answers an instrument from latent traits; its shifts are known."""

    size: float = 0.0
    """Mean shift on documented cells, as a multiple of the human mean; negative is the wrong direction."""
    wrong: float = 0.0
    """Share of documented cells that go the wrong way."""
    spread: float = 0.0
    """SD of the shift between personas, as a multiple of the human one."""
    noise: float = 0.6
    """SD of an item's answer from one asking to the next, in points."""
    everywhere: bool = False
    """Shifts by as much on cells without a documented direction, in directions drawn at random."""


@dataclass(frozen=True)
class PlantedWorld:
    """What the planted agents have in common: the documented changes and the human scale, made up for the test."""

    events: tuple[str, ...]
    directions: tuple[HumanChange, ...]
    human: HumanScale
    human_mean: float
    """Human mean change on documented cells, in SD between persons."""

    def sign(self, event: str, trait: str) -> int:
        """Return the documented direction, 0 if there is none."""
        return next((c.sign for c in self.directions if (c.event, c.trait) == (event, trait)), 0)


SD, SHIFT_SD = 0.6, 0.3
"""Planted human SDs, in points: of traits between persons and of their change."""


def planted_world(
    questionnaire: Questionnaire, events: int, documented: int, mean: float, limits: tuple[float, float], seed: int
) -> PlantedWorld:
    """Draw which cells are documented, and in which direction."""
    from rolecraft.measures import HumanChange, HumanScale

    rng = np.random.default_rng(derive_seed("bfi-adapt", "world", seed))
    names = tuple(f"event-{number}" for number in range(events))
    cells = [(event, trait) for event in names for trait in questionnaire.traits]
    chosen = sorted(rng.choice(len(cells), documented, replace=False))
    changes = tuple(
        HumanChange(
            event=cells[place][0],
            trait=cells[place][1],
            sign=int(sign),
            source="planted",
            low=limits[0],
            high=limits[1],
        )
        for place, sign in zip(chosen, rng.choice([-1, 1], documented), strict=True)
    )
    traits = questionnaire.traits
    return PlantedWorld(names, changes, HumanScale(dict.fromkeys(traits, SD), dict.fromkeys(traits, SHIFT_SD)), mean)


def planted_shifts(
    agent: PlantedAgent, world: PlantedWorld, questionnaire: Questionnaire, size: tuple[int, int, int], seed: int
) -> tuple[Shifts, dict[tuple[str, str], int]]:
    """Let a planted agent fill in the instrument before and after every event.

    Args:
        agent: The population.
        world: Documented changes and human scale.
        questionnaire: What is filled in; answers are whole digits, reversed items are answered the other way round.
        size: Personas, repeats, retests.
        seed: Of personas, directions and answers.

    Returns:
        The scores, and the planted direction of every documented cell (0 where the agent does not shift).
    """
    from rolecraft.measures import Shifts

    personas, repeats, retests = size
    rng = np.random.default_rng(derive_seed("bfi-adapt", "planted", seed))
    traits = questionnaire.traits
    level = rng.normal(3, SD, (personas, len(traits)))
    offsets = rng.normal(0, 0.3, len(questionnaire.items))
    signs = np.array([[world.sign(event, trait) for trait in traits] for event in world.events])
    flipped = np.zeros(signs.shape, dtype=bool)
    cells = np.argwhere(signs != 0)
    for row, column in rng.permutation(cells)[: round(agent.wrong * len(cells))]:
        flipped[row, column] = True
    towards = np.where(flipped, -signs, signs) * agent.size
    if agent.everywhere:
        towards = np.where(signs == 0, rng.choice([-1, 1], signs.shape) * agent.size, towards)
    shift = towards * world.human_mean * SD + agent.spread * SHIFT_SD * rng.normal(size=(personas, *signs.shape))

    def asked(latent: Floats) -> Floats:
        return questionnaire.score_array(_fill_in(latent, offsets, agent.noise, questionnaire, rng))

    base = np.broadcast_to(level[:, None, None], (personas, len(world.events), repeats, len(traits)))
    calm = np.broadcast_to(level[:, None], (personas, retests, len(traits)))
    shifts = Shifts(
        tuple(f"p{number}" for number in range(personas)), world.events, traits,
        asked(base), asked(base + shift[:, :, None]), asked(calm), asked(calm),
    )  # fmt: skip
    planted = {
        (event, trait): int(np.sign(towards[row, column]))
        for row, event in enumerate(world.events)
        for column, trait in enumerate(traits)
        if signs[row, column]
    }
    return shifts, planted


def _fill_in(
    latent: Floats, offsets: Floats, noise: float, questionnaire: Questionnaire, rng: np.random.Generator
) -> Floats:
    """Answer every item with a digit: latent trait, difficulty of the item and noise, rounded and cut to the scale."""
    place = {trait: number for number, trait in enumerate(questionnaire.traits)}
    wanted = latent[..., [place[item.trait] for item in questionnaire.items]] + offsets
    wanted = wanted + noise * rng.normal(size=wanted.shape)
    top = len(questionnaire.scale)
    return questionnaire.keyed(np.clip(np.rint(wanted), 1, top))  # keying twice is answering the other way round


# Personas played by a model

ADJECTIVES = {
    "openness": "imaginative",
    "conscientiousness": "orderly",
    "extraversion": "outgoing",
    "agreeableness": "kind-hearted",
    "neuroticism": "anxious",
}
DEGREES = {1: "not at all", 2: "not very", 3: "somewhat", 4: "rather", 5: "very"}
GENDERS = ("woman", "man")
REGIONS = ("Northern Europe", "East Asia", "West Africa", "South America")
ELABORATE = " In one or two sentences, in the first person, say how you feel now."


def make_personas(count: int, seed: int) -> list[Role]:
    """Return personas of an age, a gender, a region and a Big Five profile; gender and region are their tags."""
    rng = np.random.default_rng(derive_seed("bfi-adapt", "personas", seed))
    found = []
    for number in range(count):
        gender, region = GENDERS[number % 2], REGIONS[int(rng.integers(len(REGIONS)))]
        levels = {trait: int(rng.integers(1, 6)) for trait in ADJECTIVES}
        profile = ", ".join(f"{DEGREES[level]} {ADJECTIVES[trait]}" for trait, level in levels.items())
        text = f"You are a {int(rng.integers(20, 70))}-year-old {gender} from {region}. You are {profile}."
        name = f"persona {number}"
        found.append(Role(id=f"s{seed}-p{number}", name=name, description=text, traits=levels, tags=(gender, region)))
    return found


@dataclass(frozen=True)
class Sitting:
    """One sheet to be filled in."""

    kind: str
    """`pre`, `retest`, `event`, `neutral` or `later`."""
    event: str
    repeat: int
    context: Chat
    wording: int


def sittings(
    model: LanguageModel, role: Role, events: LifeEvents, chosen: Sequence[str], repeats: int, retests: int,
    fillers: int, max_tokens: int, seed: int,
) -> list[Sitting]:  # fmt: skip
    """Prepare all sheets of one persona: each in a context of its own, so that no sheet sees the answers of another.

    A sheet after the event is asked in the next wording, and so is the one after a neutral text: whatever asking
    twice does is in the retest as well.
    """
    system: Message = {"role": "system", "content": role.description}
    told: list[tuple[str, str, int, str]] = []
    for repeat in range(retests):
        text = events.neutral[(repeat // len(events.neutral) + repeat) % len(events.neutral)]
        told.append(("retest", "", repeat, text))
    for repeat in range(repeats):
        told.append(("neutral", "", repeat, events.neutral[-1 - repeat % len(events.neutral)]))
        for name in chosen:
            narratives = events[name].narratives
            told.append(("event", name, repeat, narratives[repeat % len(narratives)]))
    chats = [[system, _user(text + ELABORATE)] for *_, text in told]
    seeds = [derive_seed("bfi-adapt", seed, role.id, kind, event, repeat) for kind, event, repeat, _ in told]
    chats = _answered(model, chats, max_tokens, seeds)
    found = [Sitting("pre", "", repeat, [system], repeat) for repeat in range(retests)]
    for (kind, event, repeat, _), context in zip(told, chats, strict=True):
        found.append(Sitting(kind, event, repeat, context, repeat + 1))
    later = [sitting for sitting in found if sitting.kind == "event"] if fillers else []
    contexts = [list(sitting.context) for sitting in later]
    for turn in range(fillers):
        contexts = [[*context, _user(events.fillers[turn % len(events.fillers)])] for context in contexts]
        drawn = [derive_seed("bfi-adapt", seed, role.id, "filler", s.event, s.repeat, turn) for s in later]
        contexts = _answered(model, contexts, max_tokens, drawn)
    found += [
        Sitting("later", sitting.event, sitting.repeat, context, sitting.wording)
        for sitting, context in zip(later, contexts, strict=True)
    ]
    return found


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _answered(
    model: LanguageModel, chats: Sequence[Sequence[Message]], max_tokens: int, seeds: Sequence[int]
) -> list[list[Message]]:
    """Append the model's reply to each chat; a chat that got none goes on without a word."""
    replies = model.generate(chats, Sampling(max_tokens, 0.7, 0.95), seeds=seeds)
    said = [reply.text.strip() or "..." for reply in replies]
    return [[*chat, {"role": "assistant", "content": text}] for chat, text in zip(chats, said, strict=True)]


def finite(value: float) -> float | None:
    """Return a number as a row keeps it: None for NaN."""
    return None if math.isnan(value) else float(value)
