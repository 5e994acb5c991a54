"""Forty scenes with exact pay-offs in five families: settings from a data file, numbers from a seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rolecraft._files import bundled, read_mapping
from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds.social._scenarios import SocialBrief, SocialScenario

Values = tuple[dict[str, float], dict[str, float]]
_DAYS = ("Monday", "Wednesday", "Friday", "Sunday")
_PLACES = ("park", "museum", "harbour", "theatre")
_HOURS = ("10", "14", "18")


class _Numbers:
    """What a family draws for one scene: terms and both seats' values, words for the texts, and facts that follow."""

    def __init__(self, values: Values, **words: Any) -> None:
        self.values, self.words = values, words
        self.facts: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self.learn: dict[str, float] = {}
        self.keep = 0.0


def _price(rng: np.random.Generator, thing: str) -> _Numbers:
    step = int(rng.choice([2, 5, 10]))
    start = step * int(rng.integers(2, 8))
    low, high = int(rng.integers(0, 5)), int(rng.integers(7, 12))
    prices = [start + step * place for place in range(12)]
    seller = {str(price): float(place - low) for place, price in enumerate(prices)}
    buyer = {str(price): float(high - place) for place, price in enumerate(prices)}
    return _Numbers((seller, buyer), low=prices[low], high=prices[high])


def _split(rng: np.random.Generator, thing: str) -> _Numbers:
    kinds = thing.replace(" and ", ", ").split(", ")
    counts = [int(count) for count in rng.permutation([1, 2, int(rng.integers(1, 4))])]
    worth = rng.integers(0, 5, size=(2, len(kinds)))
    vouchers = [int(number) for number in rng.integers(1, 4, size=2)]
    one: dict[str, float] = {}
    two: dict[str, float] = {}
    for shares in itertools.product(*(range(count + 1) for count in counts)):
        term = ", ".join(f"{share} {kind}" for share, kind in zip(shares, kinds, strict=True))
        one[term] = float(worth[0] @ shares - vouchers[0])
        two[term] = float(worth[1] @ (np.array(counts) - shares) - vouchers[1])
    return _Numbers((one, two), low=vouchers[0], high=vouchers[1])


def _borrow(rng: np.random.Generator, thing: str) -> _Numbers:
    amounts = [20 * (place + 1) for place in range(4)]
    need, spare = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    cost, pull = float(rng.uniform(0.5, 1.5)), float(rng.uniform(0.3, 1.5))
    one: dict[str, float] = {}
    two: dict[str, float] = {}
    for (place, amount), (late, day) in itertools.product(enumerate(amounts), enumerate(_DAYS)):
        term = f"{amount} until {day}"
        one[term] = round(place + 1 + pull * late if place >= need else -2.0, 2)
        two[term] = round(5 - cost * (place + 1) - 0.5 * late if late <= spare else -4.0, 2)
    return _Numbers((one, two), low=amounts[need], day=_DAYS[spare])


def _secret(rng: np.random.Generator, thing: str) -> _Numbers:
    limit = int(rng.integers(4, 8))
    hours = range(1, 9)
    one = {f"{number} hours": float(number - 1) for number in hours}
    two = {f"{number} hours": float(limit - number) for number in hours}
    numbers = _Numbers((one, two), high=limit)
    numbers.learn, numbers.keep = {"work": 1.0, "home": 1.0, "letter": 3.0}, 4.0
    return numbers


def _plan(rng: np.random.Generator, thing: str) -> _Numbers:
    liked = [dict(zip(_PLACES, rng.permutation(4) + 1, strict=True)) for _ in range(2)]
    timed = [dict(zip(_HOURS, rng.permutation(3), strict=True)) for _ in range(2)]
    places = [str(rng.choice(_PLACES)) for _ in range(2)]
    hours = [str(rng.choice(_HOURS)) for _ in range(2)]

    def worth(seat: int, place: str, hour: str) -> float:
        works = place != places[seat] and hour != hours[seat]
        return float(liked[seat][place] + timed[seat][hour]) if works else -3.0

    terms = {f"{place} at {hour}": (place, hour) for place, hour in itertools.product(_PLACES, _HOURS)}
    one = {term: worth(0, *where) for term, where in terms.items()}
    two = {term: worth(1, *where) for term, where in terms.items()}
    numbers = _Numbers((one, two))
    numbers.facts = tuple(  # type: ignore[assignment]
        {"hours": f"This does not work for me: {hours[seat]}.", "places": f"This does not work for me: {places[seat]}."}
        for seat in range(2)
    )
    return numbers


FAMILIES: Mapping[str, Callable[[np.random.Generator, str], _Numbers]] = {
    "price": _price, "split": _split, "borrow": _borrow, "secret": _secret, "plan": _plan,
}  # fmt: skip
"""Bargaining over a price, sharing out goods, lending, keeping a secret while asked, planning with what each knows."""


def load_social_scenarios(
    source: str | Path = "social-scenes-v1", *, seed: int = 0, family: str | None = None
) -> list[SocialScenario]:
    """Make the scenes of a file of settings: eight in each of five families in the bundled one.

    Args:
        source: Name of a bundled file, or a path.
        seed: Of the numbers; each scene's follow from its id and this seed alone.
        family: Only these.

    Raises:
        UserError: If the file is not of this form, or there is no such family.
    """
    path = bundled("worlds", source)
    data = read_mapping(path)
    if not isinstance(data, dict) or not isinstance(data.get("families"), dict):
        raise UserError(f"{path}: expected a mapping with 'families'.")
    for name in [*data["families"], *([family] if family else [])]:
        if name not in FAMILIES:
            raise UserError(
                f"{path}: no family {name!r} (families: {', '.join(FAMILIES)}).{did_you_mean(name, FAMILIES)}"
            )
    chosen = {name: entry for name, entry in data["families"].items() if family in (None, name)}
    try:
        return [_scene(name, entry, setting, seed) for name, entry in chosen.items() for setting in entry["settings"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: a family lacks a field, or it has the wrong form: {error!r}.") from None


def social_scenario(name: str, seed: int = 0) -> SocialScenario:
    """Return a bundled scene by its id, such as `price-bicycle`.

    Raises:
        UserError: If there is none.
    """
    found = {scenario.id: scenario for scenario in load_social_scenarios(seed=seed)}
    if name not in found:
        raise UserError(f"there is no scene {name!r} (scenes: {', '.join(found)}).{did_you_mean(name, found)}")
    return found[name]


def _scene(family: str, entry: Mapping[str, Any], setting: list[str], seed: int) -> SocialScenario:
    """Draw numbers until some terms are good for both seats."""
    name, thing, place = setting
    rng = np.random.default_rng(derive_seed("social-scene", f"{family}-{name}", seed))
    numbers = FAMILIES[family](rng, thing)
    while not _worth_a_talk(numbers.values):
        numbers = FAMILIES[family](rng, thing)
    words = {"thing": thing, "place": place} | numbers.words
    briefs = []
    for seat in range(2):
        facts = {topic: str(rng.choice(pool)) for topic, pool in entry["facts"][seat].items()} | numbers.facts[seat]
        briefs.append(
            SocialBrief(
                entry["goals"][seat].format(**words), numbers.values[seat], facts, entry["secrets"][seat],
                numbers.learn if seat else {}, 0.0 if seat else numbers.keep,
            )
        )  # fmt: skip
    return SocialScenario(
        f"{family}-{name}", entry["text"].format(**words), tuple(briefs), tuple(numbers.values[0]), family,
        bool(entry["material"]),
    )  # fmt: skip


def _worth_a_talk(values: Values) -> bool:
    """Return whether some terms are good for both, and neither seat's best ones are bearable for the other."""
    one, two = values
    both = any(one[term] > 0 and two[term] > 0 for term in one)
    apart = two[max(one, key=lambda term: one[term])] <= 0 or one[max(two, key=lambda term: two[term])] <= 0
    return both and apart
