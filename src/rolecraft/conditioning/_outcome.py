"""What an extraction leaves behind: the direction, the moments of both sides, and how far to trust them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft._files import read_tensors, write_atomic
from rolecraft.conditioning._direction import Direction, Manifest
from rolecraft.conditioning._moments import Float64, RunningMoments, spearman_brown
from rolecraft.errors import UserError

Flag = Literal["", "too_few_pairs", "zero", "non_finite"]
_FACTS = ("n_pairs", "n_tried", "n_empty", "acceptance", "flag", "note")


@dataclass(frozen=True, eq=False)
class Extraction:
    """The outcome for one role."""

    role: str
    """Id of the role."""
    direction: Direction | None
    """None where there are too few pairs (and partial ones were not asked for), or where the vector is zero or not
    finite; `flag` and `note` say which."""
    manifest: Manifest
    """What the direction's manifest says, also where there is no direction."""
    sites: tuple[int, ...]
    """Sites read, ascending: the first axis of the moments."""
    prompted: RunningMoments
    """Activations of the role's kept responses, shape (sites, hidden)."""
    base: RunningMoments
    """Activations of the other side's kept responses; count 0 where the preset has none."""
    n_pairs: int
    """Pairs kept; for sides judged apart, the smaller side."""
    n_tried: int
    n_empty: int
    """Pairs rejected because a response was empty, so that there was nothing to pool."""
    acceptance: float
    """Kept of tried, 0..1."""
    split_halves: dict[int, float] = field(default_factory=dict)
    """Site to the cosine between the directions of two halves of the questions; absent where a half is empty."""
    flag: Flag = ""
    note: str = ""
    """The flag in words."""

    @property
    def partial(self) -> bool:
        """Whether fewer pairs than required were kept."""
        return self.flag == "too_few_pairs"

    @property
    def split_half(self) -> float | None:
        """Cosine of the two halves' directions at the default site, in [-1, 1]; None if a half is empty.

        Tells nothing where the preset has no base side: raw means share the bulk of every activation.
        """
        return self.split_halves.get(self.manifest.site)

    @property
    def split_half_corrected(self) -> float | None:
        """Split-half cosine stepped up to the full number of questions (Spearman-Brown); None if undefined."""
        r = self.split_half
        return None if r is None or r <= -1 else spearman_brown(r)

    def mean(self, side: Literal["prompted", "base"] = "prompted") -> dict[int, Float64]:
        """Return the mean activation of one side, by site."""
        return dict(zip(self.sites, getattr(self, side).mean, strict=True))

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file, atomically: a run that is resumed reads it back."""
        from safetensors.numpy import save

        tensors: dict[str, NDArray[Any]] = {}
        for side in ("prompted", "base"):
            tensors |= {f"{side}.{name}": array for name, array in getattr(self, side).arrays().items()}
        if self.direction is not None:
            tensors |= {f"site.{site}": vector for site, vector in self.direction.vectors.items()}
        facts = {
            "role": self.role,
            "manifest": asdict(self.manifest if self.direction is None else self.direction.manifest),
            "sites": list(self.sites),
            "split_halves": {str(site): r for site, r in self.split_halves.items()},
        } | {name: getattr(self, name) for name in _FACTS}
        text = json.dumps(facts, sort_keys=True, allow_nan=False)
        write_atomic(
            Path(path), save(tensors, metadata={"rolecraft.extraction": text, "sha256": _digest(text, tensors)})
        )

    @classmethod
    def load(cls, path: str | Path) -> Extraction:
        """Read what `save` wrote.

        Raises:
            UserError: If the file is missing, not such a file, or was changed after it was written.
        """
        metadata, tensors = read_tensors(Path(path), "an extraction written by Extraction.save")
        text = metadata.get("rolecraft.extraction")
        if text is None:
            raise UserError(f"{path}: holds no extraction; expected a file written by Extraction.save.")
        if _digest(text, tensors) != metadata.get("sha256"):
            raise UserError(f"{path}: was changed after it was written (hash mismatch). Extract the role again.")
        return _restore(json.loads(text), tensors)


def _restore(facts: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Extraction:
    manifest = Manifest(**facts["manifest"])
    vectors = {int(name[5:]): array for name, array in tensors.items() if name.startswith("site.")}

    def side(name: str) -> RunningMoments:
        return RunningMoments.from_arrays({part: tensors[f"{name}.{part}"] for part in ("count", "mean", "m2")})

    return Extraction(
        role=facts["role"],
        direction=Direction(vectors, manifest) if vectors else None,
        manifest=manifest,
        sites=tuple(facts["sites"]),
        prompted=side("prompted"),
        base=side("base"),
        split_halves={int(site): r for site, r in facts["split_halves"].items()},
        **{name: facts[name] for name in _FACTS},
    )


def _digest(text: str, tensors: dict[str, NDArray[Any]]) -> str:
    content = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        content.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        content.update(np.ascontiguousarray(tensors[name]).tobytes())
    return content.hexdigest()
