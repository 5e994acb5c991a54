"""Checkpoints: weights, optimiser and everything that decides how training goes on, as safetensors and JSON."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from rolecraft.errors import ModelError, UserError
from rolecraft.learning.policy import TokenPolicy

FORMAT = 1
STATE = "state.json"


def save_checkpoint(
    folder: Path,
    policies: Mapping[str, TokenPolicy],
    optimisers: Mapping[str, torch.optim.Optimizer],
    state: Mapping[str, Any],
) -> None:
    """Write a checkpoint in one step: a reader sees all of it or nothing.

    Args:
        folder: Where; what is there is replaced.
        policies: By name.
        optimisers: By the same names.
        state: What else there is, as JSON holds it.
    """
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name, policy in policies.items():
        parameters = policy.parameters()
        facts = {"base": policy.base, "format": str(FORMAT)}
        save_file(
            {key: each.detach().contiguous() for key, each in parameters.items()}, part / f"{name}.safetensors", facts
        )
        save_file(_moments(optimisers[name], parameters), part / f"{name}.optimiser.safetensors", facts)
    (part / STATE).write_text(json.dumps({"format": FORMAT, **state}), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def load_weights(folder: Path, policies: Mapping[str, TokenPolicy]) -> None:
    """Set the weights of policies from a checkpoint.

    Raises:
        UserError: If it is no checkpoint, or its weights stand on another base model.
        ModelError: If a file is broken or of another policy.
    """
    read_state(folder)
    for name, policy in policies.items():
        policy.load(_read(folder / f"{name}.safetensors", policy.base))


def load_checkpoint(
    folder: Path, policies: Mapping[str, TokenPolicy], optimisers: Mapping[str, torch.optim.Optimizer]
) -> dict[str, Any]:
    """Set weights and optimisers from a checkpoint, and return the rest of its state.

    Raises:
        UserError: As `load_weights`.
        ModelError: As `load_weights`.
    """
    state = read_state(folder)
    load_weights(folder, policies)
    for name, policy in policies.items():
        _set_moments(optimisers[name], policy, _read(folder / f"{name}.optimiser.safetensors", policy.base))
    return state


def read_state(folder: Path) -> dict[str, Any]:
    """Return the JSON part of a checkpoint.

    Raises:
        UserError: If there is none, or it is of another format.
        ModelError: If it is broken.
    """
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder}: no checkpoint can be read there ({error}).") from None
    except ValueError as error:
        raise ModelError(f"{folder / STATE}: the checkpoint cannot be read: {error}.") from None
    if state.get("format") != FORMAT:
        raise UserError(f"{folder}: a checkpoint of format {state.get('format')}, expected {FORMAT}.")
    return state


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("[0-9]*") if (path / STATE).is_file())


def _read(path: Path, base: str) -> dict[str, torch.Tensor]:
    try:
        with safe_open(path, "pt") as file:
            found = (file.metadata() or {}).get("base")
            if found != base:
                raise UserError(f"{path}: the weights stand on another base ({found}), expected {base}.")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: the weights cannot be read: {error}.") from None


def _moments(optimiser: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{what}": value.detach().contiguous() if value.dim() else value.detach()[None]
        for name, parameter in parameters.items()
        for what, value in optimiser.state.get(parameter, {}).items()
    }


def _set_moments(optimiser: torch.optim.Optimizer, policy: TokenPolicy, tensors: Mapping[str, torch.Tensor]) -> None:
    parameters = policy.parameters()
    for key, value in tensors.items():
        name, _, what = key.rpartition("/")
        parameter = parameters[name]
        whole = value.clone() if value.shape == parameter.shape and what != "step" else value[0].clone()
        optimiser.state[parameter][what] = whole
