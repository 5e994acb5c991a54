"""Low-rank adapters on a language model: one or several, switched per policy (peft)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rolecraft.errors import MissingDependencyError

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of a Llama-type block."""


def add_adapter(
    model: Any,
    name: str,
    *,
    rank: int,
    alpha: int | None = None,
    targets: Sequence[str] = TARGETS,
    blocks: Sequence[int] | None = None,
    seed: int = 0,
) -> None:
    """Add a low-rank adapter (arXiv 2106.09685) to a model in place; it starts without effect.

    Args:
        model: A transformers model; all it has is frozen, but for adapters.
        name: Of the adapter.
        rank: Of its matrices.
        alpha: Its effect is scaled by `alpha / rank`; None: twice the rank.
        targets: Names of linear layers.
        blocks: Numbers of the decoder blocks that get one, counted from 0; None: all. With the last ones alone no
            gradient passes through the others, so that a step costs about half.
        seed: Of the random half of the adapter; torch's global generator is left as it was.

    Raises:
        MissingDependencyError: If peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError:
        raise MissingDependencyError("adapters need peft: pip install 'rolecraft[train]'.") from None
    if not _layers(model):
        model.requires_grad_(False)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha or 2 * rank,
        target_modules=list(targets),
        layers_to_transform=None if blocks is None else list(blocks),
        lora_dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")  # several adapters are meant
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=name)
    for layer in _layers(model):
        for part in (layer.lora_A, layer.lora_B):
            part[name].float()
    use_adapter(model, name)


def use_adapter(model: Any, name: str) -> None:
    """Let this adapter be the one that acts and is trained."""
    for layer in _layers(model):
        if layer.active_adapters != [name] or layer.disable_adapters:
            layer.enable_adapters(True)
            layer.set_adapter(name)


@contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """Let the base model act while the context lasts."""
    layers = _layers(model)
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def _layers(model: Any) -> list[Any]:
    try:
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ModuleNotFoundError:
        return []
    return [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
