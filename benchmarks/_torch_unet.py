"""The temporal U-Net in PyTorch, from our own weights: what a straightforward sampler runs step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Weights = Mapping[str, Any]
"""A Flax module's parameters as tensors, kernels of layers as (outputs, inputs)."""


def to_torch(params: Mapping[str, Any]) -> dict[str, Any]:
    """Carry parameters over; a convolution written as a matrix product becomes a convolution's weight."""
    import numpy as np

    found: dict[str, Any] = {}
    for name, leaf in params.items():
        if isinstance(leaf, Mapping):
            found[name] = to_torch(leaf)
            continue
        array = torch.from_numpy(np.array(leaf))
        found[name] = array.T.contiguous() if name == "kernel" else array
    for name in [name for name in found if name.startswith("TemporalConv_")]:
        layer = found[name].pop("Dense_0")
        found[name] = {"kernel": layer["kernel"], "bias": layer["bias"]}
    return found


class TorchUnet:
    """Our `TemporalUnet` with PyTorch's convolutions, on (batch, channels, time) inside; no gradient.

    Args:
        params: Of `TemporalUnet`, the `params` collection.
        width: As ours.
        multipliers: As ours.
        size: Numbers in a state.
    """

    def __init__(self, params: Mapping[str, Any], width: int, multipliers: Sequence[int], size: int) -> None:
        self.width, self.sizes = width, [width * each for each in multipliers]
        self.weights = to_torch(params)
        self._shape(self.weights, size)

    def _shape(self, weights: dict[str, Any], size: int) -> None:
        """Give the convolutions' weights their three axes; the number of input channels follows from the kernel."""
        for name, part in weights.items():
            if name.startswith("TemporalConv_"):
                kernel = 3 if self._short(weights, name) else 5
                flat = part["kernel"]
                part["kernel"] = flat.reshape(len(flat), kernel, -1).transpose(1, 2).contiguous()
            elif isinstance(part, dict):
                self._shape(part, size)

    def _short(self, weights: Mapping[str, Any], name: str) -> bool:
        """Tell the convolutions that change the length, of kernel 3, from those inside the blocks, of kernel 5."""
        if "GroupNorm_1" in weights:  # of a block
            return False
        if "GroupNorm_0" in weights:  # of the network: the last one keeps the length
            last = max(int(key.rpartition("_")[2]) for key in weights if key.startswith("TemporalConv_"))
            return name != f"TemporalConv_{last}"
        return True

    def __call__(self, x: Tensor, level: Tensor, condition: Tensor, keep: Tensor) -> Tensor:
        """Return the noise of x (B, H, d) at the step (B,) under a condition (B, c), kept where keep (B,) is 1."""
        w = self.weights
        half = self.width // 2
        rates = torch.exp(-math.log(10000.0) * torch.arange(half) / max(1, half - 1))
        angles = level[:, None] * rates
        step = torch.cat([torch.sin(angles), torch.cos(angles)], -1)
        time = _linear(w["Dense_0"], F.mish(_linear(w["Dense_1"], step)))
        asked = F.mish(_linear(w["Dense_3"], F.mish(_linear(w["Dense_2"], condition))))
        asked = keep[:, None] * _linear(w["Dense_4"], asked)
        embedding = F.mish(torch.cat([time, asked], -1))
        blocks = iter(range(len(w)))
        x, passed, convolutions = x.transpose(1, 2), [], iter(range(len(w)))

        def block(x: Tensor) -> Tensor:
            return _block(w[f"ResidualBlock_{next(blocks)}"], x, embedding)

        for place in range(len(self.sizes)):
            x = block(block(x))
            if place < len(self.sizes) - 1:
                passed.append(x)
                part = w[f"TemporalConv_{next(convolutions)}"]
                x = F.conv1d(x, part["kernel"], part["bias"], stride=2, padding=1)
        x = block(x)
        for place in range(len(self.sizes) - 1):
            part = w[f"_Double_{place}"]["TemporalConv_0"]
            both = F.conv1d(x, part["kernel"], part["bias"], padding=1)
            x = both.unflatten(1, (2, -1)).permute(0, 2, 3, 1).flatten(2)
            x = block(block(torch.cat([x, passed.pop()], 1)))
        part = w[f"TemporalConv_{next(convolutions)}"]
        x = F.mish(_norm(w["GroupNorm_0"], F.conv1d(x, part["kernel"], part["bias"], padding=2)))
        return _linear(w["Dense_5"], x.transpose(1, 2))


def _linear(part: Weights, x: Tensor) -> Tensor:
    return F.linear(x, part["kernel"], part["bias"])


def _norm(part: Weights, x: Tensor) -> Tensor:
    return F.group_norm(x, math.gcd(8, x.shape[1]), part["scale"], part["bias"], eps=1e-6)


def _block(part: Weights, x: Tensor, embedding: Tensor) -> Tensor:
    first, second = part["TemporalConv_0"], part["TemporalConv_1"]
    h = F.mish(_norm(part["GroupNorm_0"], F.conv1d(x, first["kernel"], first["bias"], padding=2)))
    h = h + _linear(part["Dense_0"], embedding)[..., None]
    h = F.mish(_norm(part["GroupNorm_1"], F.conv1d(h, second["kernel"], second["bias"], padding=2)))
    skip = _linear(part["Dense_1"], x.transpose(1, 2)).transpose(1, 2) if "Dense_1" in part else x
    return h + skip
