"""Control directions: what steering does when the direction is not the role's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.conditioning._direction import Direction, Vector
from rolecraft.conditioning._moments import RunningMoments
from rolecraft.conditioning._outcome import Extraction
from rolecraft.conditioning._tally import by_site
from rolecraft.errors import ExtractionError, SteeringShapeError, UserError


def assistant_axis(extractions: Iterable[Extraction], default: Extraction | None = None) -> Direction:
    """Return the Assistant Axis (arXiv 2601.10387): mean default activation minus the mean of the roles' means.

    It points to the assistant; steer with its negative to leave it.

    Args:
        extractions: Of the roles, of any preset: their prompted sides are used, each role with equal weight.
        default: From `extract_default`. Default: the mean of the roles' base sides, which must then be responses under
            an empty system message (preset `cast-vectors`).

    Raises:
        ExtractionError: If no role has a prompted side (or, without `default`, a base side), or the axis is zero.
        SteeringShapeError: If the extractions come from different models or sites.
    """
    roles: RunningMoments | None = None
    bases: RunningMoments | None = None
    first: Extraction | None = default
    for extraction in extractions:
        first = first or extraction
        _check_same(first, extraction)
        roles = roles or RunningMoments(extraction.prompted.shape)
        bases = bases or RunningMoments(extraction.prompted.shape)
        if extraction.prompted.count:
            roles.add(extraction.prompted.mean)
        if extraction.base.count and extraction.manifest.extra.get("preset") != "persona-vectors":
            bases.add(extraction.base.mean)
    neutral = bases if default is None else default.prompted
    if first is None or roles is None or not roles.count:
        raise ExtractionError("the assistant axis needs at least one role with a kept response.")
    if neutral is None or not neutral.count:
        raise ExtractionError(
            "the assistant axis needs the default assistant: pass default=extract_default(...), or roles extracted "
            "with the preset 'cast-vectors', whose base sides can stand in."
        )
    vectors = by_site(first.sites, neutral.mean - roles.mean)
    if not all(vector.any() for vector in vectors.values()):
        raise ExtractionError("the assistant axis is zero: the roles' responses do not differ from the default's.")
    extra = {"roles": roles.count, "default": "base sides" if default is None else "neutral prompts"}
    manifest = replace(
        first.manifest, role="assistant-axis", kind="axis", n=roles.count, role_hash="", created="", extra=extra
    )
    return Direction(vectors, manifest)


def _check_same(a: Extraction, b: Extraction) -> None:
    for name in ("model", "revision", "n_sites"):
        mine, theirs = getattr(a.manifest, name), getattr(b.manifest, name)
        if mine != theirs:
            raise SteeringShapeError(f"extractions of different models do not mix: {name} {mine!r} and {theirs!r}.")
    if a.sites != b.sites:
        raise SteeringShapeError(f"extractions at different sites do not mix: {a.sites} and {b.sites}.")


def random_direction(like: Direction, seed: int = 0) -> Direction:
    """Return an isotropic random direction with the norm of `like` at every site.

    Args:
        like: The role's direction; each role gets its own draw.
        seed: Of the draw.
    """
    generator = np.random.default_rng(derive_seed("random-direction", seed, like.manifest.role))
    drawn = {site: generator.standard_normal(like.hidden).astype(np.float32) for site in like.sites}
    extra = {"seed": seed, "like": like.manifest.role}
    return like.map(
        lambda site, vector: _scaled(drawn[site], like.norm(site)),
        role=f"random({like.manifest.role})",
        kind="random",
        role_hash="",
        n=0,
        extra=extra,
    )


def shuffled(directions: Mapping[str, Direction], seed: int = 0) -> dict[str, Direction]:
    """Give every role the direction of another role, rescaled to the norm of its own at every site.

    Args:
        directions: Role id to its direction, all of one model and the same sites.
        seed: Of the derangement (no role keeps its own; every direction is used once).

    Raises:
        UserError: If there are fewer than two roles.
        SteeringShapeError: If sites differ.
    """
    if len(directions) < 2:
        raise UserError(
            f"the shuffled control gives a role another's direction: at least 2 are needed, got {len(directions)}."
        )
    order = sorted(directions, key=lambda role: derive_seed("shuffled", seed, role))
    donors = dict(zip(order, order[1:] + order[:1], strict=True))  # one cycle over all: never oneself
    return {role: _like(directions[donors[role]], own, donors[role], seed) for role, own in directions.items()}


def _like(donor: Direction, own: Direction, name: str, seed: int) -> Direction:
    return donor.select(own.sites).map(
        lambda site, vector: _scaled(vector, own.norm(site)),
        role=f"shuffled({own.manifest.role})",
        kind="shuffled",
        site=own.manifest.site,
        extra={"from": name, "seed": seed},
    )


def norm_matched(direction: Direction, norm: float, site: int | None = None) -> Direction:
    """Return the direction scaled by one factor at all sites, so that it has a given norm at one.

    Args:
        direction: What to scale.
        norm: Positive.
        site: Where the norm is met. Default: the direction's default site.

    Raises:
        SteeringShapeError: If the norm is not positive and finite, or the direction is zero at the site.
    """
    own = direction.norm(site)
    if not 0 < norm < float("inf") or not own:
        raise SteeringShapeError(
            f"cannot scale direction {direction.manifest.role!r} of norm {own:g} to norm {norm}; both must be positive."
        )
    factor = np.float32(norm / own)
    return direction.map(lambda _, vector: vector * factor)


def _scaled(vector: Vector, norm: float) -> Vector:
    size = float(np.linalg.norm(vector))
    if not size:
        raise SteeringShapeError("a zero vector has no direction to scale.")
    return vector * np.float32(norm / size)
