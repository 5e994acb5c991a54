"""Directions: what a role adds to the residual stream, with arithmetic, provenance and safe files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rolecraft._files import read_tensors, write_atomic
from rolecraft.conditioning._steering import Intervention, Operator, Phase, Positions
from rolecraft.errors import SteeringShapeError, UserError

Vector = NDArray[np.float32]


class Residual(Protocol):
    """A model whose residual stream can be read and steered."""

    @property
    def name(self) -> str:
        """Model string."""
        ...

    @property
    def revision(self) -> str:
        """What identifies the weights."""
        ...

    @property
    def n_sites(self) -> int:
        """Number of decoder blocks."""
        ...

    @property
    def hidden(self) -> int:
        """Size of the residual stream."""
        ...


def default_site(model: Residual) -> int:
    """Return the site at half depth, `n_sites // 2`: the rule of CastVectors and the Assistant Axis."""
    return model.n_sites // 2


@dataclass(frozen=True)
class Manifest:
    """Where a direction comes from."""

    role: str
    """Id of the role, or the formula of a combination such as `pirate - poet`."""
    kind: str
    """`role` (a contrast), `role-mean` or `default-mean` (raw means, not to be added as they are), `axis`, `random`,
    `shuffled`, `combination` or `imported`."""
    model: str
    """Model string."""
    revision: str
    """What identifies the weights; empty if unknown (files of other programs)."""
    site: int
    """Default site: where `Direction.steer` applies it."""
    n_sites: int
    """Decoder blocks of the model."""
    n: int = 0
    """Pairs of responses behind it; of a combination, the smallest of its parts."""
    role_hash: str = ""
    """Content hash of the role."""
    created: str = ""
    """UTC, ISO 8601. Filled in by `Direction` if empty."""
    norm: float = 0.0
    """Euclidean norm at the default site. Filled in by `Direction`."""
    hashes: dict[str, str] = field(default_factory=dict)
    """Site to SHA-256 of its vector (little-endian float32). Filled in by `Direction`."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further facts that JSON can hold: preset, filter, acceptance, split-half, seed."""


@dataclass(frozen=True, eq=False)
class Direction:
    """One vector per site.

    Raises:
        SteeringShapeError: If there is no vector, shapes differ, a value is not finite, or the default site has none.
    """

    vectors: Mapping[int, Vector]
    """Site (0-based index of the decoder block whose output is meant) to float32 of shape (hidden,)."""
    manifest: Manifest

    def __post_init__(self) -> None:
        vectors = {int(site): np.array(self.vectors[site], dtype=np.float32) for site in sorted(self.vectors)}
        shapes = {vector.shape for vector in vectors.values()}
        if len(shapes) != 1 or any(len(shape) != 1 for shape in shapes):
            raise SteeringShapeError(
                f"a direction needs vectors of one shape (hidden,), got {sorted(shapes) or 'none'}."
            )
        bad = [site for site, vector in vectors.items() if not np.isfinite(vector).all()]
        if bad:
            raise SteeringShapeError(f"direction {self.manifest.role!r} is not finite at site {bad[0]}.")
        outside = [site for site in vectors if not 0 <= site < self.manifest.n_sites]
        if outside:
            raise SteeringShapeError(
                f"direction {self.manifest.role!r}: site {outside[0]} is out of range for a model of "
                f"{self.manifest.n_sites} decoder blocks (0 to {self.manifest.n_sites - 1})."
            )
        for vector in vectors.values():
            vector.flags.writeable = False
        object.__setattr__(self, "vectors", vectors)
        manifest = replace(
            self.manifest,
            created=self.manifest.created or datetime.now(UTC).isoformat(timespec="seconds"),
            norm=float(np.linalg.norm(self.at(self.manifest.site))),
            hashes={str(site): _hash(vector) for site, vector in vectors.items()},
        )
        object.__setattr__(self, "manifest", manifest)

    @property
    def sites(self) -> tuple[int, ...]:
        """Sites that have a vector, ascending."""
        return tuple(self.vectors)

    @property
    def hidden(self) -> int:
        """Size of the vectors."""
        return len(next(iter(self.vectors.values())))

    def at(self, site: int | None = None) -> Vector:
        """Return the vector at a site (default: the manifest's), shape (hidden,), read-only.

        Raises:
            SteeringShapeError: If the direction has none there; its sites are listed.
        """
        site = self.manifest.site if site is None else site
        if site not in self.vectors:
            raise SteeringShapeError(
                f"direction {self.manifest.role!r} has no vector at site {site}; it has {_ranges(self.sites)}."
            )
        return self.vectors[site]

    def norm(self, site: int | None = None) -> float:
        """Return the Euclidean norm at a site (default: the manifest's)."""
        return float(np.linalg.norm(self.at(site)))

    def cosine(self, other: Direction, site: int | None = None) -> float:
        """Return the cosine with another direction at a site (default: this manifest's), in [-1, 1].

        Raises:
            SteeringShapeError: If either vector is missing or zero, or the sizes differ.
        """
        site = self.manifest.site if site is None else site
        self._check_size(other)
        norms = self.norm(site) * other.norm(site)
        if norms == 0:
            raise SteeringShapeError(f"the cosine at site {site} is undefined: a vector is zero.")
        return float(np.clip(self.at(site) @ other.at(site) / norms, -1, 1))

    def select(self, sites: Sequence[int]) -> Direction:
        """Return the direction at some sites only; the default site stays if it is among them, else the first is it.

        Raises:
            SteeringShapeError: If a site has no vector.
        """
        site = self.manifest.site if self.manifest.site in sites else sites[0]
        return Direction({s: self.at(s) for s in sites}, replace(self.manifest, site=site))

    def unit(self) -> Direction:
        """Return the direction with norm 1 at every site.

        Raises:
            SteeringShapeError: If a vector is zero.
        """
        zero = [site for site in self.sites if not self.norm(site)]
        if zero:
            raise SteeringShapeError(
                f"direction {self.manifest.role!r} is zero at site {zero[0]} and has no unit form."
            )
        return self.map(lambda site, vector: vector / self.norm(site), role=f"unit({self.manifest.role})")

    def map(self, function: Callable[[int, Vector], Vector], **changes: Any) -> Direction:
        """Return a direction with `function(site, vector)` at every site and some manifest fields changed."""
        vectors = {site: function(site, vector) for site, vector in self.vectors.items()}
        return Direction(vectors, replace(self.manifest, **({"created": ""} | changes)))

    def __neg__(self) -> Direction:
        return self.map(lambda _, vector: -vector, role=f"-{_atom(self.manifest.role)}")

    def __mul__(self, factor: float) -> Direction:
        if not math.isfinite(factor):
            raise SteeringShapeError(f"a direction can only be scaled by a finite number, got {factor}.")
        scale = np.float32(factor)
        return self.map(lambda _, vector: vector * scale, role=f"{factor:g}*{_atom(self.manifest.role)}")

    __rmul__ = __mul__

    def __truediv__(self, factor: float) -> Direction:
        if factor == 0:
            raise SteeringShapeError("a direction cannot be divided by 0.")
        return self * (1 / factor)

    def __add__(self, other: Direction) -> Direction:
        return self._combine(other, "+", np.add)

    def __sub__(self, other: Direction) -> Direction:
        return self._combine(other, "-", np.subtract)

    def _combine(self, other: Direction, sign: str, operation: Callable[[Vector, Vector], Vector]) -> Direction:
        if not isinstance(other, Direction):
            return NotImplemented
        self._check_size(other)
        for name in ("model", "revision", "n_sites"):
            mine, theirs = getattr(self.manifest, name), getattr(other.manifest, name)
            if mine != theirs:
                raise SteeringShapeError(f"directions of different models do not mix: {name} {mine!r} and {theirs!r}.")
        if self.sites != other.sites:
            raise SteeringShapeError(
                f"directions with different sites do not mix: {_ranges(self.sites)} and {_ranges(other.sites)}. "
                "Use select() to bring them to the same sites."
            )
        right = _atom(other.manifest.role) if sign == "-" else other.manifest.role
        return self.map(
            lambda site, vector: operation(vector, other.vectors[site]),
            role=f"{self.manifest.role} {sign} {right}",
            kind="combination",
            n=min(self.manifest.n, other.manifest.n),
            role_hash="",
            extra={},
        )

    def _check_size(self, other: Direction) -> None:
        if self.hidden != other.hidden:
            raise SteeringShapeError(f"directions of hidden size {self.hidden} and {other.hidden} do not mix.")

    def steer(
        self,
        strength: float,
        site: int | None = None,
        *,
        operator: Operator = "add",
        positions: Positions = "last",
        phase: Phase = "both",
        threshold: float | None = None,
    ) -> Intervention:
        """Return the intervention that applies this direction at one site (default: the manifest's)."""
        site = self.manifest.site if site is None else site
        return Intervention(self.at(site), strength, site, operator, threshold, phase, positions)

    def check(self, model: Residual) -> None:
        """Refuse a model the direction was not extracted from.

        Raises:
            SteeringShapeError: Naming what differs, with both values: hidden size, number of sites, name or revision.
        """
        facts = {
            "hidden size": (self.hidden, model.hidden),
            "number of sites": (self.manifest.n_sites, model.n_sites),
            "model": (self.manifest.model, model.name),
            "revision": (self.manifest.revision or model.revision, model.revision),
        }
        for name, (mine, given) in facts.items():
            if mine != given:
                raise SteeringShapeError(
                    f"direction {self.manifest.role!r} does not fit this model: {name} is {mine!r} in the direction "
                    f"and {given!r} in the model. Extract it again on this model, or load the model it came from."
                )

    def save(self, path: str | Path) -> None:
        """Write a safetensors file (`site.<index>` tensors, the manifest in the metadata), atomically."""
        from safetensors.numpy import save

        manifest = manifest_json(self.manifest)
        metadata = {"rolecraft.manifest": manifest, "rolecraft.manifest.sha256": text_hash(manifest)}
        write_atomic(Path(path), save({f"site.{site}": v for site, v in self.vectors.items()}, metadata=metadata))

    @classmethod
    def load(cls, path: str | Path) -> Direction:
        """Read a file that `save` wrote; nothing is unpickled, and every hash is checked.

        Raises:
            UserError: If the file is missing, not such a file, or was changed after it was written.
        """
        metadata, tensors = read_tensors(Path(path), "a direction written by Direction.save")
        manifest = parse_manifest(
            metadata.get("rolecraft.manifest"), metadata.get("rolecraft.manifest.sha256"), str(path)
        )
        return verified({name.removeprefix("site."): tensor for name, tensor in tensors.items()}, manifest, str(path))

    def to_gguf(self, path: str | Path, sites: Sequence[int] | None = None) -> None:
        """Write a llama.cpp control vector; see `rolecraft.conditioning.write_gguf`."""
        from rolecraft.conditioning._gguf import write_gguf

        write_gguf(self, path, sites)

    @classmethod
    def from_gguf(cls, path: str | Path, model: Residual | None = None) -> Direction:
        """Read a llama.cpp control vector; see `rolecraft.conditioning.read_gguf`."""
        from rolecraft.conditioning._gguf import read_gguf

        return read_gguf(path, model)


def manifest_json(manifest: Manifest) -> str:
    """Return the canonical JSON of a manifest.

    Raises:
        UserError: If `extra` holds what JSON cannot.
    """
    try:
        return json.dumps(asdict(manifest), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"the manifest of {manifest.role!r} cannot be written as JSON: {error}.") from None


def parse_manifest(text: str | None, digest: str | None, where: str) -> Manifest:
    """Read a manifest back and check it against its hash.

    Raises:
        UserError: If it is missing, changed or has other fields.
    """
    if text is None:
        raise UserError(f"{where}: holds no Rolecraft manifest; expected a direction written by Rolecraft.")
    if text_hash(text) != digest:
        raise UserError(
            f"{where}: the manifest was changed after the file was written (hash mismatch). Extract it again."
        )
    data = json.loads(text)
    known = {entry.name for entry in fields(Manifest)}
    if set(data) != known:
        odd = ", ".join(sorted(set(data) ^ known))
        raise UserError(f"{where}: the manifest has other fields than this version writes: {odd}.")
    return Manifest(**data)


def verified(tensors: Mapping[str, NDArray[Any]], manifest: Manifest, where: str) -> Direction:
    """Build a direction from the tensors of a file (site as text to vector) after checking their hashes.

    Raises:
        UserError: If a tensor is missing, added, of another type or changed.
    """
    if set(tensors) != set(manifest.hashes):
        raise UserError(
            f"{where}: holds vectors for {sorted(tensors)} but its manifest lists {sorted(manifest.hashes)}."
        )
    for site, vector in tensors.items():
        if vector.dtype != np.float32 or _hash(vector) != manifest.hashes[site]:
            raise UserError(
                f"{where}: the vector at site {site} was changed after the file was written (hash mismatch). "
                "Extract it again."
            )
    return Direction({int(site): vector for site, vector in tensors.items()}, manifest)


def _hash(vector: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(vector, dtype="<f4").tobytes()).hexdigest()


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _atom(role: str) -> str:
    return f"({role})" if " " in role else role


def _ranges(sites: Sequence[int]) -> str:
    if len(sites) > 2 and sites[-1] - sites[0] == len(sites) - 1:
        return f"sites {sites[0]} to {sites[-1]}"
    return "sites " + ", ".join(map(str, sites))
