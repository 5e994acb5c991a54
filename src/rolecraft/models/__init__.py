"""Language models: local (transformers), served (OpenAI-compatible) and scripted; sentence embeddings."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rolecraft.models._base import GREEDY, Chat, Completion, LanguageModel, Message, Sampling, chat

if TYPE_CHECKING:
    from rolecraft.models._choice import choose
    from rolecraft.models._embed import Embedder
    from rolecraft.models._load import load_local, load_model
    from rolecraft.models._local import LocalModel
    from rolecraft.models._served import ServedModel

for _cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    # PyTorch on a CPU keeps 1024 compiled matrix products, up to 1 MiB each, one per number of rows; a step needs five.
    os.environ.setdefault(_cache, "16")

__all__ = [
    "GREEDY",
    "Chat",
    "Completion",
    "Embedder",
    "LanguageModel",
    "LocalModel",
    "Message",
    "Sampling",
    "ServedModel",
    "chat",
    "choose",
    "load_local",
    "load_model",
]

_LAZY = {
    "Embedder": "_embed",
    "LocalModel": "_local",
    "ServedModel": "_served",
    "choose": "_choice",
    "load_local": "_load",
    "load_model": "_load",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
