"""A small OpenAI-compatible server with faults on order; `python fake_server.py PORT LOG DELAY` runs it alone."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = tuple[int, dict[str, str], Any]
"""Status, headers and body (a string is sent as it is)."""


def completion(text: str | None, finish: str = "stop", usage: bool = True, **message: Any) -> Answer:
    said = {"role": "assistant", "content": text, **message}
    body: dict[str, Any] = {"choices": [{"index": 0, "message": said, "finish_reason": finish}]}
    if usage:
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": 10}
    return 200, {}, body


def error(status: int, message: str, code: str = "", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, named, {"error": {"message": message, "code": code}}


class FakeServer:
    """Answers chats with `answer(request body, count so far)`, by default with an echo, and records everything."""

    def __init__(
        self,
        answer: Callable[[dict[str, Any], int], Answer] | None = None,
        listing: Any = ({"id": "m", "owned_by": "tests", "created": 7},),
        port: int = 0,
        routes: dict[str, Callable[[dict[str, Any]], Answer]] | None = None,
    ) -> None:
        self.answer = answer or (lambda body, count: completion(f"echo {body['messages'][-1]['content']}"))
        self.listing = listing
        self.routes = routes or {}
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.running = self.most_running = 0
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                found = self.path == "/v1/models" and fake.listing is not None
                self._send((200, {}, {"data": list(fake.listing)}) if found else error(404, "no such path"))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path in fake.routes:
                    self._send(fake.routes[self.path](body))
                elif self.path == "/v1/chat/completions":
                    self._send(fake.record(body, dict(self.headers)))
                else:
                    self._send(error(404, "no such path"))

            def _send(self, answer: Answer) -> None:
                status, headers, body = answer
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

        self._server = Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def record(self, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        with self._lock:
            self.bodies.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            self.times.append(time.monotonic())
            count = len(self.bodies)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            return self.answer(body, count)
        finally:
            with self._lock:
                self.running -= 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def main(port: int, log: Path, delay: float) -> None:
    """Echo after `delay` seconds; each answered message is a line of `log`, written before the answer is sent."""

    def answer(body: dict[str, Any], count: int) -> Answer:
        time.sleep(delay)
        with log.open("a") as file:
            file.write(body["messages"][-1]["content"] + "\n")
        return completion(f"echo {body['messages'][-1]['content']}")

    with FakeServer(answer, port=port):
        threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
