"""Requests to an OpenAI-compatible server: bounded, retried, and failing with messages that say what to do."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from rolecraft.errors import ModelError, ServerError

_BUSY = frozenset({408, 409, 429})
_HOPELESS = frozenset({501, 505})
_LONGEST_WAIT = 30.0
"""Seconds between two tries, unless the server asks for more."""
_LONGEST_RETRY_AFTER = 600.0
_RESUME = "Every reply that came back is in the cache: run again (--resume) once it is up, and only the rest is asked."
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_T = TypeVar("_T")


class Refused(ModelError):
    """The server understood the request and turned it down."""

    def __init__(self, url: str, status: int, code: str, message: str) -> None:
        super().__init__(f"{url} refused the request (HTTP {status}): {message}")
        self.status, self.code, self.message = status, code, message


class Transport:
    """Sends JSON and reads JSON, at most `concurrency` requests at a time."""

    def __init__(
        self, key: str | None, *, url: httpx.URL, concurrency: int, timeout: float, retries: int, backoff: float
    ):
        self._retries, self._backoff, self._timeout = retries, backoff, timeout
        self._gate = asyncio.Semaphore(concurrency)
        self._held_until = 0.0
        self._met = False
        """Whether anything ever answered; until then a silent address is more likely wrong than restarting."""
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=min(10.0, timeout), pool=None),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            verify=url.scheme == "https",  # without TLS, certificates would be loaded (0.1 s) for nothing
            trust_env=url.host not in _LOOPBACK,  # a proxy cannot reach this machine's loopback
        )

    async def send(self, url: str, body: Any = None, *, expect: str, stop: asyncio.Event | None = None) -> Any:
        """POST `body`, or GET without one, until the server answers with a JSON object that holds `expect`.

        A full queue or a restarting server (408, 409, 429, 5xx, refused and broken connections, timeouts) is waited
        for with exponential backoff and jitter, or as long as `Retry-After` says, which then holds for all requests.

        Args:
            url: Where to.
            body: What to send.
            expect: Key without which an answer is broken.
            stop: Once set, nothing is tried again.

        Raises:
            Refused: At any other 4xx status.
            ServerError: If the retries are used up.
        """
        start, trouble, tries = time.monotonic(), "", 0
        while True:
            wait = self._backoff * 2**tries
            tries += 1
            try:
                async with self._gate:
                    await self._free()
                    response = await self._client.request("GET" if body is None else "POST", url, json=body)
            except httpx.TimeoutException:
                trouble = f"no answer within {self._timeout:g} s"
            except httpx.TransportError as error:
                trouble = str(error) or type(error).__name__
                if not self._met and tries > 1:
                    raise ServerError(f"no server answers at {url} ({trouble}): start it, or mend the URL.") from None
            else:
                self._met = True
                payload = _json(response)
                if response.is_success and isinstance(payload, dict) and payload.get(expect) is not None:
                    return payload
                code, message = _error(payload, response)
                trouble = f"HTTP {response.status_code}: {message}"
                if _final(response.status_code, code):
                    raise Refused(url, response.status_code, code, message)
                asked = _retry_after(response.headers)
                if asked > _LONGEST_RETRY_AFTER:
                    raise ServerError(f"{url} asks to come back in {asked:.0f} s ({trouble}). {_RESUME}")
                if asked:
                    self._held_until, wait = max(self._held_until, time.monotonic() + asked), 0.0
            if tries > self._retries or (stop and stop.is_set()):
                passed = time.monotonic() - start
                raise ServerError(f"{url} did not answer in {tries} tries over {passed:.0f} s: {trouble}. {_RESUME}")
            await asyncio.sleep(min(wait, _LONGEST_WAIT) * random.uniform(0.5, 1.0))

    async def _free(self) -> None:
        while (wait := self._held_until - time.monotonic()) > 0:
            await asyncio.sleep(wait + random.uniform(0.0, 0.1))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _final(status: int, code: str) -> bool:
    """Whether asking again is no use."""
    if code == "insufficient_quota":
        return True
    return (300 <= status < 500 and status not in _BUSY) or status in _HOPELESS


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _error(payload: Any, response: httpx.Response) -> tuple[str, str]:
    """Return the code and the message of an error, in any of the forms servers have for it."""
    error = payload.get("error", payload) if isinstance(payload, dict) else None
    if isinstance(error, dict):
        code = error.get("code") if isinstance(error.get("code"), str) else error.get("type")
        message = error.get("message") or error.get("detail")
        if message:
            return str(code or ""), str(message)[:500]
    elif error:
        return "", str(error)[:500]
    return "", " ".join(response.text.split())[:200] or response.reason_phrase


def _retry_after(headers: httpx.Headers) -> float:
    """Return the seconds that `retry-after-ms` or `Retry-After` (seconds or a date) asks for, else 0."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        given = headers.get(name, "")
        try:
            return max(0.0, float(given) * unit)
        except ValueError:
            pass
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return 0.0
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


_loop: asyncio.AbstractEventLoop | None = None
_loop_lock = threading.Lock()


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on this process's background loop and wait for it; works inside a running loop too.

    Connections outlive a call that way. An interrupt cancels the coroutine.
    """
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="rolecraft-http", daemon=True).start()
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
