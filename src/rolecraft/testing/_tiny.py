"""A tiny random transformer with a byte-level tokenizer, built in memory: the real engine at unit-test cost."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rolecraft.models._local import LocalModel

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer() -> Any:
    """Return a byte-level tokenizer of 256 bytes and three special tokens, with a ChatML template.

    The special tokens are `<|endoftext|>` (256, padding), `<|im_start|>` (257) and `<|im_end|>` (258, end of reply).
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def tiny_model(n_sites: int = 3, hidden: int = 32, seed: int = 0, dtype: torch.dtype = torch.float32) -> LocalModel:
    """Return a random Llama-type model of `n_sites` decoder blocks over 259 tokens.

    Args:
        n_sites: Decoder blocks.
        hidden: Size of the residual stream, a multiple of 16.
        seed: Of the random weights; torch's global generator is left as it was.
        dtype: Of the weights.
    """
    tokenizer = tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=n_sites,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.2,
        bos_token_id=257,
        eos_token_id=258,
        pad_token_id=256,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)
    return LocalModel(model.to(dtype), tokenizer, name=f"local:tiny-{n_sites}x{hidden}-{seed}")
