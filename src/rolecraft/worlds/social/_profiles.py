"""Who meets in a social scene: profiles, relationships, what each relationship lets one see, and pairs to sample."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Self

import numpy as np

from rolecraft._options import refuse_unknown
from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.roles import Role, parse_role

BIG_FIVE = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")
OPPOSED_VALUES = (
    ("power", "universalism"), ("achievement", "benevolence"), ("hedonism", "conformity"),
    ("stimulation", "security"), ("self-direction", "tradition"),
)  # fmt: skip
"""Values that lie across from each other on Schwartz's circle."""
_SECRET = "a secret: "
"""How an imported role marks a secret among what it knows."""


class Relationship(IntEnum):
    """How well two people know each other, from Sotopia (arXiv 2310.11667)."""

    STRANGER = 0
    KNOW_BY_NAME = 1
    ACQUAINTANCE = 2
    FRIEND = 3
    ROMANTIC = 4
    FAMILY = 5

    @classmethod
    def read(cls, value: Any) -> Relationship:
        """Return the relationship of a name (`know_by_name`, `know by name`) or a number.

        Raises:
            UserError: If there is none.
        """
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 5:
            return cls(value)
        name = re.sub(r"[\s-]+", "_", str(value)).lower()
        known = {each.name.lower(): each for each in cls}
        if name not in known:
            raise UserError(
                f"relationship: expected 0 to 5 or one of {', '.join(known)}, got {value!r}.{did_you_mean(name, known)}"
            )
        return known[name]


@dataclass(frozen=True)
class SocialProfile:
    """A person in a scene. All fields but the name may be left empty.

    Raises:
        UserError: If a field is unusable.
    """

    name: str
    age: int | None = None
    occupation: str = ""
    gender: str = ""
    pronouns: str = ""
    public_info: str = ""
    """What anyone who is acquainted knows."""
    big_five: Mapping[str, float] = field(default_factory=dict)
    """Trait to 0..1."""
    moral_values: tuple[str, ...] = ()
    schwartz_values: tuple[str, ...] = ()
    personality_and_values: str = ""
    decision_making_style: str = ""
    secret: str = ""
    """Shown to its owner alone."""

    def __post_init__(self) -> None:
        if not self.name.strip() or re.search(r"[\[\]<>\n]", self.name):
            raise UserError(f"a profile's name must be a text without brackets or line breaks, got {self.name!r}.")
        if self.age is not None and (isinstance(self.age, bool) or not 0 <= self.age <= 130):
            raise UserError(f"{self.name}: age must lie in 0..130, got {self.age!r}; leave it out if unknown.")
        for trait, level in self.big_five.items():
            if trait not in BIG_FIVE or not 0 <= level <= 1:
                raise UserError(
                    f"{self.name}: big_five maps {', '.join(BIG_FIVE)} to 0..1, got {trait!r}: {level!r}."
                    + did_you_mean(trait, BIG_FIVE)
                )

    @classmethod
    def read(cls, data: Any, where: str) -> Self:
        """Take a profile as it is, convert a role, or read a mapping of fields, as a study file gives it.

        Raises:
            UserError: If it is neither, or a field is unknown or unusable; `where` is named.
        """
        if isinstance(data, cls):
            return data
        if isinstance(data, Role):
            return cls.from_role(data)
        known = [each.name for each in fields(cls)]
        if not isinstance(data, Mapping) or "name" not in data:
            raise UserError(f"{where}: expected a profile with a name (fields: {', '.join(known)}), got {data!r}.")
        refuse_unknown(data, known, f"{where}: a profile")
        values: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in data.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise UserError(f"{where}: a field has the wrong type: {error}.") from None

    @classmethod
    def from_role(cls, role: Role) -> Self:
        """Return what a role shows of itself in a scene; its secret is what it marks as one among its knowledge."""
        secrets = [known.removeprefix(_SECRET) for known in role.knowledge if known.startswith(_SECRET)]
        return cls(
            name=re.sub(r"[\[\]<>\n]", " ", role.name),
            public_info=f"Described by these words: {role.description}",
            big_five={trait: level for trait, level in role.traits.items() if trait in BIG_FIVE and 0 <= level <= 1},
            moral_values=tuple(role.values),
            personality_and_values=role.style,
            secret=secrets[0] if secrets else "",
        )

    def to_role(self) -> Role:
        """Return the profile as a role, secret included, for judges and conditioners."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "person"
        knowledge = [_SECRET + self.secret] if self.secret else []
        data = {
            "id": slug, "name": self.name, "description": " ".join(["You are", self.own()]), "knowledge": knowledge,
            "values": [*self.moral_values, *self.schwartz_values], "traits": dict(self.big_five),
        }  # fmt: skip
        return parse_role(data, f"profile {self.name!r}")

    def seen(self, relationship: Relationship) -> str:
        """Return what someone in a relationship sees of this profile: never the secret; of a stranger, nothing."""
        if relationship == Relationship.STRANGER:
            return ""
        if relationship == Relationship.KNOW_BY_NAME:
            return f"{self.name}."
        known = self._acquainted()
        return known if relationship == Relationship.ACQUAINTANCE else _joined(known, *self._personal())

    def own(self) -> str:
        """Return what the person knows of itself, without the secret."""
        body = (self.gender, f"pronouns {self.pronouns}" if self.pronouns else "")
        return _joined(self._acquainted(), _sentence(", ".join(filter(None, body))), *self._personal())

    def _acquainted(self) -> str:
        who = (self.name, f"{self.age} years old" if self.age is not None else "", self.occupation)
        return _joined(_sentence(", ".join(filter(None, who))), _sentence(self.public_info))

    def _personal(self) -> list[str]:
        traits = ", ".join(f"{trait} {level:.2f}" for trait, level in self.big_five.items())
        values = ", ".join((*self.moral_values, *self.schwartz_values))
        return [
            _sentence(f"Traits from 0 to 1: {traits}") if traits else "",
            _sentence(f"Values: {values}") if values else "",
            _sentence(self.personality_and_values),
            _sentence(f"Way of deciding: {self.decision_making_style}") if self.decision_making_style else "",
        ]

    def contradictions(self) -> list[str]:
        """Return what in the profile does not fit together."""
        held = {value.casefold() for value in self.schwartz_values}
        found = [f"values {a} and {b}" for a, b in OPPOSED_VALUES if a in held and b in held]
        for trait, high, words in _TRAIT_WORDS:
            level = self.big_five.get(trait)
            if level is not None and (level > 0.7) != high and (level < 0.3) == high:
                found += [f"{trait} {level:.2f} and {word}" for word in words if word in self.decision_making_style]
        return found


_TRAIT_WORDS = (
    ("conscientiousness", True, ("careful", "methodical")), ("conscientiousness", False, ("hasty",)),
    ("agreeableness", True, ("considerate",)), ("agreeableness", False, ("unyielding",)),
    ("openness", True, ("inventive",)), ("openness", False, ("by habit",)),
)  # fmt: skip
"""Trait, whether the words speak of much of it, and the words: at odds where the trait's level says the opposite."""
_WOMEN = ("Ada", "Cleo", "Edda", "Greta", "Hana", "Kaya", "Mira", "Oda", "Rosa", "Tove")
_MEN = ("Bela", "Dario", "Femi", "Imre", "Jonas", "Luis", "Nils", "Pavel", "Sami", "Yaro")
_LAST = (
    "Abel", "Brandt", "Castro", "Dahl", "Engel", "Farkas", "Gallo", "Horn", "Ito", "Jansen", "Kovacs", "Lund", "Moreau",
    "Novak", "Okoro", "Price",
)  # fmt: skip
_WORK = (
    "baker", "nurse", "carpenter", "teacher", "bus driver", "gardener", "librarian", "cook", "electrician", "clerk",
    "florist", "plumber",
)  # fmt: skip
_KNOWN_FOR = (
    "sings in the choir", "repairs old radios", "runs the street market", "coaches the junior team",
    "grows vegetables on the roof", "walks two dogs at dawn",
)  # fmt: skip
_MORALS = ("care", "fairness", "loyalty", "authority", "purity")
_SCHWARTZ = tuple(itertools.chain(*OPPOSED_VALUES))
_STYLES = ("careful and slow", "methodical", "hasty", "considerate of others", "unyielding", "inventive", "by habit")
_SECRETS = (
    "has lost the savings on a bet", "is about to move abroad", "failed the last exam and told nobody",
    "reads a neighbour's letters", "has been offered another post",
)  # fmt: skip


def make_profiles(n: int, seed: int) -> list[SocialProfile]:
    """Sample profiles without contradictions, all with different names.

    Raises:
        UserError: If more are asked for than there are names.
    """
    names = [f"{first} {last}" for first in (*_WOMEN, *_MEN) for last in _LAST]
    if not 1 <= n <= len(names):
        raise UserError(f"expected 1 to {len(names)} profiles, got {n}.")
    rng = np.random.default_rng(derive_seed("social-profiles", seed))
    chosen = rng.permutation(len(names))[:n]
    return [_consistent(names[int(place)], rng) for place in chosen]


def _consistent(name: str, rng: np.random.Generator) -> SocialProfile:
    while True:
        found = _draw(name, rng)
        if not found.contradictions():
            return found


def _draw(name: str, rng: np.random.Generator) -> SocialProfile:
    def some(items: Sequence[str], n: int) -> tuple[str, ...]:
        return tuple(items[int(place)] for place in rng.permutation(len(items))[:n])

    woman = name.split()[0] in _WOMEN
    return SocialProfile(
        name=name,
        age=int(rng.integers(19, 76)),
        occupation=some(_WORK, 1)[0],
        gender="woman" if woman else "man",
        pronouns="she/her" if woman else "he/him",
        public_info=f"Known in the street as someone who {some(_KNOWN_FOR, 1)[0]}",
        big_five={trait: round(float(rng.uniform()), 2) for trait in BIG_FIVE},
        moral_values=some(_MORALS, 2),
        schwartz_values=some(_SCHWARTZ, 3),
        decision_making_style=some(_STYLES, 1)[0],
        secret=f"{name.split()[0]} {some(_SECRETS, 1)[0]}",
    )


@dataclass(frozen=True)
class RelationshipGraph:
    """People and how the pairs among them stand to each other; pairs without an edge are not sampled.

    Raises:
        UserError: If two people share a name, or an edge names a place outside the people.
    """

    people: tuple[SocialProfile, ...]
    edges: Mapping[tuple[int, int], Relationship]
    """(smaller place, larger place) to relationship."""

    def __post_init__(self) -> None:
        names = [person.name for person in self.people]
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            raise UserError(f"two people are called {twice[0]!r}; give each a name of its own.")
        for a, b in self.edges:
            if not 0 <= a < b < len(self.people):
                raise UserError(f"edge ({a}, {b}): expected two places 0 <= a < b < {len(self.people)}.")

    @classmethod
    def make(cls, people: Sequence[SocialProfile], seed: int, least: int = 5) -> Self:
        """Draw a relationship for every pair so that each kind has at least `least` pairs.

        Raises:
            UserError: If there are too few people for that.
        """
        pairs = list(itertools.combinations(range(len(people)), 2))
        if len(pairs) < least * len(Relationship):
            raise UserError(
                f"{len(people)} people make {len(pairs)} pairs, too few for {least} of each of {len(Relationship)} "
                "relationships; give more people or a smaller `least`."
            )
        rng = np.random.default_rng(derive_seed("social-graph", seed))
        kinds = [kind for kind in Relationship for _ in range(least)]
        kinds += [Relationship(int(kind)) for kind in rng.integers(len(Relationship), size=len(pairs) - len(kinds))]
        order = rng.permutation(len(pairs))
        return cls(tuple(people), {pairs[int(place)]: kind for place, kind in zip(order, kinds, strict=True)})

    def sample(
        self, relationship: Relationship | None, n: int, seed: int, ages: tuple[int, int] = (0, 130)
    ) -> list[tuple[SocialProfile, SocialProfile, Relationship]]:
        """Draw different pairs that fit, each in a random order.

        Args:
            relationship: Of the pair; None: any, uniformly over pairs.
            n: How many.
            seed: Of the draw.
            ages: Youngest and oldest age of both; people of unknown age fit the full range only.

        Raises:
            UserError: If fewer than `n` pairs fit, saying how many do.
        """
        fitting = [
            (pair, kind)
            for pair, kind in self.edges.items()
            if relationship in (None, kind) and all(_of_age(self.people[place], ages) for place in pair)
        ]
        if len(fitting) < n:
            name = "any relationship" if relationship is None else relationship.name.lower()
            raise UserError(
                f"{n} pairs of {name} aged {ages[0]} to {ages[1]} are wanted, and {len(fitting)} fit; ask for fewer, "
                "widen the ages, or add people."
            )
        rng = np.random.default_rng(derive_seed("social-pairs", seed))
        drawn = []
        for place in rng.permutation(len(fitting))[:n]:
            (a, b), kind = fitting[int(place)]
            if rng.integers(2):
                a, b = b, a
            drawn.append((self.people[a], self.people[b], kind))
        return drawn


def _of_age(person: SocialProfile, ages: tuple[int, int]) -> bool:
    return ages == (0, 130) if person.age is None else ages[0] <= person.age <= ages[1]


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)
