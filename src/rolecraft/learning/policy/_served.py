"""A policy under training whose replies are drawn by a server, such as vLLM on a GPU."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import torch
from safetensors.torch import save_file

from rolecraft.errors import ModelError, UserError
from rolecraft.learning.policy._seat import ENDED, LOGP, TOKENS, LearnerSeat, _seed
from rolecraft.learning.policy._token_policy import TokenPolicy
from rolecraft.models import _transport
from rolecraft.worlds import Act, View

_SEEDS = 2**31
"""Servers take seeds below this."""


class ServedSeat(LearnerSeat):
    """Lets a server draw a policy's replies: put it into `Trainer.seats` in place of the seat that is there.

    The server is asked at `/v1/completions` with token ids, and must answer with `token_ids` and a log-probability each
    (as vLLM, told `return_token_ids`). The trainer scores every reply again with its own model before the update: the
    server's precision decides what is drawn, and `engine_gap` says how far its odds are from the trainer's.

    Before a batch, weights that have changed are written to a new folder within `folder`, and the server is told to
    load them: by default an adapter under a new name (`/v1/load_lora_adapter`, and `/v1/unload_lora_adapter` for the
    one before; vLLM must be started with `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and see the
    folder). For a model that is trained whole there is no such call that servers share: give `reload`.

    Limits: replies are free text, because a server cannot draw among actions that a world lists; a server's draws
    follow from the seeds that it is sent only as far as it makes them, so a run is not repeated to the last token; and
    workers play with seats of their own, not with this one.

    Args:
        policy: Which is trained here.
        url: Of the server, with or without `/v1`.
        model: Name of the base model at the server; where `reload` is given, what to ask.
        folder: Where weights are written; the server must see the same.
        name: Of the policy in the trainer, and of its adapter at the server.
        reload: Called with the folder of each export; returns the model's name to ask from then on.
        concurrency: Most requests at a time.
        timeout: Seconds until a request without an answer is tried again.
        retries: Tries after the first, for each request.

    Raises:
        UserError: If the URL cannot be used, or a policy without an adapter comes without `reload`.
    """

    def __init__(
        self,
        policy: TokenPolicy,
        url: str,
        model: str,
        folder: str | Path,
        *,
        name: str = "policy",
        reload: Callable[[Path], str] | None = None,
        concurrency: int = 64,
        timeout: float = 120.0,
        retries: int = 6,
    ) -> None:
        super().__init__(policy, name)
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise UserError(f"url must start with http:// or https:// and name a host without a password, got {url!r}.")
        if policy.adapter is None and reload is None:
            raise UserError("a server cannot be told to load a whole model's weights in a common way: give reload.")
        self.folder = Path(folder)
        self.model = model
        """Asked for the next reply."""
        self.exports = 0
        """How often weights were sent."""
        self._base = str(parsed.copy_with(path=parsed.path.rstrip("/") or "/v1", query=None, fragment=None))
        self._reload = reload
        self._stamp: tuple[int, ...] | None = None
        self._before: Path | None = None
        self._transport = _transport.Transport(
            os.environ.get("OPENAI_API_KEY"),
            url=parsed,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=0.5,
        )

    def act(self, views: Sequence[View]) -> list[Act]:
        """Ask the server for a reply to every view, all at once.

        Raises:
            UserError: If a world lists its actions.
            ModelError: If the server refuses, or its answer lacks tokens or log-probabilities.
        """
        listed = next((view for view in views if view.legal is not None), None)
        if listed is not None:
            raise UserError(
                f"{listed.agent} has listed actions, among which a server cannot draw; play this world with the "
                "policy's own seat."
            )
        self.send_weights()
        prompts = [self.policy.encode(view.agent, view.role, view.observation) for view in views]
        answers = _transport.run(self._ask(prompts, [_seed(view) % _SEEDS for view in views]))
        acts = []
        for answer in answers:
            tokens, logp = _read(answer, self.policy.codec.end)
            ended = tokens[-1] == self.policy.codec.end
            notes = {"policy": self.name, TOKENS: tokens, LOGP: logp, ENDED: ended}
            acts.append(Act(self.policy.codec.text(tokens[:-1] if ended else tokens), notes))
        return acts

    def send_weights(self) -> None:
        """Write the weights and have the server load them, unless it has those of now."""
        stamp = tuple(each._version for each in self.policy.parameters().values())
        if stamp == self._stamp:
            return
        folder = self.folder / f"{self.name}-{self.exports}"
        folder.mkdir(parents=True, exist_ok=True)
        if self._reload is not None:
            self.policy.network.model.save_pretrained(folder)
            self.model = self._reload(folder)
        else:
            export_adapter(self.policy, folder)
            _transport.run(
                self._post("load_lora_adapter", {"lora_name": folder.name, "lora_path": str(folder.resolve())})
            )
            if self._before is not None:
                _transport.run(self._post("unload_lora_adapter", {"lora_name": self._before.name}))
            self.model = folder.name
        if self._before is not None:
            shutil.rmtree(self._before, ignore_errors=True)
        self._before = folder
        self._stamp = stamp
        self.exports += 1

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        """Post where the answer is text."""
        async with httpx.AsyncClient(timeout=120.0, headers=self._transport._client.headers) as client:
            response = await client.post(f"{self._base}/{path}", json=body)
        if not response.is_success:
            raise ModelError(f"{self._base}/{path}: the server does not load the weights (HTTP {response.status_code}: "
                             f"{response.text[:200]}).")  # fmt: skip

    async def _ask(self, prompts: Sequence[tuple[int, ...]], seeds: Sequence[int]) -> list[dict[str, Any]]:
        policy = self.policy
        common = {
            "model": self.model, "max_tokens": policy.max_tokens, "temperature": policy.temperature, "top_p": 1.0,
            "logprobs": 0, "return_token_ids": True, "stop_token_ids": [policy.codec.end], "skip_special_tokens": False,
        }  # fmt: skip
        jobs = [
            self._transport.send(
                f"{self._base}/completions", {**common, "prompt": list(prompt), "seed": seed}, expect="choices"
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        return list(await asyncio.gather(*jobs))


def export_adapter(policy: TokenPolicy, folder: str | Path) -> None:
    """Write a policy's adapter as peft writes one, so that peft and vLLM load it; safetensors and JSON.

    Raises:
        UserError: If the policy has no adapter.
    """
    name, folder = policy.adapter, Path(folder)
    if name is None:
        raise UserError("the policy has no adapter; write its model with policy.network.model.save_pretrained.")
    from rolecraft.learning.policy._adapters import _layers

    layers = _layers(policy.network.model)
    paths = {id(module): path for path, module in policy.network.model.named_modules()}
    first = layers[0]
    tensors = {}
    for layer in layers:
        for part in ("lora_A", "lora_B"):
            weight = getattr(layer, part)[name].weight
            tensors[f"base_model.model.{paths[id(layer)]}.{part}.weight"] = weight.detach().cpu().contiguous()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": policy.base,
        "r": first.r[name],
        "lora_alpha": first.lora_alpha[name],
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({paths[id(layer)].rpartition(".")[2] for layer in layers}),
        "inference_mode": True,
    }
    blocks = sorted({int(part) for layer in layers for part in paths[id(layer)].split(".") if part.isdecimal()})
    if len(blocks) < policy.network.sites:
        config["layers_to_transform"] = blocks
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _read(answer: dict[str, Any], end: int) -> tuple[list[int], list[float]]:
    """Return the tokens of an answer and their log-probabilities."""
    choice = answer["choices"][0]
    tokens, logp = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
    if not tokens or not logp or len(tokens) != len(logp):
        raise ModelError(
            "the server's answer has no token_ids with a log-probability each; training needs a server that knows "
            "return_token_ids and logprobs, such as vLLM."
        )
    if choice.get("finish_reason") == "stop" and tokens[-1] != end:
        raise ModelError(
            f"the server ended a reply at token {tokens[-1]}, the policy's end is {end}: another model or tokenizer?"
        )
    values = [float(each) for each in logp]
    if not torch.tensor(values).isfinite().all():
        raise ModelError("the server's answer has a log-probability that is not finite.")
    return [int(token) for token in tokens], values
