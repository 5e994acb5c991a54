"""What all tests share."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from rolecraft._cli import main

# Tiny models gain nothing from a second thread, and lose much when the cores are shared. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What JAX compiled once, no other test, worker, process or later run of the tests compiles again.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# A third off the time of compiling; a flag of the jaxlib in constraints.txt.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# A suite started in the background inherits an ignored SIGINT, and with it every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over modules and tests: looking through them took a third of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def rolecraft(monkeypatch, capsys):
    """Run the command line here; return exit code, stdout and stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rolecraft", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return call
