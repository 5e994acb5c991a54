"""The prompts of a batch, run once: equal prompts as one, and what several prompts begin with as one too."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rolecraft.conditioning._steering import Steering
from rolecraft.models._cache import RowCache
from rolecraft.models._hooks import early
from rolecraft.models._network import Network

_WORTH = 0.8
"""Two passes replace one where they take at most this share of its tokens, padding counted."""


class Family(NamedTuple):
    """Prompts that begin alike."""

    members: list[int]
    head: int
    """Tokens that they share."""


class Prefixes:
    """Keys and values of every row's prompt without its last token.

    Equal prompts under equal steering are one. Equal prompts under different steering are one up to the first block
    that is steered. Else, where many begin alike, as a role's system text does before each question, their common head
    is computed first, once, and each goes on from it.

    Args:
        network: The model.
        prompts: Token ids per row, one or more each.
        steering: One entry per row.
    """

    def __init__(self, network: Network, prompts: Sequence[Sequence[int]], steering: Steering) -> None:
        steering = Steering(tuple(map(early, steering.rows)))
        self.lengths = [len(prompt) - 1 for prompt in prompts]
        """Tokens of each row's prefix."""
        self.width = max(self.lengths)
        changes = [tuple(map(id, row)) for row in steering.rows]
        first: dict[Hashable, int] = {}
        for row, key in enumerate(zip(map(tuple, prompts), changes, strict=True)):
            first.setdefault(key, row)
        places = {row: place for place, row in enumerate(first.values())}
        self._of_row = [places[first[key]] for key in zip(map(tuple, prompts), changes, strict=True)]
        distinct = list(first.values())
        self._cache, self._starts = _run(
            network, [prompts[row] for row in distinct], [changes[row] for row in distinct], steering.select(distinct)
        )

    def expand(self, capacity: int, turned: bool = False) -> RowCache:
        """Give every row its prefix, right-aligned so that all rows end in column `width`; to be called once.

        Args:
            capacity: Columns of the new cache.
            turned: Lay its keys out for decoding.
        """
        starts = [self._starts[place] for place in self._of_row]
        return self._cache.expanded(self._of_row, self.lengths, capacity, turned, starts)


def _run(
    network: Network, prompts: Sequence[Sequence[int]], changes: Sequence[Hashable], steering: Steering
) -> tuple[RowCache, list[int]]:
    """Run distinct prompts; return their cache and the column in which each begins."""
    starts = [0] * len(prompts)
    place: dict[tuple[int, ...], int] = {}
    rows = [place.setdefault(tuple(prompt), len(place)) for prompt in prompts]
    if network.widens and steering.sites and len(place) <= _WORTH * len(prompts):
        # The same prompts under several steerings are the same up to the first block that is steered.
        return network.widened_prefix(list(place), rows, steering, min(steering.sites)), starts
    found = families([prompt[:-1] for prompt in prompts], changes)
    if not worth_sharing([len(prompt) - 1 for prompt in prompts], found):
        return network.prefix(prompts, steering), starts
    eldest = [family.members[0] for family in found]
    # One token more than the head, because the last one is not run.
    first = [prompts[member][: family.head + 1] for member, family in zip(eldest, found, strict=True)]
    heads = network.prefix(first, steering.select(eldest))
    family_of = {member: number for number, family in enumerate(found) for member in family.members}
    of_prompt = [family_of[row] for row in range(len(prompts))]
    behind = [found[number].head for number in of_prompt]
    tails = [prompt[head:-1] for prompt, head in zip(prompts, behind, strict=True)]
    cache = heads.expanded(of_prompt, behind, max(behind) + max(map(len, tails)))
    with network.steered(steering) as steerer:
        network.extend(tails, cache, steerer, behind)
    return cache, [max(behind) - head for head in behind]


def worth_sharing(lengths: Sequence[int], found: Sequence[Family]) -> bool:
    """Return whether running heads first and tails then takes clearly fewer tokens, padding counted.

    Args:
        lengths: Tokens per prompt.
        found: What `families` made of the prompts.
    """
    tails = max(lengths[member] - family.head for family in found for member in family.members)
    heads = len(found) * max(family.head for family in found)
    return heads > 0 and heads + len(lengths) * tails <= _WORTH * len(lengths) * max(lengths)


def families(prompts: Sequence[Sequence[int]], changes: Sequence[Hashable]) -> list[Family]:
    """Split prompts into families whose heads, run once each, save most tokens.

    Sorted prompts have their likest neighbours beside them, so families are runs of the sorted order: the best split
    of n prompts is found exactly, in n squared steps.

    Args:
        prompts: Token ids.
        changes: What is done to each; only prompts with the same share a head.
    """
    number = {change: place for place, change in enumerate(dict.fromkeys(changes))}
    order = sorted(range(len(prompts)), key=lambda place: (number[changes[place]], tuple(prompts[place])))
    alike = [
        _common(prompts[one], prompts[other]) if changes[one] == changes[other] else 0 for one, other in pairwise(order)
    ]
    saved, origin, heads = [0], [0], [0]
    for end in range(1, len(order) + 1):
        head = len(prompts[order[end - 1]])
        best = (saved[end - 1], end - 1, 0)
        for start in range(end - 2, -1, -1):
            head = min(head, alike[start])
            if not head:
                break
            best = max(best, (saved[start] + (end - start - 1) * head, start, head))
        for values, value in zip((saved, origin, heads), best, strict=True):
            values.append(value)
    result, end = [], len(order)
    while end:
        result.append(Family(order[origin[end] : end], heads[end]))
        end = origin[end]
    return result[::-1]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two prompts share from the start."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
