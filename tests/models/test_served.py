from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft._run import Budget, Meter
from rolecraft.conditioning import Intervention, Steering
from rolecraft.errors import BudgetExceededError, ModelError, RolecraftError, ServerError, UserError
from rolecraft.models import LanguageModel, Sampling, ServedModel, chat
from tests.models.fake_server import FakeServer, completion, error

S = Sampling(max_tokens=8)


def model(server: FakeServer, **options: Any) -> ServedModel:
    return ServedModel("m", server.url, **{"backoff": 0.01, "retries": 3, **options})


def numbered(n: int) -> list[Any]:
    return [chat(str(i)) for i in range(n)]


@pytest.fixture
def echo() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def test_sends_what_was_asked_and_returns_it_in_order(echo: FakeServer) -> None:
    served = model(echo)
    assert isinstance(served, LanguageModel)
    replies = served.generate(numbered(20), Sampling(8, 0.3, 0.9), seeds=range(20))
    assert [r.text for r in replies] == [f"echo {i}" for i in range(20)]
    assert {(r.finish, r.prompt_tokens, r.tokens) for r in replies} == {("stop", 100, 10)}
    body = next(body for body in echo.bodies if body["messages"][-1]["content"] == "7")
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": ""}, {"role": "user", "content": "7"}],
        "max_tokens": 8,
        "temperature": 0.3,
        "top_p": 0.9,
        "seed": 7,
    }


def test_large_seeds_fit_every_server_and_stay_apart_in_the_cache(echo: FakeServer) -> None:
    large = 2**62 + 5
    model(echo).generate([chat("x")] * 2, S, seeds=[large, large % (2**31 - 1)])
    assert len(echo.bodies) == 2
    assert {body["seed"] for body in echo.bodies} == {large % (2**31 - 1)}


@pytest.mark.parametrize("owner", ["vllm", "llamacpp", "sglang"])
def test_switches_off_the_cuts_that_a_server_would_add(owner: str) -> None:
    with FakeServer(listing=[{"id": "m", "owned_by": owner}]) as server:
        model(server).generate([chat("x")], S)
        assert server.bodies[0]["top_k"] == 0
        assert server.bodies[0]["min_p"] == 0


def test_concurrency_is_bounded_and_used() -> None:
    def slow(body: dict[str, Any], count: int) -> Any:
        time.sleep(0.03)
        return completion("yes")

    with FakeServer(slow) as server:
        served = model(server, concurrency=3)
        threads = [threading.Thread(target=served.generate, args=(numbered(n), S)) for n in (12, 14)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.most_running == 3


def test_identical_rows_are_asked_once_and_every_part_of_the_key_counts(echo: FakeServer) -> None:
    served = model(echo)
    assert len(served.generate([chat("x")] * 5, S)) == 5
    served.generate([chat("x")], S)
    assert len(echo.bodies) == 1
    served.generate([chat("x")], S, seeds=[1])
    served.generate([chat("x")], Sampling(max_tokens=9))
    served.generate([chat("x", system=None)], S)
    assert len(echo.bodies) == 4
    assert served.meter.calls == 4
    model(echo).generate([chat("x")], S)
    assert len(echo.bodies) == 5  # another model in memory knows nothing


def test_a_cache_file_outlives_the_model_but_not_a_change_of_weights_or_request(tmp_path: Path) -> None:
    file = tmp_path / "new" / "cache.db"
    with FakeServer() as server:
        model(server, cache=file).generate(numbered(3), S)
        again = model(server, cache=file)
        assert [r.text for r in again.generate(numbered(3), S)] == ["echo 0", "echo 1", "echo 2"]
        assert len(server.bodies) == 3
        assert again.meter.calls == 0
        model(server, cache=file, extra={"thinking": False}).generate(numbered(3), S)
        assert server.bodies[-1]["thinking"] is False
        assert len(server.bodies) == 6
        server.listing = [{"id": "m", "owned_by": "tests", "created": 8}]
        model(server, cache=file).generate(numbered(3), S)
        assert len(server.bodies) == 9


def test_an_unusable_cache_file_is_named(tmp_path: Path, echo: FakeServer) -> None:
    (tmp_path / "bad.db").write_text("not a database at all, but long enough to have a header" * 9)
    with pytest.raises(RolecraftError, match=r"bad\.db.*not a database"):
        model(echo, cache=tmp_path / "bad.db")


@pytest.mark.parametrize(
    "trouble",
    [
        error(429, "slow down"),
        error(408, "timeout"),
        error(500, "oops"),
        error(503, "loading model"),
        (200, {}, "<html>not json</html>"),
        (200, {}, {"error": {"message": "upstream failed"}}),
    ],
    ids=["429", "408", "500", "503", "html", "error-in-200"],
)
def test_passing_troubles_are_retried(trouble: Any) -> None:
    with FakeServer(lambda body, count: trouble if count < 3 else completion("yes")) as server:
        assert model(server).generate([chat("x")], S)[0].text == "yes"
        assert len(server.bodies) == 3


def test_retries_end_in_an_error_that_says_how_to_go_on() -> None:
    with FakeServer(lambda body, count: error(503, "loading model")) as server:
        with pytest.raises(ServerError, match=r"4 tries.*loading model.*--resume"):
            model(server).generate([chat("x")], S)
        assert len(server.bodies) == 4


def test_backoff_grows() -> None:
    with FakeServer(lambda body, count: error(500, "oops")) as server:
        with pytest.raises(ServerError):
            model(server, backoff=0.1).generate([chat("x")], S)
        gaps = np.diff(server.times)
        assert all(low <= gap for low, gap in zip((0.05, 0.1, 0.2), gaps, strict=True))


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("Retry-After", lambda: "0.4", 0.4),
        ("retry-after-ms", lambda: "300", 0.3),
        ("Retry-After", lambda: formatdate(time.time() + 2, usegmt=True), 0.8),
    ],
    ids=["seconds", "milliseconds", "date"],
)
def test_retry_after_is_honoured(name: str, value: Any, least: float) -> None:
    def answer(body: dict[str, Any], count: int) -> Any:
        return error(429, "wait", **{name: value()}) if count == 1 else completion("yes")

    with FakeServer(answer) as server:
        assert model(server).generate([chat("x")], S)[0].text == "yes"
        assert least <= server.times[1] - server.times[0] < least + 2


def test_retry_after_holds_for_all_requests() -> None:
    def answer(body: dict[str, Any], count: int) -> Any:
        return error(429, "wait", retry_after="0.5") if count == 1 else completion("yes")

    with FakeServer(answer) as server:
        model(server, concurrency=1).generate(numbered(4), S)
        assert min(server.times[1:]) - server.times[0] >= 0.5


def test_a_server_that_wants_hours_ends_the_run() -> None:
    with FakeServer(lambda body, count: error(429, "daily limit", retry_after="7200")) as server:
        with pytest.raises(ServerError, match=r"7200 s.*daily limit"):
            model(server).generate([chat("x")], S)
        assert len(server.bodies) == 1


def test_a_slow_server_times_out_and_is_asked_again() -> None:
    def answer(body: dict[str, Any], count: int) -> Any:
        time.sleep(0.6 if count == 1 else 0)
        return completion("yes")

    with FakeServer(answer) as server:
        assert model(server, timeout=0.2).generate([chat("x")], S)[0].text == "yes"
        assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error(401, "bad key"), r"bad key.*OPENAI_API_KEY"),
        (error(404, "no model m"), r"no model m.*Did you mean 'm2'\? The server lists: m2, other"),
        (error(400, "unknown field top_p"), r"HTTP 400\): unknown field top_p"),
        ((422, {}, {"detail": "temperature too high"}), "temperature too high"),
        (error(429, "pay first", "insufficient_quota"), "pay first"),
    ],
    ids=["401", "404", "400", "422", "quota"],
)
def test_refusals_of_the_request_itself_are_not_retried(answer: Any, told: str) -> None:
    listing = [{"id": "m2", "owned_by": "x"}, {"id": "other", "owned_by": "x"}]
    with FakeServer(lambda body, count: answer, listing=listing) as server:
        with pytest.raises(ModelError, match=told) as caught:
            model(server, concurrency=1).generate(numbered(5), S)
        assert not isinstance(caught.value, ServerError)
        assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (completion(""), "empty"),
        (completion(None), "empty"),
        (completion("half", "content_filter"), "content_filter"),
        (completion(None, refusal="I won't"), "refused: I won't"),
        (completion(None, "length", reasoning_content="hm"), "thinking"),
        ((200, {}, {"choices": []}), "None"),
        (error(400, "maximum context length is 512 tokens"), "maximum context"),
        (error(400, "flagged", "content_filter"), "flagged"),
    ],
    ids=["empty", "null", "filter", "refusal", "reasoning", "no-choice", "context", "filter-400"],
)
def test_one_bad_row_is_an_error_row_which_is_asked_again_next_time(answer: Any, note: str) -> None:
    def reply(body: dict[str, Any], count: int) -> Any:
        return answer if body["messages"][-1]["content"] == "1" else completion("fine")

    with FakeServer(reply) as server:
        served = model(server)
        rows = served.generate(numbered(3), S)
        assert [(r.text, r.finish) for r in rows] == [("fine", "stop"), ("", "error"), ("fine", "stop")]
        assert note in rows[1].note
        served.generate(numbered(3), S)
        assert len(server.bodies) == 4


def test_length_is_reported() -> None:
    with FakeServer(lambda body, count: completion("cut", "length")) as server:
        assert model(server).generate([chat("x")], S)[0].finish == "length"


def test_meter_counts_tokens_and_money(echo: FakeServer) -> None:
    served = model(echo, prices=(2.0, 10.0))
    served.generate(numbered(5), S)
    meter = served.meter
    assert (meter.calls, meter.prompt_tokens, meter.new_tokens) == (5, 500, 50)
    assert meter.cost == pytest.approx((500 * 2 + 50 * 10) / 1e6)


def test_unreported_usage_is_estimated() -> None:
    with FakeServer(lambda body, count: completion("x" * 40, usage=False)) as server:
        served = model(server)
        assert served.generate([chat("y" * 80)], S)[0].tokens == 10
        assert (served.meter.prompt_tokens, served.meter.new_tokens) == (20, 10)


def test_a_budget_stops_the_run_and_what_came_back_is_kept(echo: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "cache.db"
    served = model(echo, meter=Meter(Budget(tokens=550)), concurrency=2, cache=file)
    with pytest.raises(BudgetExceededError, match="550 tokens"):
        served.generate(numbered(30), S)
    spent = len(echo.bodies)
    assert 5 <= spent <= 6  # five reach the budget, one more may be under way
    with pytest.raises(BudgetExceededError):
        served.generate(numbered(30), S)
    assert len(echo.bodies) == spent
    model(echo, cache=file).generate(numbered(30), S)
    assert len(echo.bodies) == 30


def test_a_budget_in_money_needs_prices(echo: FakeServer) -> None:
    with pytest.raises(UserError, match="prices"):
        model(echo, meter=Meter(Budget(usd=1.0)))


def test_steering_is_refused_and_an_empty_steering_is_none(echo: FakeServer) -> None:
    served = model(echo)
    push = Intervention(np.ones(4, dtype=np.float32), 1.0, 0)
    with pytest.raises(UserError, match="GGUF"):
        served.generate([chat("x")], S, steering=Steering.uniform([push], 1))
    assert served.generate([chat("x")], S, steering=Steering.uniform([], 1))[0].text == "echo x"


def test_rows_must_match(echo: FakeServer) -> None:
    with pytest.raises(UserError, match="1 seeds for 2 chats"):
        model(echo).generate(numbered(2), S, seeds=[1])
    with pytest.raises(UserError, match="1 replies for 2 chats"):
        model(echo).logprobs(numbered(2), ["x"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "ftp://x/v1"}, "http"),
        ({"url": "http://user:secret@x/v1"}, "OPENAI_API_KEY"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_unusable_arguments_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        ServedModel("m", **{"url": "http://x/v1", **options})
    assert "secret" not in str(caught.value)


def test_the_key_is_sent_and_told_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-top-secret")
    caplog.set_level(logging.DEBUG)
    with FakeServer(lambda body, count: error(401, "bad key")) as server:
        served = model(server)
        with pytest.raises(ModelError) as caught:
            served.generate([chat("x")], S)
        assert server.headers[0]["authorization"] == "Bearer sk-top-secret"
    told = f"{caught.value!r} {vars(served)} {served!r} {caplog.text}"
    assert "sk-top-secret" not in told


def test_no_key_no_header(monkeypatch: pytest.MonkeyPatch, echo: FakeServer) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model(echo).generate([chat("x")], S)
    assert "authorization" not in echo.headers[0]


def test_a_proxy_is_not_asked_for_loopback(monkeypatch: pytest.MonkeyPatch, echo: FakeServer) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert model(echo).generate([chat("x")], S)[0].text == "echo x"


def test_works_inside_a_running_event_loop(echo: FakeServer) -> None:
    async def notebook() -> str:
        return model(echo).generate([chat("x")], S)[0].text

    assert asyncio.run(notebook()) == "echo x"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"owned_by": "vllm", "created": 1}, {"owned_by": "vllm", "created": 2}, True),
        ({"owned_by": "vllm", "root": "/a"}, {"owned_by": "vllm", "root": "/b"}, False),
        ({"owned_by": "openai", "created": 1}, {"owned_by": "openai", "created": 2}, False),
        ({"owned_by": "llamacpp", "meta": {"size": 1}}, {"owned_by": "llamacpp", "meta": {"size": 2}}, False),
        ({"owned_by": "llamacpp", "meta": {"n_ctx": 1}}, {"owned_by": "llamacpp", "meta": {"n_ctx": 2}}, True),
    ],
)
def test_revision_follows_the_weights(first: dict[str, Any], second: dict[str, Any], same: bool) -> None:
    seen = []
    for entry in (first, second):
        with FakeServer(listing=[{"id": "other"}, {"id": "m", **entry}]) as server:
            seen.append(model(server).revision)
    assert (seen[0] == seen[1]) == same
    assert len(seen[0]) == 20


@pytest.mark.parametrize("listing", [None, [], [{"id": "a"}, {"id": "b"}]], ids=["no-path", "empty", "others"])
def test_revision_is_unreported_where_the_server_tells_none(listing: Any) -> None:
    with FakeServer(listing=listing) as server:
        assert model(server).revision == "unreported"
        assert model(server).name == "openai:m"


def test_a_url_without_a_path_gets_v1(echo: FakeServer) -> None:
    served = ServedModel("m", echo.url.removesuffix("/v1") + "/")
    assert served.generate([chat("x")], S)[0].text == "echo x"


def test_an_address_where_nothing_listens_is_told_soon() -> None:
    start = time.monotonic()
    with pytest.raises(ServerError, match="no server answers"):
        ServedModel("m", f"http://127.0.0.1:{free_port()}/v1").generate([chat("x")], S)
    assert time.monotonic() - start < 3


def test_an_unknown_kind_of_server_cannot_score(echo: FakeServer) -> None:
    with pytest.raises(ModelError, match="cannot score given replies"):
        model(echo).logprobs([chat("x")], ["y"])


def test_vllm_scores_by_the_log_probabilities_of_its_prompt() -> None:
    """The fake answers in the form of vLLM's protocol: a token per word, the n-th token at -n."""

    def words(messages: list[dict[str, str]]) -> list[int]:
        return list(range(len(" ".join(m["content"] for m in messages).split()) + len(messages)))

    def tokenize(body: dict[str, Any]) -> Any:
        return 200, {}, {"tokens": words(body["messages"]) + [0] * body["add_generation_prompt"]}

    def answer(body: dict[str, Any], count: int) -> Any:
        assert body["continue_final_message"]
        assert not body["add_generation_prompt"]
        tokens = words(body["messages"])
        status, headers, reply = completion("x")
        reply["prompt_logprobs"] = [None, *({str(t): {"logprob": -float(t), "rank": 1}} for t in tokens[1:])]
        return status, headers, reply

    listing = [{"id": "m", "owned_by": "vllm"}]
    with FakeServer(answer, listing=listing, routes={"/tokenize": tokenize}) as server:
        served = model(server)
        got = served.logprobs([chat("one two", "sys"), chat("one two", "sys")], ["a b c", ""])
        assert got[0].tolist() == [-6.0, -7.0, -8.0]  # 3 words and 2 marks of the chat and its generation mark: 0..5
        assert got[0].dtype == np.float32
        assert got[1].shape == (0,)
        served.logprobs([chat("one two", "sys")], ["a b c"])
        assert len(server.bodies) == 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """The fake server as a process of its own, which can be killed."""

    def __init__(self, port: int, log: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fake_server.py")), str(port), str(log), "0.05"]
        )
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the fake server did not start")

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()


def test_a_server_killed_in_mid_run_loses_nothing_and_nothing_is_redone(tmp_path: Path) -> None:
    port, log, file = free_port(), tmp_path / "log", tmp_path / "cache.db"
    url = f"http://127.0.0.1:{port}/v1"
    server = Process(port, log)
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            ServedModel("m", url, concurrency=4, retries=2, backoff=0.05, cache=file).generate(numbered(40), S)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not log.exists() or len(log.read_text().splitlines()) < 12:
        time.sleep(0.01)
    server.kill()
    thread.join(timeout=20)
    assert isinstance(outcome[0], ServerError)
    assert "--resume" in str(outcome[0])
    before = log.read_text().splitlines()
    assert 12 <= len(before) < 40

    server = Process(port, log)
    try:
        replies = ServedModel("m", url, concurrency=4, cache=file).generate(numbered(40), S)
    finally:
        server.kill()
    assert [r.text for r in replies] == [f"echo {i}" for i in range(40)]
    after = log.read_text().splitlines()[len(before) :]
    # Only a reply that was logged by the server but died with it on the way may be asked again: 4 at most.
    assert len(set(before) & set(after)) <= 4
    assert set(before) | set(after) == {str(i) for i in range(40)}
    assert len(after) == len(set(after))


def test_a_server_that_comes_back_soon_is_waited_for(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    server = Process(port, log)
    served = ServedModel("m", f"http://127.0.0.1:{port}/v1", concurrency=4, retries=8, backoff=0.2)
    replies: list[Any] = []
    thread = threading.Thread(target=lambda: replies.extend(served.generate(numbered(24), S)))
    thread.start()
    while not log.exists() or len(log.read_text().splitlines()) < 6:
        time.sleep(0.01)
    server.kill()
    server = Process(port, log)
    try:
        thread.join(timeout=30)
    finally:
        server.kill()
    assert [r.text for r in replies] == [f"echo {i}" for i in range(24)]


def test_an_interrupt_stops_the_requests_and_keeps_what_came_back(tmp_path: Path) -> None:
    def slow(body: dict[str, Any], count: int) -> Any:
        time.sleep(0.1)
        return completion("yes")

    with FakeServer(slow) as server:
        timer = threading.Timer(0.55, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model(server, concurrency=1, cache=tmp_path / "c.db").generate(numbered(40), S)
        time.sleep(0.3)
        asked = len(server.bodies)
        assert asked < 20
        served = model(server, concurrency=8, cache=tmp_path / "c.db")
        served.generate(numbered(40), S)
        assert len(server.bodies) - asked in (40 - asked, 41 - asked)  # the one under way is asked again
