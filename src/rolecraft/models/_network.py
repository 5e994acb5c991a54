"""A causal language model as the engine sees it: token ids in, logits or pooled states out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rolecraft.conditioning._steering import Steering
from rolecraft.models import _attention
from rolecraft.models._cache import RowCache
from rolecraft.models._hooks import PROMPT, Steerer, find_blocks, hooked, steered, widening


class Network:
    """A transformers model with the facts and calls that decoding and scoring need.

    Args:
        model: A transformers causal language model; put into evaluation mode.
        blocks: Dotted path of its decoder blocks, where `find_blocks` does not know the architecture.
    """

    def __init__(self, model: Any, blocks: str | None = None) -> None:
        self.model = model.eval()
        self.turned = _attention.use(model)
        """Whether a cache for decoding should hold its keys turned."""
        self.blocks = find_blocks(model, blocks)
        self.sites = len(self.blocks)
        weight: Tensor = model.get_input_embeddings().weight
        self.hidden: int = model.config.get_text_config().hidden_size
        self.dtype = weight.dtype
        self.device = weight.device
        self._plain_head = self._has_plain_head()
        self.widens = self._can_widen()
        """Whether `widened_prefix` may be used."""

    def steered(self, steering: Steering) -> AbstractContextManager[Steerer]:
        """Install the hooks that `steering` needs while the context lasts."""
        return steered(self.blocks, steering, self.dtype, self.device)

    def prefix(self, prompts: Sequence[Sequence[int]], steering: Steering) -> RowCache:
        """Run prompts without their last token, left-aligned, and return their keys and values.

        Args:
            prompts: Token ids, one or more per prompt.
            steering: One entry per prompt.
        """
        cache = RowCache(self.sites, max(map(len, prompts)) - 1)
        with self.steered(steering) as steerer:
            self.extend([prompt[:-1] for prompt in prompts], cache, steerer)
        return cache

    def widened_prefix(
        self, prompts: Sequence[Sequence[int]], rows: Sequence[int], steering: Steering, site: int
    ) -> RowCache:
        """Return what `prefix` does for the prompts `rows`, each run once up to the end of block `site`.

        Args:
            prompts: Token ids, one or more per prompt.
            rows: Which prompt each row has.
            steering: One entry per row; nothing is steered before `site`.
            site: The block behind which rows go on by themselves.
        """
        cache, index = RowCache(self.sites, max(map(len, prompts)) - 1), torch.tensor(rows, device=self.device)
        # Hooks run in the order in which they were installed: rows are widened before they are steered.
        with hooked(self.blocks, {site: widening(index)}), self.steered(steering) as steerer:
            self.extend([prompt[:-1] for prompt in prompts], cache, steerer, index=index)
        for layer in cache.layers[: site + 1]:
            layer.keep(index)
        return cache

    def extend(
        self,
        rows: Sequence[Sequence[int]],
        cache: RowCache,
        steerer: Steerer,
        behind: Sequence[int] | None = None,
        index: Tensor | None = None,
    ) -> None:
        """Run prompt tokens, right-padded, behind what the cache holds.

        Padding to the right needs no attention mask: no real token looks at what comes after it.

        Args:
            rows: Token ids; nothing happens if all are empty.
            cache: Written in place.
            steerer: Told which tokens are real.
            behind: Real tokens of each row that the cache holds, right-aligned; None: an empty cache.
            index: Which of the rows those are that are steered; None: all, as they are.
        """
        if not any(rows):
            return
        ids, real = pad_right(rows, self.device)
        steerer.kinds = (real if index is None else real[index]) * PROMPT
        inputs: dict[str, Tensor] = {}
        if behind is not None:
            lengths, width = torch.tensor(behind, device=self.device)[:, None], max(behind)
            inputs["position_ids"] = lengths + torch.arange(ids.shape[1], device=self.device)
            if min(behind) < width:
                columns = torch.arange(width + ids.shape[1], device=self.device)
                inputs["attention_mask"] = (columns >= width - lengths).long()
        self.model.base_model(input_ids=ids, cache=cache, use_cache=True, **inputs)

    def step(self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: RowCache) -> Tensor:
        """Run one token per row and return logits of shape (rows, vocabulary).

        Args:
            tokens: Shape (rows,).
            positions: Position of each token in its own row, shape (rows,).
            mask: Which columns of the cache are real, this token's among them; None: all.
            cache: Written in place.
        """
        output = self.model(
            input_ids=tokens[:, None],
            attention_mask=mask,
            position_ids=positions[:, None],
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def logits_at(self, chosen: Tensor, size: int, **inputs: Any) -> Iterator[Tensor]:
        """Run the model and yield the logits of the positions where `chosen` holds, (`size`, vocabulary) at a time.

        Args:
            chosen: Shape (rows, tokens), of bool.
            size: Positions whose logits are held at once.
            inputs: For the model's forward pass.
        """
        if self._plain_head:
            states: Tensor = self.model.base_model(**inputs).last_hidden_state[chosen]
            for part in torch.split(states, size):
                yield self.model.get_output_embeddings()(part)
        else:
            with self._head_on(chosen):
                logits: Tensor = self.model(**inputs).logits[0]
            yield from torch.split(logits, size)

    @torch.inference_mode()
    def _has_plain_head(self) -> bool:
        """Return whether logits are the output head of the last states and nothing else: some models scale or cap."""
        ids = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        states = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        logits = self.model.get_output_embeddings()(states)
        return torch.equal(logits, self.model(input_ids=ids, use_cache=False).logits)

    @torch.inference_mode()
    def _can_widen(self) -> bool:
        """Return whether rows may be repeated between two blocks: not where a mask or a table is made per row."""
        config = self.model.config.get_text_config()
        if getattr(config, "sliding_window", None) or set(getattr(config, "layer_types", None) or ()) - {
            "full_attention"
        }:
            return False
        prompts, rows = [[0, 1, 2], [2, 0]], [1, 0, 1]
        steering = Steering.uniform((), len(rows))
        plain = self.prefix([prompts[row] for row in rows], steering).layers[-1].used()
        try:
            wide = self.widened_prefix(prompts, rows, steering, 0).layers[-1].used()
        except (RuntimeError, TypeError, ValueError):
            return False
        limit = 64 * torch.finfo(self.dtype).eps
        return all(
            one.shape == other.shape and torch.allclose(one[:, :, :1].float(), other[:, :, :1].float(), limit, limit)
            for one, other in zip(plain, wide, strict=True)
        )

    @contextmanager
    def _head_on(self, chosen: Tensor) -> Iterator[None]:
        """Let the output head see only where `chosen` (rows, tokens) holds: its logits are (1, chosen, vocabulary)."""

        def gather(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (inputs[0][chosen][None], *inputs[1:])

        handle = self.model.get_output_embeddings().register_forward_pre_hook(gather)
        try:
            yield
        finally:
            handle.remove()


def pad_right(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ids (rows, longest), padded with 0, and a mask of the same shape: 1 where a token is real."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    real = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    return ids, real


def batches(
    sizes: Sequence[tuple[int, ...]], order: Sequence[Any], rows: int, limits: tuple[int, ...]
) -> list[list[int]]:
    """Split rows into batches of neighbours in `order`, of even sizes.

    Args:
        sizes: What each row weighs: one or more numbers of tokens.
        order: Sort key per row: rows of like length, and equal prompts, side by side.
        rows: Most rows per batch.
        limits: For each number in `sizes`, the most padded tokens per batch (a single row may exceed them).
    """
    ranked = sorted(range(len(sizes)), key=lambda row: order[row])
    greedy = _fill(ranked, sizes, rows, limits)
    return _fill(ranked, sizes, -(-len(ranked) // max(1, len(greedy))), limits)


def _fill(
    ranked: Sequence[int], sizes: Sequence[tuple[int, ...]], rows: int, limits: tuple[int, ...]
) -> list[list[int]]:
    """Put rows into a batch until it is full, then into the next."""
    result: list[list[int]] = []
    widest: tuple[int, ...] = ()
    for row in ranked:
        wider = tuple(map(max, widest, sizes[row])) if result else sizes[row]
        batch = result[-1] if result else []
        fits = all(width * (len(batch) + 1) <= limit for width, limit in zip(wider, limits, strict=True))
        if result and len(batch) < rows and fits:
            batch.append(row)
            widest = wider
        else:
            result.append([row])
            widest = sizes[row]
    return result
