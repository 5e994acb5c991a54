"""The couriers of GRACE's bridge study: a Q-learner, with norms in its reward, around it, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.guard.reasons import (
    Case,
    Casebook,
    ReasonTheory,
    action_mask,
    correction,
    demands,
    judge,
    load_theory,
)
from rolecraft.worlds import BRIDGE_ACTIONS, BRIDGE_SPOTS, BridgeRules, BridgeSpot

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
THEORIES = Path(__file__).parent / "theories"
HORIZON = 60


@lru_cache
def theory(name: str) -> ReasonTheory:
    """Return one of the study's theories: `bridge`, `bridge-advisor` or `bridge-advisor-changed`."""
    return load_theory(THEORIES / f"{name}.yaml")


@lru_cache
def legal_actions() -> Bools:
    """Return what can be done in every spot, shape (spots, actions)."""
    rules = BridgeRules()
    found = np.zeros((BRIDGE_SPOTS, len(BRIDGE_ACTIONS)), dtype=bool)
    for number in range(BRIDGE_SPOTS):
        found[number, [BRIDGE_ACTIONS.index(action) for action in rules.legal(rules.spot(number))]] = True
    return found


def violations(norms: ReasonTheory) -> Bools:
    """Return which legal actions violate a theory, shape (spots, actions)."""
    rules, legal = BridgeRules(), legal_actions()
    found = np.zeros_like(legal)
    for number in range(BRIDGE_SPOTS):
        spot = rules.spot(number)
        asked = judge(norms, rules.facts(spot))
        for action in np.flatnonzero(legal[number]):
            found[number, action] = asked.violation(rules.realises(spot, BRIDGE_ACTIONS[action])) > 0.5
    return found


def shield(norms: ReasonTheory) -> Bools:
    """Return what a courier within a theory may choose among, shape (spots, actions)."""
    rules, legal = BridgeRules(), legal_actions()
    found = np.zeros_like(legal)
    for number in range(BRIDGE_SPOTS):
        spot = rules.spot(number)
        actions = np.flatnonzero(legal[number])
        realised = [rules.realises(spot, BRIDGE_ACTIONS[action]) for action in actions]
        found[number, actions] = action_mask(judge(norms, rules.facts(spot)), realised)
    return found


@dataclass(frozen=True)
class Training:
    """How the learner learns."""

    episodes: int
    rate: float = 0.2
    discount: float = 0.98
    explore: float = 0.2


def train(
    training: Training,
    rng: np.random.Generator,
    penalty: Floats | None = None,
    values: Floats | None = None,
    until: Callable[[int, Floats], bool] | None = None,
) -> Floats:
    """Learn the values of actions by tabular Q-learning.

    Args:
        training: How.
        rng: Of starts, chance and exploration.
        penalty: What is taken off the reward, shape (spots, actions).
        values: Where to start from; the best possible reward if left out, so that everything is tried.
        until: Asked after every episode with its number and the values; True ends it.

    Returns:
        Shape (spots, actions); minus infinity where an action is not legal.
    """
    rules = BridgeRules()
    legal = [np.flatnonzero(row).tolist() for row in legal_actions()]
    table = np.where(legal_actions(), rules.reward, -np.inf) if values is None else values.copy()
    kept = table.tolist()
    paid = None if penalty is None else penalty.tolist()
    for episode in range(training.episodes):
        spot = rules.start(rng.random(6).tolist())
        number = rules.index(spot)
        draws = rng.random((HORIZON, 3)).tolist()
        for chance, dice, which in draws:
            options = legal[number]
            row = kept[number]
            if dice < training.explore:
                action = options[int(which * len(options))]
            else:
                action = max(options, key=row.__getitem__)
            spot, reward, event = rules.step(spot, BRIDGE_ACTIONS[action], chance)
            if paid is not None:
                reward -= paid[number][action]
            after = rules.index(spot)
            best = 0.0 if event == "delivered" else max(kept[after])
            row[action] += training.rate * (reward + training.discount * best - row[action])
            number = after
            if event == "delivered":
                break
        if until is not None and until(episode + 1, np.array(kept)):
            break
    return np.array(kept)


@dataclass(frozen=True)
class Trip:
    """One episode of a fixed courier."""

    violations: int
    reward: float
    events: tuple[str, ...]


def travel(
    values: Floats, allowed: Bools, wrong: Bools, rng: np.random.Generator,
    heard: Callable[[BridgeSpot, int], Bools | None] | None = None,
) -> Trip:  # fmt: skip
    """Play an episode by the best allowed action.

    Args:
        values: Of actions, (spots, actions).
        allowed: What may be chosen, (spots, actions).
        wrong: What counts as a violation, (spots, actions).
        rng: Of start and chance.
        heard: Told of every spot and action in turn; returns what is allowed from then on, or None.
    """
    rules = BridgeRules()
    spot, total, count = rules.start(rng.random(6).tolist()), 0.0, 0
    events: list[str] = []
    for chance in rng.random(HORIZON).tolist():
        number = rules.index(spot)
        action = int(np.where(allowed[number], values[number], -np.inf).argmax())
        count += int(wrong[number, action])
        before = spot
        spot, reward, event = rules.step(spot, BRIDGE_ACTIONS[action], chance)
        total += reward
        events += [event] if event else []
        if heard is not None:
            changed = heard(before, action)
            allowed = allowed if changed is None else changed
        if event == "delivered":
            break
    return Trip(count, total, tuple(events))


def measure(values: Floats, allowed: Bools, wrong: Bools, episodes: int, seed: int) -> dict[str, float]:
    """Return means per episode over fixed episodes: violations, reward, deliveries, people pushed, saved and lost."""
    trips = [travel(values, allowed, wrong, np.random.default_rng(derive_seed("grace-trip", seed, each)))
             for each in range(episodes)]  # fmt: skip
    means = {name: float(np.mean([trip.events.count(name) for trip in trips]))
             for name in ("delivered", "pushed", "saved", "drowned")}  # fmt: skip
    return {
        "violations": float(np.mean([trip.violations for trip in trips])),
        "reward": float(np.mean([trip.reward for trip in trips])),
        **means,
    }


@dataclass(frozen=True)
class Taught:
    """What a phase of advice came to."""

    feedbacks: int
    refused: int
    last: int
    """Number of the last episode with a violation, from 1; 0: there was none."""


def teach(
    book: Casebook, values: Floats, gold: ReasonTheory, episodes: int, seed: int,
    garble: Callable[[Case], Case] | None = None,
) -> Taught:  # fmt: skip
    """Let the courier travel with an advisor, who objects to every violation of its own norms.

    A correction that contradicts earlier cases, of which the advisor itself now thinks otherwise, is heard once those
    are withdrawn as tests.

    Args:
        book: The courier's theory and cases; it learns.
        values: Of its actions, which stay as they are.
        gold: What the advisor goes by.
        episodes: How long.
        seed: Of the episodes.
        garble: Turns what the advisor says into something else: the control.
    """
    rules = BridgeRules()
    wrong = violations(gold)
    allowed = shield(book.theory)
    feedbacks = refused = last = 0

    def hear(spot: BridgeSpot, action: int) -> Bools | None:
        nonlocal feedbacks, refused, allowed
        if not wrong[rules.index(spot), action]:
            return None
        realised = rules.realises(spot, BRIDGE_ACTIONS[action])
        case = correction(gold, rules.facts(spot), realised, f"{gold.name}-{feedbacks + 1}")
        if case is None:
            return None
        feedbacks += 1
        case = case if garble is None else garble(case)
        lesson = book.learn(case)
        if not lesson.accepted:
            outdated = [name for name in lesson.conflicts if name in book.cases and not demands(gold, book.cases[name])]
            for name in outdated:
                book.forget(name, keep_reason=True)
            lesson = book.learn(case) if outdated else lesson
        if not lesson.accepted:
            refused += 1
            return None
        if lesson.added is not None or lesson.outranked:
            allowed = shield(book.theory)
        return allowed

    for episode in range(episodes):
        rng = np.random.default_rng(derive_seed("grace-advice", seed, episode))
        trip = travel(values, allowed, wrong, rng, hear)
        last = episode + 1 if trip.violations else last
    return Taught(feedbacks, refused, last)


def garbler(gold: ReasonTheory, rng: np.random.Generator) -> Callable[[Case], Case]:
    """Return what turns a correction into another case's: a demand of another reason, justified by any fact at hand."""
    demanded = sorted({default.conclusion for default in gold.defaults})

    def garble(case: Case) -> Case:
        others = [each for each in demanded if each != case.demanded]
        facts = [each for each in case.facts if not each.startswith("not ")]
        reason = (str(rng.choice(facts)),) if facts else ()
        return Case(case.name, case.facts, str(rng.choice(others)), reason)

    return garble


def episodes_to_clean(
    values: Floats, penalty: Floats, wrong: Bools, training: Training, every: int, trips: int, seed: int
) -> int | None:
    """Return how many episodes of retraining a courier needs until its greedy trips violate nothing; None: too many.

    Args:
        values: What it learned under the old penalty.
        penalty: The new one, (spots, actions).
        wrong: What counts as a violation now.
        training: How, and how long at most.
        every: Episodes between two checks.
        trips: Trips of a check, the same ones each time.
        seed: Of both.
    """
    legal = legal_actions()
    found: list[int] = []

    def clean(episode: int, learned: Floats) -> bool:
        if episode % every == 0 and measure(learned, legal, wrong, trips, seed)["violations"] == 0:
            found.append(episode)
        return bool(found)

    train(training, np.random.default_rng(derive_seed("grace-retrain", seed)), penalty, values, until=clean)
    return found[0] if found else None
