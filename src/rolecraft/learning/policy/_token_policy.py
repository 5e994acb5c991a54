"""A causal language model that is trained: it samples replies, and scores them with gradient."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rolecraft.conditioning import Steering
from rolecraft.errors import ModelError, UserError
from rolecraft.learning.policy._codec import Codec
from rolecraft.learning.policy._options import Options, OptionTable
from rolecraft.learning.policy._shared import reply_states
from rolecraft.models import Sampling
from rolecraft.models._decode import decode
from rolecraft.models._network import Network, batches, pad_right
from rolecraft.models._sampling import uniforms

_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True)
class Sampled:
    """A reply as it was drawn."""

    tokens: tuple[int, ...]
    """With the end, where it was reached."""
    logp: tuple[float, ...]
    """Of each token, among those that could stand there, at the temperature of sampling."""
    ended: bool
    """False: cut at the longest reply."""


@dataclass(frozen=True)
class Scored:
    """Replies under the policy of now, right-padded with 0 to shape (rows, tokens)."""

    logp: Tensor
    entropy: Tensor
    """In nats, over the tokens that could stand there."""
    value: Tensor | None
    """The critic's, before each token; None without a critic."""


@dataclass(frozen=True)
class Reply:
    """One row to be scored."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    options: Options | None = None
    """What could have been said; None: anything."""


class TokenPolicy:
    """A language model under training, with its codec; see `tiny_policy`, `lora_policy` and `model_policy`.

    Args:
        model: A transformers causal language model without dropout. What it trains is what requires a gradient.
        codec: Text to tokens and back.
        base: Identity of what is not trained, such as a hash of the weights that an adapter stands on.
        temperature: Logits are divided by it, in sampling and in scoring.
        max_tokens: Longest reply, its end included.
        critic: Give it a value head: a linear layer on the last states, zero at the start.
        adapter: Name of the adapter among those of `model` that is this policy.
    """

    def __init__(
        self,
        model: Any,
        codec: Codec,
        *,
        base: str,
        temperature: float = 1.0,
        max_tokens: int = 32,
        critic: bool = False,
        adapter: str | None = None,
    ) -> None:
        if temperature <= 0 or max_tokens < 1:
            raise UserError(f"temperature must be above 0 and max_tokens at least 1, got {temperature}, {max_tokens}.")
        self.network = Network(model)
        self.codec = codec
        self.base = base
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.adapter = adapter
        self.options = OptionTable(codec.reply, codec.end)
        self.critic = nn.Linear(self.network.hidden, 1, device=self.network.device) if critic else None
        if self.critic is not None:
            nn.init.zeros_(self.critic.weight)
            nn.init.zeros_(self.critic.bias)
        self._reference: Network | None = None

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return what is trained, by name."""
        with self.active():
            named = {name: each for name, each in self.network.model.named_parameters() if each.requires_grad}
        if self.critic is not None:
            named |= {f"critic.{name}": each for name, each in self.critic.named_parameters()}
        return named

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Set what is trained.

        Raises:
            ModelError: If names or shapes differ from `parameters`.
        """
        own = self.parameters()
        wrong = sorted(set(own) ^ set(tensors)) or [name for name in own if own[name].shape != tensors[name].shape]
        if wrong:
            raise ModelError(
                f"the weights are of another policy: {wrong[0]!r} is missing, unknown or of another shape."
            )
        for name, parameter in own.items():
            parameter.copy_(tensors[name])

    @contextmanager
    def active(self) -> Iterator[None]:
        """Switch the model to this policy's adapter while the context lasts."""
        if self.adapter is not None:
            from rolecraft.learning.policy._adapters import use_adapter

            use_adapter(self.network.model, self.adapter)
        yield

    def keep_reference(self) -> None:
        """Remember the policy of now as the reference; a model with an adapter has its base for that."""
        if self.adapter is None:
            frozen = deepcopy(self.network.model)
            frozen.requires_grad_(False)
            self._reference = Network(frozen)

    def encode(self, agent: str, role: str | None, observation: str) -> tuple[int, ...]:
        """Return the prompt of a decision."""
        return tuple(self.codec.prompt(agent, role, observation))

    def sample(
        self, prompts: Sequence[Sequence[int]], options: Sequence[Options | None], seeds: Sequence[int]
    ) -> list[Sampled]:
        """Draw a reply to each prompt; a row's draw depends on its own seed alone.

        Args:
            prompts: Token ids.
            options: What may be said; None: anything, up to `max_tokens`.
            seeds: One per row.

        Raises:
            UserError: If an action has more tokens than a reply may have.
        """
        if not prompts:
            return []
        longest = max((each.longest for each in options if each is not None), default=0)
        if longest > self.max_tokens:
            raise UserError(
                f"an action takes {longest} tokens, and a reply may have {self.max_tokens}: raise max_tokens."
            )
        with self.active():
            if all(each is not None and each.single for each in options):
                return self._draw_single(prompts, [each for each in options if each is not None], seeds)
            draws = [_Draw(each, self.codec.end) for each in options]
            sizes = [(len(prompt) + self.max_tokens,) for prompt in prompts]
            order = [(len(prompt), tuple(prompt)) for prompt in prompts]
            for rows in batches(sizes, order, 256, (16384,)):
                self._decode([prompts[row] for row in rows], [draws[row] for row in rows], [seeds[row] for row in rows])
        return [draw.result() for draw in draws]

    def score(self, rows: Sequence[Reply], *, reference: bool = False) -> Scored:
        """Score replies; with gradient, where torch records one.

        Rows that are equal are computed once.

        Args:
            rows: Prompts and replies; a reply may not be empty.
            reference: By the reference instead of the policy of now; see `keep_reference`.

        Raises:
            UserError: If there is no reference.
        """
        if not reference:
            with self.active():
                return self._score(self.network, rows, self.critic)
        with torch.no_grad(), self._as_reference() as network:
            return self._score(network, rows, None)

    @torch.no_grad()
    def divergence(self, rows: Sequence[Reply]) -> Tensor:
        """Return KL(policy || reference) at every token, exact over what could stand there, of shape (rows, tokens).

        Its sum over a reply's tokens is an estimate of the KL of whole replies that varies less than log-ratios of the
        tokens that were drawn, and is never negative.

        Raises:
            UserError: If there is no reference.
        """
        distinct, index = _distinct(rows)
        with self.active():
            _, table, spread = self._look(self.network, distinct)
        with self._as_reference() as network:
            _, reference, _ = self._look(network, distinct)
        gap = _zero_where_closed(table, distinct) - _zero_where_closed(reference, distinct)
        return spread((table.exp() * gap).sum(-1).clamp(min=0))[index]

    def odds(self, prompts: Sequence[Sequence[int]], options: Sequence[Options]) -> list[dict[str, float]]:
        """Return the probability of every action at each prompt."""
        rows, places = [], []
        for place, (prompt, each) in enumerate(zip(prompts, options, strict=True)):
            for path in each.actions:
                rows.append(Reply(tuple(prompt), path, each))
                places.append(place)
        with torch.no_grad():
            chances = self.score(rows).logp.sum(1).exp().tolist()
        found: list[dict[str, float]] = [{} for _ in prompts]
        for row, place, chance in zip(rows, places, chances, strict=True):
            found[place][options[place].actions[row.tokens]] = chance
        return found

    @torch.inference_mode()
    def _draw_single(
        self, prompts: Sequence[Sequence[int]], options: Sequence[Options], seeds: Sequence[int]
    ) -> list[Sampled]:
        """Draw where every action is one token: one pass over each distinct prompt."""
        distinct, index = _distinct([tuple(prompt) for prompt in prompts])
        logits = torch.cat(
            [
                self._last_logits([distinct[row] for row in rows])
                for rows in batches([(len(row),) for row in distinct], range(len(distinct)), 1024, (65536,))
            ]
        )[index]
        tokens, logp = _pick(logits, [each.next(()) for each in options], uniforms(seeds, 0), self.temperature)
        return [
            Sampled((token,), (chance,), True) for token, chance in zip(tokens.tolist(), logp.tolist(), strict=True)
        ]

    def _last_logits(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        ids, real = pad_right(prompts, self.network.device)
        lengths = real.sum(1)
        states = self.network.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        logits: Tensor = self.network.model.get_output_embeddings()(states[torch.arange(len(prompts)), lengths - 1])
        return logits

    def _decode(self, prompts: Sequence[Sequence[int]], draws: Sequence[_Draw], seeds: Sequence[int]) -> None:
        end = self.codec.end

        def pick(logits: Tensor, rows: Sequence[int], step: int) -> tuple[Tensor, Tensor]:
            allowed = [draws[row].allowed() for row in rows]
            tokens, logp = _pick(logits, allowed, uniforms([seeds[row] for row in rows], step), self.temperature)
            for row, token, chance in zip(rows, tokens.tolist(), logp.tolist(), strict=True):
                draws[row].take(token, chance)
            done = torch.tensor([draws[row].done for row in rows], device=tokens.device)
            return torch.where(done, end, tokens), logp.isfinite()

        sampling = Sampling(max_tokens=self.max_tokens, temperature=1.0, top_p=1.0)
        steering = Steering.uniform((), len(prompts))
        decode(self.network, prompts, sampling, steering, seeds, frozenset({end}), pick)

    @contextmanager
    def _as_reference(self) -> Iterator[Network]:
        """Give the network that is the reference while the context lasts."""
        if self.adapter is not None:
            from rolecraft.learning.policy._adapters import without_adapter

            with without_adapter(self.network.model):
                yield self.network
        elif self._reference is None:
            raise UserError("the policy has no reference; call keep_reference() before it is trained.")
        else:
            yield self._reference

    def _score(self, network: Network, rows: Sequence[Reply], critic: nn.Linear | None) -> Scored:
        distinct, index = _distinct(rows)
        states, table, spread = self._look(network, distinct)
        tokens = torch.tensor([token for row in distinct for token in row.tokens], device=network.device)
        finite = _zero_where_closed(table, distinct)
        logp, entropy = table.gather(1, tokens[:, None])[:, 0], -(table.exp() * finite).sum(-1)
        value = None if critic is None else spread(critic(states.float())[:, 0])[index]
        return Scored(spread(logp)[index], spread(entropy)[index], value)

    def _look(self, network: Network, rows: Sequence[Reply]) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Return states and log-probabilities at every token of some rows, and what lays a column of them out by row.

        Shapes are (tokens, hidden) and (tokens, vocabulary); what could not stand there has minus infinity.
        """
        states = reply_states(network, rows)
        logits = network.model.get_output_embeddings()(states)
        spots = [(n, t) for n, row in enumerate(rows) for t in range(len(row.tokens))]
        at = torch.tensor(spots, device=network.device)
        shape = (len(rows), max(len(row.tokens) for row in rows))

        def spread(flat: Tensor) -> Tensor:
            return flat.new_zeros(shape).index_put((at[:, 0], at[:, 1]), flat)

        return states, self._table(logits, rows), spread

    def _table(self, logits: Tensor, rows: Sequence[Reply]) -> Tensor:
        if all(row.options is None for row in rows):
            return torch.log_softmax(logits.float() / self.temperature, -1)
        allowed = [
            each
            for row in rows
            for each in ([None] * len(row.tokens) if row.options is None else row.options.along(row.tokens))
        ]
        return _allowed(logits, allowed, self.temperature)


class _Draw:
    """A reply while it is drawn."""

    def __init__(self, options: Options | None, end: int) -> None:
        self._options = options
        self._end = end
        self._tokens: list[int] = []
        self._logp: list[float] = []
        self.done = False

    def allowed(self) -> tuple[int, ...] | None:
        return None if self._options is None else self._options.next(self._tokens)

    def take(self, token: int, logp: float) -> None:
        if self.done:  # it waits in its batch until enough others are done
            return
        self._tokens.append(token)
        self._logp.append(logp)
        self.done = token == self._end if self._options is None else not self._options.next(self._tokens)

    def result(self) -> Sampled:
        return Sampled(tuple(self._tokens), tuple(self._logp), self.done)


def _distinct(keys: Sequence[_K]) -> tuple[list[_K], list[int]]:
    """Return the distinct keys in order of appearance, and where each key lies among them."""
    places: dict[_K, int] = {}
    index = [places.setdefault(key, len(places)) for key in keys]
    return list(places), index


def _allowed(logits: Tensor, allowed: Sequence[tuple[int, ...] | None], temperature: float) -> Tensor:
    """Return log-probabilities (rows, vocabulary) among the allowed tokens: minus infinity elsewhere."""
    closed = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    limited = [row for row, each in enumerate(allowed) if each is not None]
    closed[limited] = True
    rows = [row for row in limited for _ in allowed[row] or ()]
    columns = [token for row in limited for token in allowed[row] or ()]
    closed[rows, columns] = False
    return torch.log_softmax((logits.float() / temperature).masked_fill(closed, float("-inf")), -1)


def _zero_where_closed(table: Tensor, rows: Sequence[Reply]) -> Tensor:
    """Return log-probabilities with 0 for minus infinity, which only options bring in."""
    if all(row.options is None for row in rows):
        return table
    return torch.where(table.isfinite(), table, table.new_zeros(()))


def _pick(
    logits: Tensor, allowed: Sequence[tuple[int, ...] | None], draws: Any, temperature: float
) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting at `draws` in [0, 1), and return it with its log-probability."""
    table = _allowed(logits, allowed, temperature)
    mass = table.double().exp().cumsum(-1)
    at = torch.from_numpy(draws).to(logits.device)[:, None] * mass[:, -1:]
    tokens = torch.searchsorted(mass, at, right=True).clamp(max=logits.shape[1] - 1)
    return tokens[:, 0], table.gather(1, tokens)[:, 0]
