"""ServedModel: a language model behind any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx
import numpy as np

from rolecraft._run import Meter, content_key
from rolecraft.errors import ModelError, RolecraftError, UserError, did_you_mean
from rolecraft.models import _transport
from rolecraft.models._base import Chat, Completion, FloatArray, Sampling
from rolecraft.models._dialect import Dialect
from rolecraft.models._reply_cache import ReplyCache

if TYPE_CHECKING:
    from rolecraft.conditioning import Steering

_SPEC = re.compile(r"(?P<name>.+?)@(?P<url>https?://.+)")
_ROW_TROUBLE = re.compile(
    r"context.{0,20}(length|size|window)|too long|content.?(filter|policy|management)", re.IGNORECASE
)
"""Refusals that concern one chat, not the whole run."""
_FINISH: dict[str, Literal["stop", "length"]] = {"stop": "stop", "length": "length"}


@dataclass
class _Unit:
    """One unit of work: when to give up, and what it has used so far."""

    stop: asyncio.Event
    calls: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0


_Job = Callable[[_Unit], Awaitable[dict[str, Any]]]
"""Does a unit of work, counts its usage and returns a JSON row."""


@dataclass
class _Batch:
    """Units of work under way, the rows so far, and the first error, which stops the rest."""

    waiting: list[tuple[str, _Job]]
    rows: dict[str, Any] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    error: RolecraftError | None = None


class ServedModel:
    """A model at an OpenAI-compatible base URL: vLLM, llama.cpp, SGLang, Ollama, or a hosted service.

    Requests run `concurrency` at a time, are retried while the server is busy or away, and every reply is kept in the
    cache at once, under a key of model, revision, chat, sampling and seed (not the address): identical rows are asked
    once, and a run that stopped for any reason asks only for what is missing.

    The model's identity is its name and its `revision`, so that a server may move to another address. The API key is
    read from the environment variable OPENAI_API_KEY, if set, and appears in no message and no record.
    """

    def __init__(
        self,
        model: str,
        url: str,
        *,
        concurrency: int = 8,
        timeout: float = 120.0,
        retries: int = 6,
        backoff: float = 0.5,
        cache: str | Path | None = None,
        meter: Meter | None = None,
        prices: tuple[float, float] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe the model; the server is contacted at first use.

        Args:
            model: Its name at the server.
            url: Base URL; one without a path gets `/v1`.
            concurrency: Most requests under way at a time.
            timeout: Seconds until a request without an answer is tried again.
            retries: Tries after the first, for each request.
            backoff: Seconds before the second try; doubled for each further one up to 30, with jitter.
            cache: SQLite file that keeps the replies; None keeps them in memory.
            meter: Counts calls, tokens and money, and holds the budget.
            prices: USD per million prompt tokens and per million new tokens.
            extra: Further fields of each chat request, such as
                `{"chat_template_kwargs": {"enable_thinking": False}}`; part of the cache's key.

        Raises:
            UserError: If the URL or a number cannot be used, or a budget in USD has no prices.
        """
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UserError(f"url must start with http:// or https:// and name a host, got {url!r}.")
        if parsed.userinfo:
            raise UserError("a URL with a password would end up in records; set the variable OPENAI_API_KEY instead.")
        if concurrency < 1 or retries < 0 or timeout <= 0 or backoff <= 0:
            raise UserError(
                "concurrency must be at least 1, retries at least 0, timeout and backoff above 0; got "
                f"{concurrency}, {retries}, {timeout} and {backoff}."
            )
        self.meter = meter or Meter()
        if self.meter.budget and self.meter.budget.usd is not None and prices is None:
            raise UserError("a budget in USD needs prices=(USD per million prompt tokens, USD per million new tokens).")
        path = parsed.path.rstrip("/") or "/v1"
        self._base = str(parsed.copy_with(path=path, query=None, fragment=None))
        self._root = self._base.removesuffix("/v1")
        self._model, self._prices, self._extra = model, prices or (0.0, 0.0), dict(extra or {})
        self._concurrency = concurrency
        self._cache = ReplyCache(cache)
        self._transport = _transport.Transport(
            os.environ.get("OPENAI_API_KEY"),
            url=parsed,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
        )
        self._dialect: Dialect | None = None

    @classmethod
    def parse(cls, spec: str, **options: Any) -> ServedModel:
        """Make a model of `NAME@URL`, the part of a model string behind `openai:`.

        Raises:
            UserError: If the string has another form, or as the constructor.
        """
        match = _SPEC.fullmatch(spec)
        if not match:
            raise UserError(f"openai:{spec}: expected openai:NAME@URL, such as openai:qwen@http://127.0.0.1:8000/v1.")
        return cls(match["name"], match["url"], **options)

    @property
    def name(self) -> str:
        """Model string without the address."""
        return f"openai:{self._model}"

    @property
    def revision(self) -> str:
        """Hash of what the server's `/models` reports of the weights; `unreported` where it reports nothing.

        Raises:
            ServerError: If the server does not answer.
        """
        return self._contact().revision

    def generate(
        self,
        chats: Sequence[Chat],
        sampling: Sampling,
        steering: Steering | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Reply to each chat, from the cache where it can.

        A refusal, an empty reply, a content filter or a chat that does not fit becomes a completion with finish
        `error`, which is not kept. Usage that a server does not report is counted as a token per four characters.
        Seeds are sent modulo 2**31 - 1; whether equal seeds give equal replies is up to the server.

        Raises:
            UserError: If the chats are steered, or there are not as many seeds as chats.
            BudgetExceededError: If the budget is reached; requests under way are waited for and kept.
            ServerError: If the server does not answer within the retries.
            ModelError: If it refuses the request as such: unknown model, no key, a field it does not know.
        """
        if steering is not None and any(steering.rows):
            raise UserError(
                f"{self.name}: a served model cannot be steered from here. Export the direction as a GGUF control "
                "vector (to_gguf) and start llama.cpp with it, or use local:."
            )
        seeds = [0] * len(chats) if seeds is None else seeds
        if len(seeds) != len(chats):
            raise UserError(f"expected one seed per chat, got {len(seeds)} seeds for {len(chats)} chats.")
        dialect = self._contact()
        identity = {**self._identity(dialect), "sampling": asdict(sampling), "extra": self._extra}
        keys, jobs = [], {}
        for chat, seed in zip(chats, seeds, strict=True):
            keys.append(content_key(kind="chat", **identity, chat=list(chat), seed=seed))
            jobs[keys[-1]] = self._reply_job(dialect, chat, sampling, seed)
        rows = self._collect(jobs)
        return [Completion(**rows[key]) for key in keys]

    def logprobs(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[FloatArray]:
        """Score each token of each reply given its chat, on servers that can: llama.cpp and vLLM.

        Raises:
            UserError: If there are not as many replies as chats.
            ModelError: If the server cannot score given replies, or as in `generate`.
        """
        if len(chats) != len(replies):
            raise UserError(f"expected one reply per chat, got {len(replies)} replies for {len(chats)} chats.")
        dialect = self._contact()
        identity = self._identity(dialect)
        keys, jobs = [], {}
        for chat, reply in zip(chats, replies, strict=True):
            keys.append(content_key(kind="score", **identity, chat=list(chat), reply=reply))
            jobs[keys[-1]] = self._score_job(dialect, chat, reply)
        rows = self._collect(jobs)
        return [np.array(rows[key]["logprobs"], dtype=np.float32) for key in keys]

    def close(self) -> None:
        """Close connections and cache."""
        _transport.run(self._transport.close())
        self._cache.close()

    def _identity(self, dialect: Dialect) -> dict[str, str]:
        return {"model": self._model, "revision": dialect.revision}

    def _contact(self) -> Dialect:
        """Ask the server what it serves, once."""
        if self._dialect is None:
            self._dialect = _transport.run(self._meet())
        return self._dialect

    async def _meet(self) -> Dialect:
        try:
            listing = (await self._transport.send(f"{self._base}/models", expect="data"))["data"]
        except _transport.Refused as refusal:
            if refusal.status in (401, 403):
                raise self._explained(refusal) from None
            listing = []
        return Dialect.of(self._model, listing)

    def _collect(self, jobs: Mapping[str, _Job]) -> dict[str, Any]:
        """Return the row of every job, from the cache or by doing it."""
        rows = self._cache.find(jobs)
        missing = [(key, job) for key, job in jobs.items() if key not in rows]
        return rows | _transport.run(self._work(missing)) if missing else rows

    async def _work(self, missing: list[tuple[str, _Job]]) -> dict[str, Any]:
        batch = _Batch(missing[::-1])
        await asyncio.gather(*(self._worker(batch) for _ in range(min(self._concurrency, len(missing)))))
        if batch.error:
            raise batch.error
        return batch.rows

    async def _worker(self, batch: _Batch) -> None:
        """Do one job after another; after an error anywhere, finish the one under way."""
        while batch.waiting and not batch.stop.is_set():
            key, job = batch.waiting.pop()
            unit = _Unit(batch.stop)
            try:
                self.meter.check()
                row = batch.rows[key] = await job(unit)
                if row.get("finish") != "error":
                    self._cache.put(key, row)
                self._charge(unit)
            except RolecraftError as error:
                batch.error = batch.error or error
                batch.stop.set()

    def _reply_job(self, dialect: Dialect, chat: Chat, sampling: Sampling, seed: int) -> _Job:
        async def job(unit: _Unit) -> dict[str, Any]:
            body = {
                "model": self._model,
                "messages": list(chat),
                "max_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "seed": seed % (2**31 - 1),
                **dialect.sampling,
                **self._extra,
            }
            try:
                return _row(await self._post(unit, "/v1/chat/completions", body, "choices"))
            except _transport.Refused as refusal:
                if _ROW_TROUBLE.search(f"{refusal.code} {refusal.message}"):
                    return {"text": "", "finish": "error", "note": refusal.message}
                raise self._explained(refusal) from None

        return job

    def _score_job(self, dialect: Dialect, chat: Chat, reply: str) -> _Job:
        async def job(unit: _Unit) -> dict[str, Any]:
            if not reply:
                return {"logprobs": []}

            async def post(path: str, body: dict[str, Any], expect: str) -> Any:
                return await self._post(unit, path, body, expect)

            try:
                return {"logprobs": await dialect.score(post, self._model, chat, reply)}
            except _transport.Refused as refusal:
                raise self._explained(refusal) from None

        return job

    async def _post(self, unit: _Unit, path: str, body: dict[str, Any], expect: str) -> Any:
        """Send one request and count what it used."""
        url = self._base + path.removeprefix("/v1") if path.startswith("/v1/") else self._root + path
        answer = await self._transport.send(url, body, expect=expect, stop=unit.stop)
        unit.calls += 1
        if expect == "choices":
            usage = answer.get("usage") or {}
            prompt = sum(len(message["content"]) for message in body["messages"])
            unit.prompt_tokens += usage.get("prompt_tokens") or prompt // 4
            unit.new_tokens += usage.get("completion_tokens") or len(_text(answer)) // 4
        return answer

    def _charge(self, unit: _Unit) -> None:
        cost = (unit.prompt_tokens * self._prices[0] + unit.new_tokens * self._prices[1]) / 1e6
        self.meter.add(unit.calls, unit.prompt_tokens, unit.new_tokens, cost)

    def _explained(self, refusal: _transport.Refused) -> ModelError:
        """Add what to do to the server's own message."""
        known = self._dialect.known if self._dialect else ()
        if refusal.status in (401, 403):
            mend = " Set the environment variable OPENAI_API_KEY to a key that may use this model."
        elif refusal.status == 404 and known:
            mend = f"{did_you_mean(self._model, known)} The server lists: {', '.join(known[:20])}."
        else:
            mend = ""
        return ModelError(f"{self.name}: {refusal}{mend}")


def _choice(answer: dict[str, Any]) -> dict[str, Any]:
    return answer["choices"][0] if answer["choices"] else {}


def _text(answer: dict[str, Any]) -> str:
    return (_choice(answer).get("message") or {}).get("content") or ""


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    """Turn a chat completion into the fields of a `Completion`."""
    choice, usage = _choice(answer), answer.get("usage") or {}
    message, finish = choice.get("message") or {}, choice.get("finish_reason")
    text = _text(answer)
    counts = {
        "prompt_tokens": usage.get("prompt_tokens") or 0,
        "tokens": usage.get("completion_tokens") or len(text) // 4,
    }
    if message.get("refusal"):
        note = f"the model refused: {message['refusal']}"
    elif finish not in _FINISH:
        note = f"the server ended the reply with {finish!r}"
    elif text.strip():
        return {"text": text, "finish": finish, **counts}
    elif message.get("reasoning_content") or message.get("reasoning"):
        note = "the reply holds reasoning alone; raise max_tokens or switch thinking off with extra="
    else:
        note = "the reply is empty"
    return {"text": "", "finish": "error", "note": note, **counts}
