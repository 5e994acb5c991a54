"""`rolecraft simulate --workers ray://HOST:PORT` on a real cluster: what it finds, and what it says to a stranger."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.models import load_model
from rolecraft.simulate import read_episodes

pytestmark = pytest.mark.slow
MODEL = "scripted:role-player"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """Start a cluster with a token, as `ray start --head` does; yield its address and the environment to reach it."""
    pytest.importorskip("ray")
    port, client, dashboard = free_ports(3)
    known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:  # paths of its sockets must be short
        command = [
            str(Path(sys.executable).with_name("ray")), "start", "--head", "--block",
            "--node-ip-address=127.0.0.1", f"--port={port}",
            f"--ray-client-server-port={client}", f"--dashboard-port={dashboard}", "--num-cpus=1",
            "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}",
        ]  # fmt: skip
        ray = subprocess.Popen(
            command, env=os.environ | known, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            end = time.monotonic() + 90
            while not listens(client):
                assert ray.poll() is None, "ray start ended"
                assert time.monotonic() < end, "ray does not listen"
                time.sleep(0.2)
            time.sleep(5)  # it listens before it can serve a client
            yield f"ray://127.0.0.1:{client}", known
        finally:
            ray.send_signal(signal.SIGTERM)  # with --block it stops all that it has started
            try:
                ray.wait(30)
            finally:
                if ray.poll() is None:
                    os.killpg(ray.pid, signal.SIGKILL)


def listens(port: int) -> bool:
    with socket.socket() as knock:
        return knock.connect_ex(("127.0.0.1", port)) == 0


def simulate(study: Path, out: Path, workers: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rolecraft", "simulate", str(study), "--out", str(out), "--workers", workers]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=150, check=False)


def test_a_cluster_finds_what_one_worker_finds(cluster, write_lock, write_study, tmp_path):
    address, known = cluster
    model = load_model(MODEL)
    write_lock(model.name, model.revision)
    world = "{name: conversation, topic: cats, seats: 3, rounds: 2, order: simultaneous}"
    lines = "interventions: [{what: tell, text: look out, who: person-1, when: {step: 1}}]"
    study = write_study(lines, world=world, model=MODEL, episodes=4, together=1, max_tokens=12)
    for workers in ("1", address):
        done = simulate(study, tmp_path / workers[:3], workers, known)
        assert done.returncode == 0, done.stderr
    one, other = (RunStore.read(tmp_path / name) for name in ("1", "ray"))
    assert len(read_episodes(one)) == 8
    for stage in ("episodes", "steps", "failures"):
        assert dict(one.rows(stage)) == dict(other.rows(stage))


def test_a_cluster_with_a_token_that_is_not_given_is_told_apart(cluster, write_lock, write_study, tmp_path):
    model = load_model(MODEL)
    write_lock(model.name, model.revision)
    done = simulate(write_study(model=MODEL, episodes=1), tmp_path / "run", cluster[0], {"RAY_AUTH_MODE": "disabled"})
    assert done.returncode != 0
    assert "no Ray cluster answers at ray://127.0.0.1" in done.stderr
    assert "set RAY_AUTH_MODE=token if `ray start` said" in done.stderr.replace("\n", " ")
    assert "UserWarning" not in done.stderr
