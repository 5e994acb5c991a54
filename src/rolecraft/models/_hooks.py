"""Hooks on decoder blocks: where a model's residual stream is changed (steering) and read (pooling)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rolecraft.conditioning._steering import Intervention, Operator, Steering
from rolecraft.errors import ModelError, SteeringShapeError

PAD, PROMPT, LAST, NEW = range(4)
"""Kinds of token: padding, a prompt token, the prompt's last token, a token of the reply."""

BLOCK_PATHS = (
    "model.layers",
    "model.language_model.layers",
    "language_model.model.layers",
    "model.decoder.layers",
    "transformer.h",
    "transformer.blocks",
    "gpt_neox.layers",
    "model.text_model.layers",
    "layers",
)
"""Where `find_blocks` looks for the decoder blocks, in order."""


def find_blocks(model: nn.Module, path: str | None = None) -> nn.ModuleList:
    """Return the decoder blocks of `model`.

    Args:
        model: A transformers causal language model.
        path: Dotted attribute path of the list of blocks; default: the first of `BLOCK_PATHS` that is one.

    Raises:
        ModelError: If no list of blocks lies there; the message says what was looked for.
    """
    for candidate in BLOCK_PATHS if path is None else (path,):
        found: Any = model
        for name in candidate.split("."):
            found = getattr(found, name, None)
        if isinstance(found, nn.ModuleList) and len(found):
            return found
    looked = ", ".join(BLOCK_PATHS if path is None else (path,))
    raise ModelError(
        f"no decoder blocks found in {type(model).__name__}: looked for a ModuleList at {looked}. "
        "Pass blocks='dotted.path.of.the.list'."
    )


def check_steering(steering: Steering, rows: int, sites: int, hidden: int) -> None:
    """Refuse steering that does not fit the batch or the model.

    Raises:
        SteeringShapeError: If the number of rows, a site or the size of a vector does not fit.
    """
    if len(steering.rows) != rows:
        raise SteeringShapeError(f"steering has {len(steering.rows)} rows but there are {rows} chats.")
    for intervention in {id(i): i for row in steering.rows for i in row}.values():
        if intervention.site >= sites:
            raise SteeringShapeError(
                f"site {intervention.site} is out of range: the model has {sites} decoder blocks, 0 to {sites - 1}."
            )
        if len(intervention.vector) != hidden:
            raise SteeringShapeError(
                f"the vector for site {intervention.site} has {len(intervention.vector)} elements "
                f"but the model's hidden size is {hidden}."
            )


def touched(intervention: Intervention) -> frozenset[int]:
    """Return the kinds of token that an intervention changes."""
    kinds: set[int] = set()
    if intervention.phase != "decode":
        kinds |= {LAST} if intervention.positions == "last" else {PROMPT, LAST}
    if intervention.phase != "prefill":
        kinds.add(NEW)
    return frozenset(kinds)


def early(interventions: Sequence[Intervention]) -> tuple[Intervention, ...]:
    """Return the interventions that touch prompt tokens before the last."""
    return tuple(i for i in interventions if PROMPT in touched(i) and not i.idle)


@dataclass(frozen=True)
class _Step:
    """Interventions that one site applies together: at most one per row, all of one operator, on the same kinds."""

    operator: Operator
    kinds: frozenset[int]
    rows: Tensor  # (n,) ascending
    unit: Tensor  # (n, hidden) float32
    knob: Tensor  # (n, 1) float32: the strength, or the threshold of a cap
    shift: Tensor  # (n, hidden) in the state's dtype: strength times vector


def _compile(steering: Steering, site: int, dtype: torch.dtype, device: torch.device) -> list[_Step]:
    """Group the interventions at `site`: by their place in the row, then operator and kinds of token."""
    stacks = [[i for i in row if i.site == site and not i.idle] for row in steering.rows]
    steps: list[_Step] = []
    for depth in range(max(map(len, stacks), default=0)):
        here = [(row, stack[depth]) for row, stack in enumerate(stacks) if len(stack) > depth]
        here.sort(key=lambda pair: (pair[1].operator, sorted(touched(pair[1])), pair[0]))
        for (operator, _), group in groupby(here, key=lambda pair: (pair[1].operator, sorted(touched(pair[1])))):
            members = list(group)
            vectors = np.stack([i.vector for _, i in members]).astype(np.float32)
            strengths = np.array([[i.strength] for _, i in members], dtype=np.float32)
            knobs = [[i.threshold if operator == "cap" else i.strength] for _, i in members]
            with np.errstate(over="ignore"):  # the row's logits then are not finite, and it is told so
                shifts = strengths * vectors
            unit = vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
            steps.append(
                _Step(
                    operator,
                    touched(members[0][1]),
                    torch.tensor([row for row, _ in members], device=device),
                    torch.from_numpy(unit.astype(np.float32)).to(device),
                    torch.tensor(knobs, dtype=torch.float32, device=device),
                    torch.from_numpy(shifts).to(device=device, dtype=dtype),
                )
            )
    return steps


def _changed(state: Tensor, step: _Step) -> Tensor:
    """Return what the step's operator makes of `state` (n, tokens, hidden)."""
    shift = step.shift[:, None]
    if step.operator == "add":
        return state + shift
    unit, knob = step.unit[:, None], step.knob[:, None]
    h = state.float()
    if step.operator == "add-norm":
        h = h + knob * h.norm(dim=-1, keepdim=True) * unit
    elif step.operator == "add-signed":
        wide = shift.float()
        h = h + wide * torch.sign((h * wide).sum(-1, keepdim=True))
    elif step.operator == "ablate":
        h = h - (h * unit).sum(-1, keepdim=True) * unit + shift.float()
    else:
        h = h - torch.relu((h * unit).sum(-1, keepdim=True) - knob) * unit
    return h.to(state.dtype)


Hook = Callable[[nn.Module, Any, Any], Any]


class Steerer:
    """Applies a batch's steering in forward hooks; the caller tells it which tokens each forward pass holds.

    Attributes:
        kinds: To be set before a forward pass: one kind for all its tokens, or a tensor (rows, tokens) of kinds.
    """

    def __init__(self, steering: Steering, dtype: torch.dtype, device: torch.device) -> None:
        self.kinds: int | Tensor = PAD
        self._dtype, self._device = dtype, device
        self._steering = steering
        self._steps: dict[int, list[_Step]] = {}
        self.keep(range(len(steering.rows)))

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only `rows` of the batch as it is now, in that order."""
        self._steering = self._steering.select(rows)
        self._steps = {site: _compile(self._steering, site, self._dtype, self._device) for site in self._steering.sites}

    def hook(self, site: int) -> Hook:
        """Return the forward hook of one site."""

        def apply(module: nn.Module, inputs: Any, output: Any) -> Any:
            state = state_of(output)
            changed = self._apply(self._steps.get(site, ()), state)
            if changed is state:
                return None
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        return apply

    def _apply(self, steps: Sequence[_Step], state: Tensor) -> Tensor:
        original = state
        for step in steps:
            mask = self._mask(step)
            if mask is False:
                continue
            whole = len(step.rows) == len(state)
            old = state if whole else state[step.rows]
            new = _changed(old, step)
            if isinstance(mask, Tensor):
                new = torch.where(mask, new, old)
            if not whole:
                state = state.clone() if state is original else state
                state[step.rows] = new
            else:
                state = new
        return state

    def _mask(self, step: _Step) -> Tensor | bool:
        """Return where a step applies: everywhere, nowhere, or a tensor (n, tokens, 1)."""
        if isinstance(self.kinds, int):
            return self.kinds in step.kinds
        kinds = self.kinds[step.rows]
        mask = torch.stack([kinds == kind for kind in step.kinds]).any(0)[..., None]
        return mask if bool(mask.any()) else False


def widening(rows: Tensor) -> Hook:
    """Return a hook after which a block's rows are `rows` of those it was given, repeats among them."""

    def widen(module: nn.Module, inputs: Any, output: Any) -> Any:
        state = state_of(output)[rows]
        return (state, *output[1:]) if isinstance(output, tuple) else state

    return widen


def state_of(output: Any) -> Tensor:
    """Return the hidden states in what a decoder block returned: a tensor, or a tuple that begins with one."""
    state: Tensor = output[0] if isinstance(output, tuple) else output
    return state


@contextmanager
def hooked(blocks: nn.ModuleList, hooks: Mapping[int, Hook]) -> Iterator[None]:
    """Install one forward hook per site and remove them all on the way out, whatever happens."""
    handles: list[RemovableHandle] = []
    try:
        for site, hook in hooks.items():
            handles.append(blocks[site].register_forward_hook(hook))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def steered(blocks: nn.ModuleList, steering: Steering, dtype: torch.dtype, device: torch.device) -> Iterator[Steerer]:
    """Install the hooks that `steering` needs, one per site, and hand out what drives them."""
    steerer = Steerer(steering, dtype, device)
    with hooked(blocks, {site: steerer.hook(site) for site in steering.sites}):
        yield steerer
