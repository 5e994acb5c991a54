"""LocalModel: a transformers model in this process that generates, scores and can be steered and read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from jinja2 import TemplateError
from numpy.typing import NDArray

from rolecraft.conditioning._steering import Intervention, Steering
from rolecraft.errors import ModelError, SteeringShapeError, UserError, did_you_mean
from rolecraft.models import _weights
from rolecraft.models._base import Chat, Completion, FloatArray, Sampling
from rolecraft.models._decode import Decoded, decode
from rolecraft.models._hooks import LAST, NEW, check_steering, touched
from rolecraft.models._network import Network, batches
from rolecraft.models._score import POOLINGS, Pooling, pool, score

_SCORED_TOKENS = 1024
"""Reply tokens scored per forward pass; their logits are the largest tensor of scoring."""
_POOLED_TOKENS = 4096
"""Tokens per forward pass when activations are read."""


class LocalModel:
    """A language model in this process.

    Args:
        model: A transformers causal language model.
        tokenizer: Its tokenizer, with a chat template.
        name: Model string.
        revision: What identifies the weights; default: a hash over the parameters.
        batch_rows: Most rows decoded together.
        batch_tokens: Most tokens (prompts and new ones, padded) whose keys and values one batch may hold; 16384
            of SmolLM2-135M take 360 MiB in bfloat16.
        blocks: Dotted path of the decoder blocks, for an architecture that is not found by itself.

    Raises:
        ModelError: If the decoder blocks are not found.
        UserError: If the tokenizer has no chat template.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "local:memory",
        revision: str | None = None,
        batch_rows: int = 256,
        batch_tokens: int = 16384,
        blocks: str | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise UserError(f"the tokenizer of {name} has no chat template, which chats need.")
        self._network = Network(model, blocks)
        self._tokenizer = tokenizer
        self._name = name
        self._revision = revision
        self._stops = _weights.stop_tokens(model, tokenizer)
        self.batch_rows = batch_rows
        self.batch_tokens = batch_tokens
        self._lock = threading.Lock()
        self._owner: int | None = None

    @classmethod
    def load(
        cls,
        spec: str = _weights.SMOLLM2,
        *,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        device: str = "cpu",
        batch_rows: int = 256,
        blocks: str | None = None,
    ) -> LocalModel:
        """Load a model.

        Args:
            spec: `smollm2` (embedded), the path of a GGUF file, or a transformers folder.
            dtype: `auto` is bfloat16 where the processor multiplies it natively, else float32.
            device: `cpu`, or `cuda` with an optional index.
            batch_rows: Most rows decoded together.
            blocks: Dotted path of the decoder blocks, for an architecture that is not found by itself.

        Raises:
            MissingDependencyError: If the embedded weights are not installed; the message says the line that does.
            UserError: If `spec`, `dtype` or `device` cannot be used.
            ModelError: If loading fails.
        """
        kinds = ("auto", "float32", "bfloat16", "float16")
        if dtype not in kinds:
            raise UserError(f"dtype must be one of {', '.join(kinds)}, got {dtype!r}.{did_you_mean(dtype, kinds)}")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise UserError(f"device {device!r} was asked for, but torch sees no CUDA device. Use device='cpu'.")
        path = _weights.locate(spec)
        revision = _weights.fingerprint(path)
        chosen: torch.dtype = _weights.best_dtype(device) if dtype == "auto" else getattr(torch, dtype)
        model, tokenizer = _weights.load(path, revision, chosen)
        return cls(
            model.to(device),
            tokenizer,
            name=f"local:{spec}",
            revision=revision,
            batch_rows=batch_rows,
            blocks=blocks,
        )

    @property
    def name(self) -> str:
        """Model string, such as `local:smollm2`."""
        return self._name

    @property
    def revision(self) -> str:
        """SHA-256 that identifies the weights."""
        if self._revision is None:
            self._revision = _weights.fingerprint_parameters(self._network.model)
        return self._revision

    @property
    def n_sites(self) -> int:
        """Number of decoder blocks, each a site."""
        return self._network.sites

    @property
    def hidden(self) -> int:
        """Size of the residual stream."""
        return self._network.hidden

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights and of the residual stream."""
        return self._network.dtype

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""
        return self._tokenizer

    @property
    def model(self) -> Any:
        """The transformers model."""
        return self._network.model

    def encode(self, chat: Chat) -> list[int]:
        """Return the token ids of a chat up to where the reply begins."""
        return self._encode_all([chat])[0]

    def generate(
        self,
        chats: Sequence[Chat],
        sampling: Sampling,
        steering: Steering | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Reply to each chat; see `LanguageModel.generate`.

        Rows of like length are decoded together, whatever their steering. A row whose logits are not finite, or whose
        prompt does not fit the context, ends as an `error` and leaves the others alone.

        Raises:
            SteeringShapeError: If the steering does not fit the chats or the model.
            UserError: If the number of seeds differs from the number of chats.
            ModelError: If called while this model is generating (from within a hook).
        """
        steering = Steering.uniform((), len(chats)) if steering is None else steering
        check_steering(steering, len(chats), self.n_sites, self.hidden)
        seeds = [0] * len(chats) if seeds is None else list(seeds)
        if len(seeds) != len(chats):
            raise UserError(f"got {len(seeds)} seeds for {len(chats)} chats; give one per chat.")
        prompts = self._encode_all(chats)
        limit = getattr(self._network.model.config, "max_position_embeddings", None) or 2**31
        results: list[Completion | None] = [None] * len(chats)
        fitting = []
        for row, prompt in enumerate(prompts):
            if len(prompt) + sampling.max_tokens > limit:
                note = f"{len(prompt)} prompt tokens and {sampling.max_tokens} new ones exceed the context of {limit}"
                results[row] = Completion("", "error", len(prompt), note=note)
            else:
                fitting.append(row)
        sizes = [(len(prompts[row]) + sampling.max_tokens,) for row in fitting]
        order = [(len(prompts[row]), prompts[row]) for row in fitting]
        with self._exclusive():
            for batch in batches(sizes, order, self.batch_rows, (self.batch_tokens,)):
                rows = [fitting[place] for place in batch]
                decoded = decode(
                    self._network,
                    [prompts[row] for row in rows],
                    sampling,
                    steering.select(rows),
                    [seeds[row] for row in rows],
                    self._stops,
                )
                for row, reply in zip(rows, decoded, strict=True):
                    results[row] = self._completion(prompts[row], reply)
        return [result for result in results if result is not None]

    def logprobs(
        self, chats: Sequence[Chat], replies: Sequence[str], steering: Steering | None = None
    ) -> list[FloatArray]:
        """Return the log-probability of each token of each reply; see `LanguageModel.logprobs`.

        An empty reply gives an empty array. The end-of-reply token is not scored. Under steering, reply tokens count
        as decoded.

        Raises:
            SteeringShapeError: If the steering does not fit the chats or the model.
            UserError: If the numbers of chats and replies differ.
        """
        steering = Steering.uniform((), len(chats)) if steering is None else steering
        check_steering(steering, len(chats), self.n_sites, self.hidden)
        prompts, tokens = self._encode_pairs(chats, replies)
        results: list[FloatArray] = [np.zeros(0, dtype=np.float32) for _ in chats]
        filled = [row for row, reply in enumerate(tokens) if reply]
        order = [(len(prompts[row]), prompts[row], len(tokens[row])) for row in filled]
        sizes = [(len(prompts[row]) + len(tokens[row]), len(tokens[row])) for row in filled]
        with self._exclusive():
            for batch in batches(sizes, order, self.batch_rows, (self.batch_tokens, _SCORED_TOKENS)):
                rows = [filled[place] for place in batch]
                scored = score(
                    self._network, [prompts[row] for row in rows], [tokens[row] for row in rows], steering.select(rows)
                )
                for row, values in zip(rows, scored, strict=True):
                    results[row] = values
        return results

    def activations(
        self,
        chats: Sequence[Chat],
        replies: Sequence[str],
        sites: Sequence[int] | None = None,
        pooling: Pooling | Sequence[Pooling] = "reply-mean",
        steering: Steering | None = None,
    ) -> Iterator[tuple[int, FloatArray]]:
        """Read block outputs, pooled over tokens, row by row; what is held does not grow with the number of rows.

        The same hook site reads and steers: the output of a decoder block, before any final norm.

        Args:
            chats: One chat per row.
            replies: One reply per row, teacher-forced. A row with an empty reply yields nothing, unless the
                only pooling is `prompt-last`.
            sites: Decoder blocks to read; default: all, ascending.
            pooling: `reply-mean`, `reply-first`, `reply-last` or `prompt-last`; or several of them.
            steering: Interventions per row; reply tokens count as decoded.

        Yields:
            Row index, and a float32 array of shape (sites, hidden), or (poolings, sites, hidden) if `pooling` is a
            sequence. Rows come in an order of the engine's choice.

        Raises:
            SteeringShapeError: If a site is out of range, or the steering does not fit.
            UserError: If a pooling is unknown, or the numbers of chats and replies differ.
        """
        poolings: list[Pooling] = [pooling] if isinstance(pooling, str) else list(pooling)
        for given in poolings:
            if given not in POOLINGS:
                raise UserError(f"pooling must be one of {', '.join(POOLINGS)}, got {given!r}.")
        wanted = list(range(self.n_sites)) if sites is None else list(sites)
        if not wanted or not poolings or not all(0 <= site < self.n_sites for site in wanted):
            raise SteeringShapeError(f"sites must be one or more of 0 to {self.n_sites - 1}, got {wanted}.")
        steering = Steering.uniform((), len(chats)) if steering is None else steering
        check_steering(steering, len(chats), self.n_sites, self.hidden)
        prompts, tokens = self._encode_pairs(chats, replies)
        return self._pooled(prompts, tokens, wanted, poolings, steering, single=isinstance(pooling, str))

    def self_test(self, intervention: Intervention) -> None:
        """Check on one prompt that the change at the intervention's site is the one that was asked for.

        Raises:
            SteeringShapeError: If the intervention does not fit the model.
            ModelError: If the state at the site changes otherwise, or not at all where it should: compiled and
                some quantised models bypass hooks.
        """
        steering = Steering(((), (intervention,)))
        check_steering(steering, 2, self.n_sites, self.hidden)
        chat: Chat = [{"role": "user", "content": "Hello."}]
        reading = self.activations([chat] * 2, ["Hi"] * 2, [intervention.site], ("prompt-last", "reply-last"), steering)
        states = dict(reading)
        for place, kind in enumerate((LAST, NEW)):
            before, after = (states[row][place, 0].astype(np.float64) for row in (0, 1))
            expected = _expected(before, intervention) if kind in touched(intervention) else before
            size = max(np.abs(before).max(), np.abs(expected).max())
            error = np.abs(after - expected).max()
            if not error <= 8 * torch.finfo(self.dtype).eps * size:
                raise ModelError(
                    f"steering does not reach site {intervention.site} of {self.name} as asked: the state differs by "
                    f"up to {error:.3g} from what {intervention.operator!r} gives (states: {size:.3g}, {self.dtype})."
                )

    def _pooled(
        self,
        prompts: list[list[int]],
        tokens: list[list[int]],
        sites: list[int],
        poolings: list[Pooling],
        steering: Steering,
        single: bool,
    ) -> Iterator[tuple[int, FloatArray]]:
        filled = [row for row, reply in enumerate(tokens) if reply or set(poolings) == {"prompt-last"}]
        sizes = [(len(prompts[row]) + len(tokens[row]),) for row in filled]
        for batch in batches(sizes, sizes, self.batch_rows, (_POOLED_TOKENS,)):
            rows = [filled[place] for place in batch]
            with self._exclusive():
                states = pool(
                    self._network,
                    [prompts[row] for row in rows],
                    [tokens[row] for row in rows],
                    sites,
                    poolings,
                    steering.select(rows),
                )
            for row, state in zip(rows, states, strict=True):
                yield row, state[0] if single else state

    def _completion(self, prompt: list[int], decoded: Decoded) -> Completion:
        if decoded.finish == "error":
            note = f"the model's logits were not finite at new token {len(decoded.tokens)}"
            return Completion("", "error", len(prompt), note=note)
        text = self._tokenizer.decode(decoded.tokens, skip_special_tokens=True)
        return Completion(text, decoded.finish, len(prompt), len(decoded.tokens), token_ids=tuple(decoded.tokens))

    def _encode_all(self, chats: Sequence[Chat]) -> list[list[int]]:
        """Tokenize chats, each distinct one once."""
        known: dict[tuple[tuple[str, str], ...], list[int]] = {}
        result = []
        for chat in chats:
            key = tuple((message["role"], message["content"]) for message in chat)
            if key not in known:
                try:
                    text = self._tokenizer.apply_chat_template(list(chat), add_generation_prompt=True, tokenize=False)
                except TemplateError as error:
                    raise UserError(f"the chat template of {self.name} refuses a chat: {error}") from error
                known[key] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            result.append(known[key])
        return result

    def _encode_pairs(self, chats: Sequence[Chat], replies: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        if len(chats) != len(replies):
            raise UserError(f"got {len(replies)} replies for {len(chats)} chats; give one per chat.")
        tokens = self._tokenizer(list(replies), add_special_tokens=False)["input_ids"] if replies else []
        return self._encode_all(chats), tokens

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the model: hooks belong to one call at a time. Another thread waits; the same thread would deadlock."""
        if self._owner == threading.get_ident():
            raise ModelError("this model is already in use by an enclosing call: steering cannot be nested.")
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None


def _expected(h: NDArray[np.float64], intervention: Intervention) -> NDArray[np.float64]:
    """Return what an intervention makes of one state: its definition, written apart from the hooks it checks."""
    v, c = intervention.vector.astype(np.float64), intervention.strength
    u: NDArray[np.float64] = v / np.linalg.norm(v)
    if intervention.operator == "add":
        return h + c * v
    if intervention.operator == "add-norm":
        return h + c * float(np.linalg.norm(h)) * u
    if intervention.operator == "add-signed":
        return h + c * v * float(np.sign(h @ (c * v)))
    if intervention.operator == "ablate":
        return h - float(h @ u) * u + c * v
    return h - max(float(h @ u) - (intervention.threshold or 0.0), 0.0) * u
