"""Train, validation and test: three sets of ids that cannot overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from rolecraft.errors import UserError


def refuse_overlap(**sets: Iterable[str]) -> None:
    """Refuse sets of ids that share one, or name one twice.

    Raises:
        UserError: Naming the sets and some of the shared ids.
    """
    known = {name: list(ids) for name, ids in sets.items()}
    for name, ids in known.items():
        twice = sorted({id_ for id_ in ids if ids.count(id_) > 1}) if len(set(ids)) < len(ids) else []
        if twice:
            raise UserError(f"{name}: {', '.join(twice[:3])} stands in it twice; ids must differ.")
    for (one, left), (other, right) in combinations(known.items(), 2):
        shared = sorted(set(left) & set(right))
        if shared:
            raise UserError(
                f"{one} and {other} share {len(shared)} id(s) ({', '.join(shared[:3])}): choosing on what is reported "
                "is leakage; keep them apart."
            )


@dataclass(frozen=True)
class Split:
    """Ids to learn from, to choose by, and to report on.

    Raises:
        UserError: If two of the sets share an id, or one is empty.
    """

    train: Sequence[str]
    validation: Sequence[str]
    test: Sequence[str]

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not getattr(self, name):
                raise UserError(f"split: {name} is empty; give at least one id.")
        refuse_overlap(train=self.train, validation=self.validation, test=self.test)
