"""Who may act in a simulation, and who sits where in each episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import Budget, derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models import LanguageModel
from rolecraft.roles import load_inventory
from rolecraft.screening import load_lock
from rolecraft.screening._lock import file_hash
from rolecraft.simulate._interventions import check_interventions
from rolecraft.worlds import World

if TYPE_CHECKING:
    from rolecraft.conditioning import Intervention
    from rolecraft.guard import RoleGuards
    from rolecraft.screening import Admission
    from rolecraft.simulate._study import SimulationStudy


def check_study(study: SimulationStudy, model: LanguageModel) -> tuple[dict[str, Admission], list[dict[str, str]]]:
    """Return the roles that may act, by id, and the role of every agent in each episode; nothing is played.

    Raises:
        UserError: If anything the study names cannot be used.
        LockError: If the lock refuses a role.
    """
    world = study.make_world()
    world.reset(study.seed)
    if study.memory:
        study.memory.build(model)
    cast, population = _admitted(study, model)
    _check_seats(study, world, population)
    check_interventions(study.interventions, world, list(cast), list(study.arms))
    for what, arms in (("drift", study.drift.arms if study.drift else ()), ("guard", study.guard.arms)):
        for arm in arms:
            if arm not in study.arms:
                raise UserError(f"{what}.arms: there is no arm {arm!r}.{did_you_mean(arm, study.arms)}")
    if study.budget and Budget.parse(study.budget).usd is not None and study.serving.prices is None:
        raise UserError(
            "budget: a limit in USD needs serving.prices, USD per million prompt and per million new tokens."
        )
    study_caps(study, cast, model, study_guards(study, cast))
    return cast, [_seating(study, world, population, number) for number in range(study.episodes)]


def study_guards(study: SimulationStudy, cast: Mapping[str, Admission]) -> RoleGuards | None:
    """Return the guards of the roles that may act; None if no role has one.

    Raises:
        UserError: If a policy cannot be read, or is named for a role that does not act.
    """
    caps = {name: part.cap.model_dump(exclude_none=True) for name, part in cast.items() if part.cap}
    return study.guard.build(cast, {name: part.guard for name, part in cast.items()}, caps)


def study_caps(
    study: SimulationStudy, cast: Mapping[str, Admission], model: LanguageModel, guards: RoleGuards | None
) -> dict[str, tuple[Intervention, ...]]:
    """Return the caps that guards put on activations, by role.

    Raises:
        UserError: If a role has one and the model cannot be capped, or its direction cannot be used.
    """
    if guards is None or not any(policy.cap or policy.caps for policy in guards.policies.values()):
        return {}
    from rolecraft.simulate._drift import find_directions

    return guards.caps(model, cast, find_directions(cast, study.lock, model))


def _identity(part: Admission) -> list[Any]:
    """Return all that decides how a role is put on, so that a run is not resumed with another lock's."""
    direction = file_hash(part.direction) if part.direction else None
    return [part.role.hash, part.screened, part.conditioner, part.rung, part.strength, part.site, direction]


def _seating(study: SimulationStudy, world: World, population: Sequence[str], number: int) -> dict[str, str]:
    """Return the role of every agent in one episode, the same in all arms."""
    free = [agent for agent in world.agents if agent not in study.seats]
    others = [name for name in population if name not in study.seats.values()]
    rng = np.random.default_rng(derive_seed(study.seed, "cast", number))
    drawn = [others[place] for place in rng.permutation(len(others))[: len(free)]]
    roles = study.seats | dict(zip(free, drawn, strict=True))
    return {agent: roles[agent] for agent in world.agents}


def _admitted(study: SimulationStudy, model: LanguageModel) -> tuple[dict[str, Admission], list[str]]:
    """Return the roles that may act, in the order of the study or else of the lock, and those that fill free seats.

    Raises:
        LockError: If the lock refuses a role that the study names.
        UserError: If the inventory has no such role, or the lock lets no role in.
    """
    lock, inventory = load_lock(study.lock), load_inventory(study.inventory)
    known = {role.id: role for role in inventory}
    passed = [name for name, entry in lock.content.roles.items() if entry.conditioner is not None]
    population = list(dict.fromkeys([*(study.roles or passed), *study.seats.values()]))
    swapped = [one.role for one in study.interventions if one.role is not None]
    wanted = list(dict.fromkeys([*population, *swapped]))
    for name in wanted:
        if name not in known:
            raise UserError(f"{study.inventory} has no role {name!r}.{did_you_mean(name, known)}")
    if not wanted:
        raise UserError(f"{study.lock}: lets no role in; screen more roles, or name some and allow_unscreened: true.")
    parts = lock.admit_all(
        [known[name] for name in wanted], model.name, model.revision, allow_unscreened=study.allow_unscreened
    )
    return {part.role.id: part for part in parts}, population


def _check_seats(study: SimulationStudy, world: World, population: Sequence[str]) -> None:
    for agent in study.seats:
        if agent not in world.agents:
            raise UserError(
                f"seats: {world.name} has no agent {agent!r} (agents: {', '.join(world.agents)})."
                + did_you_mean(agent, world.agents)
            )
    free = len(world.agents) - len(study.seats)
    others = len([name for name in population if name not in study.seats.values()])
    if free > others:
        raise UserError(
            f"{world.name} has {len(world.agents)} seats, of which {free} are to be filled from {others} roles; "
            "let more roles in, or fill seats by `seats`."
        )


def cast_facts(cast: Mapping[str, Admission]) -> dict[str, list[Any]]:
    """Return the identity of every role that may act."""
    return {name: _identity(part) for name, part in cast.items()}
