"""Exchange of directions with llama.cpp and repeng: control vectors in GGUF files.

Layout (llama.cpp, `common_control_vector_load`; repeng, `ControlVector.export_gguf`): architecture `controlvector`,
keys `controlvector.model_hint` and `controlvector.layer_count`, and one-dimensional float32 tensors `direction.N`.

Layer index: **`direction.N` is our site N.** llama.cpp's loader stores `direction.N` at offset (N - 1) * hidden and its
adapter reads block `il` from offset (il - 1) * hidden, so that `direction.N` is added to the output of block N, counted
from 0, after the block's feed-forward residual: the place of our hook. repeng numbers its layers the same way.
Block 0 has no slot in llama.cpp, which refuses a `direction.0`.

llama.cpp adds **every** direction of a file, at **every** token: a file with one site, at scale c, does what
`direction.steer(c, positions="all", phase="both")` does here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rolecraft._files import write_atomic
from rolecraft.conditioning._direction import (
    Direction,
    Manifest,
    Residual,
    manifest_json,
    parse_manifest,
    text_hash,
    verified,
)
from rolecraft.errors import MissingDependencyError, SteeringShapeError, UserError

_ARCHITECTURE = "controlvector"
_HINT, _LAYERS = f"{_ARCHITECTURE}.model_hint", f"{_ARCHITECTURE}.layer_count"
_MANIFEST, _DIGEST = "rolecraft.manifest", "rolecraft.manifest.sha256"


def write_gguf(direction: Direction, path: str | Path, sites: Sequence[int] | None = None) -> None:
    """Write a control vector that llama.cpp and repeng read.

    Args:
        direction: What to write, raw: its strength is llama.cpp's `--control-vector-scaled FILE:STRENGTH`.
        path: The `.gguf` file.
        sites: Sites to write; llama.cpp adds all of them at once. Default: the manifest's site alone.

    Raises:
        SteeringShapeError: If a site has no vector, or is 0, which llama.cpp cannot address.
        MissingDependencyError: If the package `gguf` is not installed.
    """
    gguf = _gguf()
    part = direction.select([direction.manifest.site] if sites is None else sorted(sites))
    if 0 in part.sites:
        raise SteeringShapeError(
            f"{path}: llama.cpp's control vectors begin at block 1 and cannot hold site 0; leave it out (sites=...)."
        )
    manifest = manifest_json(part.manifest)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vector.gguf"
        writer = gguf.GGUFWriter(str(file), _ARCHITECTURE)
        writer.add_string(_HINT, part.manifest.model)
        writer.add_uint32(_LAYERS, len(part.sites))
        writer.add_string(_MANIFEST, manifest)
        writer.add_string(_DIGEST, text_hash(manifest))
        for site, vector in part.vectors.items():
            writer.add_tensor(f"direction.{site}", vector)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        write_atomic(Path(path), file.read_bytes())


def read_gguf(path: str | Path, model: Residual | None = None) -> Direction:
    """Read a control vector.

    Args:
        path: The `.gguf` file.
        model: The model it belongs to; needed for files of other programs, which do not say its depth or weights.

    Returns:
        The direction. A file of ours keeps its manifest; another gets the kind `imported`, an empty revision and the
        site at half depth (or the nearest that the file holds).

    Raises:
        UserError: If the file is not a control vector, was changed, or needs `model`.
        SteeringShapeError: If it does not fit `model`.
        MissingDependencyError: If the package `gguf` is not installed.
    """
    gguf = _gguf()
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file; expected a GGUF control vector.")
    try:
        reader = gguf.GGUFReader(str(path))
    except Exception as error:  # the reader fails on bad bytes with whatever it trips over
        raise UserError(f"{path}: not a readable GGUF file ({error}).") from None
    text = {key: _string(reader, key) for key in ("general.architecture", _HINT, _MANIFEST, _DIGEST)}
    if text["general.architecture"] != _ARCHITECTURE:
        found = text["general.architecture"]
        raise UserError(f"{path}: a GGUF of architecture {found!r}; expected a control vector ({_ARCHITECTURE!r}).")
    tensors = _directions(reader, path)
    if text[_MANIFEST] is not None:
        direction = verified(tensors, parse_manifest(text[_MANIFEST], text[_DIGEST], str(path)), str(path))
        if model is not None:
            direction.check(model)
        return direction
    if model is None:
        raise UserError(
            f"{path}: written by another program for {text[_HINT]!r}, which leaves out the model's depth and weights; "
            "pass model=, the model it is for."
        )
    return _foreign({int(site): vector for site, vector in tensors.items()}, model, Path(path), text[_HINT] or "")


def _foreign(vectors: dict[int, Any], model: Residual, path: Path, hint: str) -> Direction:
    site = min(vectors, key=lambda s: (abs(s - model.n_sites // 2), s))
    manifest = Manifest(
        role=path.stem,
        kind="imported",
        model=model.name,
        revision="",
        site=site,
        n_sites=model.n_sites,
        extra={"model_hint": hint},
    )
    direction = Direction(vectors, manifest)
    direction.check(model)
    return direction


def _directions(reader: Any, path: str | Path) -> dict[str, Any]:
    vectors = {}
    for tensor in reader.tensors:
        prefix, _, site = tensor.name.partition(".")
        if prefix != "direction" or not site.isdecimal():
            raise UserError(
                f"{path}: unexpected tensor {tensor.name!r}; a control vector holds `direction.<layer>` only."
            )
        if tensor.data.dtype != np.float32 or tensor.data.ndim != 1:
            raise UserError(
                f"{path}: {tensor.name} must be one-dimensional float32, "
                f"got {tensor.data.dtype} of shape {tuple(tensor.data.shape)}."
            )
        vectors[site] = np.array(tensor.data)
    if not vectors:
        raise UserError(f"{path}: holds no direction.")
    return vectors


def _string(reader: Any, key: str) -> str | None:
    found = reader.get_field(key)
    return None if found is None or not found.parts else bytes(found.parts[-1]).decode("utf-8", errors="replace")


def _gguf() -> Any:
    try:
        import gguf
    except ImportError:
        raise MissingDependencyError(
            "GGUF files need the package gguf. Install it with: pip install 'rolecraft[lm]'"
        ) from None
    return gguf
