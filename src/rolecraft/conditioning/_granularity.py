"""The granularity axis (arXiv 2605.06196): an ordered direction through role vectors, and the places of roles on it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rolecraft.conditioning._direction import Direction, Manifest, default_site
from rolecraft.errors import ExtractionError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rolecraft.conditioning._extraction import ReadableModel
    from rolecraft.models import Chat
    from rolecraft.roles import Role

    Floats = NDArray[np.float64]
    Levels = NDArray[np.int64]

ENDPOINTS = {
    "45-12": ((4, 5), (1, 2)),
    "5-1": ((5,), (1,)),
    "45-1": ((4, 5), (1,)),
    "5-12": ((5,), (1, 2)),
}
"""Macro and micro levels of the contrast; the first is the paper's main definition."""


class RoleVectors(NamedTuple):
    """Mean states of the roles' replies."""

    roles: tuple[Role, ...]
    levels: Levels
    """Shape (roles,)."""
    vectors: Floats
    """Shape (roles, sites, hidden)."""
    counts: tuple[int, ...]
    """Replies behind each."""
    empty: int
    """Replies without a token, which cannot be pooled."""
    dropped: tuple[str, ...]
    """Roles with fewer replies than asked for."""


def check_levels(roles: Sequence[Role]) -> Levels:
    """Return the roles' levels.

    Raises:
        UserError: If a role has no level, a name occurs twice, or there are fewer than two levels.
    """
    bare = [role.id for role in roles if role.level is None]
    if bare:
        raise UserError(f"role {bare[0]!r} has no level; set `level` from 1 (individual) to 5 (nation).")
    twice = [name for name, count in Counter(role.name for role in roles).items() if count > 1]
    if twice:
        found = ", ".join(str(role.level) for role in roles if role.name == twice[0])
        raise UserError(f"role name {twice[0]!r} occurs more than once (levels {found}); a role has one level.")
    levels = np.array([role.level for role in roles], dtype=np.int64)
    if len(set(levels.tolist())) < 2:
        raise UserError(f"an axis needs roles of at least two levels, got levels {sorted(set(levels.tolist()))}.")
    return levels


def role_vectors(
    roles: Sequence[Role], means: dict[str, Floats], counts: dict[str, int], empty: int, min_count: int = 1
) -> RoleVectors:
    """Put the means of the roles that have enough replies into one array.

    Raises:
        ExtractionError: If a role has no reply that can be pooled.
        UserError: If too few roles are left for two levels.
    """
    silent = [role.id for role in roles if not counts[role.id]]
    if silent:
        raise ExtractionError(f"role {silent[0]!r} has only empty replies, which cannot be pooled.")
    kept = tuple(role for role in roles if counts[role.id] >= min_count)
    dropped = tuple(role.id for role in roles if counts[role.id] < min_count)
    levels = check_levels(kept)
    return RoleVectors(
        kept, levels, np.stack([means[role.id] for role in kept]), tuple(counts[role.id] for role in kept), empty,
        dropped,
    )  # fmt: skip


def contrast(vectors: Floats, levels: Levels, macro: Sequence[int] = (4, 5), micro: Sequence[int] = (1, 2)) -> Floats:
    """Return mean(vectors of the macro levels) - mean(vectors of the micro levels); positive is macro.

    Args:
        vectors: Shape (roles, ...).
        levels: Shape (roles,).
        macro: Levels of the upper end.
        micro: Levels of the lower end.

    Raises:
        UserError: If the ends overlap, or a level of an end has no role.
        ExtractionError: If the contrast is zero or not finite at some site.
    """
    both = sorted(set(macro) & set(micro))
    if both:
        raise UserError(f"levels {both} stand at both ends of the axis; macro and micro levels must differ.")
    missing = sorted((set(macro) | set(micro)) - set(levels.tolist()))
    if missing:
        raise UserError(f"no role of level {missing} is left, which the axis {tuple(macro)} - {tuple(micro)} needs.")
    axis: Floats = vectors[np.isin(levels, macro)].mean(0) - vectors[np.isin(levels, micro)].mean(0)
    norms = np.linalg.norm(axis, axis=-1)
    if not np.isfinite(norms).all() or (norms == 0).any():
        raise ExtractionError("the granularity axis is zero or not finite: the roles' replies do not differ by level.")
    return axis


def axis_direction(model: ReadableModel, found: RoleVectors, site: int | None = None) -> Direction:
    """Return the main contrast as a direction over all sites of the model, default site at half depth."""
    axis = contrast(found.vectors, found.levels)
    manifest = Manifest(
        role="granularity-axis",
        kind="axis",
        model=model.name,
        revision=model.revision,
        site=default_site(model) if site is None else site,
        n_sites=model.n_sites,
        n=sum(found.counts),
        extra={"definition": "levels 4, 5 - levels 1, 2", "roles": len(found.roles)},
    )
    return Direction({place: vector.astype(np.float32) for place, vector in enumerate(axis)}, manifest)


def project(axis: Direction, model: ReadableModel, chats: Sequence[Chat], replies: Sequence[str]) -> list[float | None]:
    """Return each reply's projection on the unit axis at its site; None for an empty reply. Usable as a monitor.

    Raises:
        SteeringShapeError: If the axis is of another model, or zero.
    """
    axis.check(model)
    site = axis.manifest.site
    unit = axis.select([site]).unit().at(site)
    found: list[float | None] = [None] * len(chats)
    for row, state in model.activations(chats, replies, [site]):
        found[row] = float(state[0] @ unit)
    return found


class Principal(NamedTuple):
    """First principal component of the role vectors."""

    vector: Floats
    share: float
    """Of the variance, in [0, 1]."""
    signed: bool
    """Whether its sign could be set: |corr(score, level)| >= 0.1."""


def principal(vectors: Floats, levels: Levels) -> Principal:
    """Return PC1 of vectors (roles, hidden), its sign such that scores rise with the level."""
    from rolecraft.measures import pearson

    centred = vectors - vectors.mean(0)
    _, sizes, components = np.linalg.svd(centred, full_matrices=False)
    r = pearson(centred @ components[0], levels).r
    return Principal(components[0] * (-1 if r < 0 else 1), float(sizes[0] ** 2 / (sizes**2).sum()), abs(r) >= 0.1)


def halves(levels: Levels, seed: int) -> NDArray[np.bool_]:
    """Return which roles stand in the first of two halves, each with half of every level; shape (roles,)."""
    generator = np.random.default_rng(seed)
    first = np.zeros(len(levels), dtype=bool)
    for level in np.unique(levels):
        members = generator.permutation(np.flatnonzero(levels == level))
        first[members[: len(members) // 2]] = True
    return first


def held_out(vectors: Floats, levels: Levels, first: NDArray[np.bool_], axis: Floats | None = None) -> Floats:
    """Project each half of the roles on the axis of the other half.

    Args:
        vectors: Shape (roles, size).
        levels: Shape (roles,); the axis of a half is built from them.
        first: The roles of one half.
        axis: Instead of the contrast, this axis; the other half sets its sign only.

    Returns:
        Projections less the mean and over the deviation of the half that made the axis, shape (roles,).
    """
    from rolecraft.measures import pearson

    scores = np.empty(len(vectors))
    for train in (first, ~first):
        line = contrast(vectors[train], levels[train]) if axis is None else axis
        seen = vectors[train] @ line
        sign = -1.0 if axis is not None and pearson(seen, levels[train]).r < 0 else 1.0
        scores[~train] = sign * (vectors[~train] @ line - seen.mean()) / seen.std()
    return scores
