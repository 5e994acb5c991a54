"""What all tests share."""

import os
import signal
import sys

import pytest

from rolecraft._cli import main

# Tiny models gain nothing from a second thread, and lose much when the cores are shared. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A suite started in the background inherits an ignored SIGINT, and with it every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
