"""Making policies: tiny transformers from nothing, and language models with adapters or whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from rolecraft.conditioning import Rung
from rolecraft.errors import UserError
from rolecraft.learning.policy._adapters import add_adapter
from rolecraft.learning.policy._codec import SPECIAL, ChatCodec, WordCodec
from rolecraft.learning.policy._token_policy import TokenPolicy
from rolecraft.models._weights import fingerprint_parameters

if TYPE_CHECKING:
    from rolecraft.models import LocalModel
    from rolecraft.roles import Role


def tiny_transformer(
    vocabulary: int, *, layers: int = 2, hidden: int = 64, heads: int = 4, context: int = 256, seed: int = 0
) -> Any:
    """Return a random Llama-type transformer in float32, of transformers' own class.

    Args:
        vocabulary: Tokens; the first is padding.
        layers: Decoder blocks.
        hidden: Size of the residual stream, a multiple of twice the heads.
        heads: Attention heads.
        context: Most tokens of a prompt with its reply.
        seed: Of the weights; torch's global generator is left as it was.

    Raises:
        UserError: If the sizes do not fit.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    if hidden % (2 * heads) or min(vocabulary, layers, heads, context) < 1:
        raise UserError(f"hidden must be a multiple of twice the heads, got {hidden} and {heads} heads.")
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        initializer_range=0.08,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def tiny_policy(
    codec: WordCodec,
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    context: int = 256,
    seed: int = 0,
    temperature: float = 1.0,
    max_tokens: int = 16,
    critic: bool = False,
) -> TokenPolicy:
    """Return a tiny transformer over a world's words, all of it trained; see `tiny_transformer`."""
    if codec.tokens[: len(SPECIAL)] != SPECIAL:
        raise UserError("the codec's first tokens must be the special ones.")
    model = tiny_transformer(len(codec), layers=layers, hidden=hidden, heads=heads, context=context, seed=seed)
    base = f"tiny:{len(codec)}x{layers}x{hidden}x{heads}x{context}:{' '.join(codec.vocabulary)}"
    return TokenPolicy(model, codec, base=base, temperature=temperature, max_tokens=max_tokens, critic=critic)


def lora_policies(
    model: LocalModel,
    names: Sequence[str],
    *,
    rank: int = 8,
    roles: Mapping[str, Role] | None = None,
    rung: Rung = "instruction",
    blocks: Sequence[int] | None = None,
    seed: int = 0,
    temperature: float = 1.0,
    max_tokens: int = 64,
    critic: bool = False,
) -> dict[str, TokenPolicy]:
    """Return policies that share a frozen language model, each with an adapter of its own.

    Args:
        model: The base; it is changed in place, and its adapters have no effect before they are trained.
        names: Of the policies and their adapters.
        rank: Of the adapters.
        roles: Role by id, put on by prompt.
        rung: How.
        blocks: Decoder blocks that get adapters; see `add_adapter`.
        seed: Of the adapters.
        temperature: See `TokenPolicy`.
        max_tokens: See `TokenPolicy`.
        critic: See `TokenPolicy`.

    Raises:
        MissingDependencyError: If peft is not installed.
    """
    base = f"{model.name}:{model.revision}"
    codec = ChatCodec(model, roles, rung)
    for place, name in enumerate(names):
        add_adapter(model.model, name, rank=rank, blocks=blocks, seed=seed + place)
    return {
        name: TokenPolicy(
            model.model,
            codec,
            base=base,
            temperature=temperature,
            max_tokens=max_tokens,
            critic=critic,
            adapter=name,
        )
        for name in names
    }


def model_policy(
    model: LocalModel,
    *,
    roles: Mapping[str, Role] | None = None,
    rung: Rung = "instruction",
    temperature: float = 1.0,
    max_tokens: int = 64,
    critic: bool = False,
) -> TokenPolicy:
    """Return a language model all of which is trained; the weights need a trainable dtype such as float32."""
    base = f"{model.name}:{fingerprint_parameters(model.model)}"
    model.model.requires_grad_(True)
    codec = ChatCodec(model, roles, rung)
    return TokenPolicy(model.model, codec, base=base, temperature=temperature, max_tokens=max_tokens, critic=critic)
