"""What differs among OpenAI-compatible servers: how they identify a model, sample in full, and score given text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rolecraft._run import content_key
from rolecraft.errors import ModelError
from rolecraft.models._base import Chat

Post = Callable[[str, dict[str, Any], str], Awaitable[Any]]
"""From a path (`/v1/...`, or one at the server's root), a body and the expected key to the answer."""

_CLOCKS = frozenset({"llamacpp", "vllm", "sglang"})
"""Owners whose `created` is the time of the request, not of the weights."""
_FULL = {"top_k": 0, "min_p": 0.0}
"""Switches off the cuts that a server would make beside temperature and nucleus."""


@dataclass(frozen=True)
class Dialect:
    """What a server's `/models` says of one model."""

    owner: str
    """`owned_by`: `llamacpp`, `vllm`, `openai`, ...; empty if unknown."""
    revision: str
    """Hash of what is reported of the weights, or `unreported`."""
    known: tuple[str, ...] = ()
    """Ids of all models the server lists."""

    @classmethod
    def of(cls, name: str, listing: Sequence[dict[str, Any]]) -> Dialect:
        """Read the `data` of a `/models` answer.

        A server that lists one model is taken to serve it under any name, as llama.cpp does.
        """
        known = tuple(str(entry.get("id", "")) for entry in listing)
        entry = next((e for e in listing if e.get("id") == name), listing[0] if len(listing) == 1 else None)
        if entry is None:
            return cls("", "unreported", known)
        owner = str(entry.get("owned_by", ""))
        facts: dict[str, Any] = {
            field: entry[field] for field in ("id", "owned_by", "root", "parent") if field in entry
        }
        if owner not in _CLOCKS:
            facts["created"] = entry.get("created")
        meta = entry.get("meta") or {}
        facts["weights"] = {field: meta[field] for field in ("n_params", "size", "ftype", "n_vocab") if field in meta}
        return cls(owner, content_key(**facts), known)

    @property
    def sampling(self) -> dict[str, Any]:
        """Fields beside temperature, top_p and seed without which this server would sample otherwise than asked."""
        return _FULL if self.owner in ("llamacpp", "vllm", "sglang") else {}

    async def score(self, post: Post, model: str, chat: Chat, reply: str) -> list[float]:
        """Return the log-probability of each token of `reply`.

        Raises:
            ModelError: If the server has no way of scoring a given reply.
        """
        if self.owner == "llamacpp":
            return await _score_by_grammar(post, model, chat, reply)
        if self.owner == "vllm":
            return await _score_by_prompt(post, model, chat, reply)
        raise ModelError(
            f"the server of {model!r} ({self.owner or 'of an unknown kind'}) cannot score given replies: the OpenAI "
            "API has no such call. Serve the model with vLLM or llama.cpp, or load it with local:."
        )


async def _score_by_grammar(post: Post, model: str, chat: Chat, reply: str) -> list[float]:
    """Force the reply's tokens by a grammar of token ids; llama.cpp reports log-probabilities before the grammar."""
    tokens = (await post("/tokenize", {"content": reply, "add_special": False}, "tokens"))["tokens"]
    body = {
        "model": model,
        "messages": list(chat),
        "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in tokens),
        "max_tokens": len(tokens),
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 1,
    }
    choice = (await post("/v1/chat/completions", body, "choices"))["choices"][0]
    content = (choice.get("logprobs") or {}).get("content") or []
    if [entry.get("id") for entry in content[: len(tokens)]] != tokens:
        raise ModelError("this llama.cpp server does not follow grammars of token ids; a newer version scores replies.")
    return [float(entry["logprob"]) for entry in content[: len(tokens)]]


async def _score_by_prompt(post: Post, model: str, chat: Chat, reply: str) -> list[float]:
    """Let vLLM report the log-probabilities of a prompt that ends with the reply, and cut the chat's tokens off."""
    head = (await post("/tokenize", {"model": model, "messages": list(chat), "add_generation_prompt": True}, "tokens"))[
        "tokens"
    ]
    body = {
        "model": model,
        "messages": [*chat, {"role": "assistant", "content": reply}],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "prompt_logprobs": 0,
        "max_tokens": 1,
    }
    answer = await post("/v1/chat/completions", body, "choices")
    scored = answer.get("prompt_logprobs")
    if not scored or len(scored) <= len(head):
        raise ModelError(
            f"the vLLM server of {model!r} reported no log-probabilities of the prompt; is it older than 0.6?"
        )
    return [float(next(iter(entry.values()))["logprob"]) for entry in scored[len(head) :]]
