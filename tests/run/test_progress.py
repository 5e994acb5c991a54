import pytest

from rolecraft._run import Progress, _progress


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_now_and_then(clock, capsys):
    with Progress(100, "answers") as progress:
        for _ in range(40):
            clock[0] += 1
            progress.advance()
        assert progress.rate == 1
        assert progress.remaining == 60
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "answers: 15/100 (15 %), 1.0/s, 0:15 elapsed, 1:25 left",
        "answers: 30/100 (30 %), 1.0/s, 0:30 elapsed, 1:10 left",
        "answers: 40/100 (40 %), 1.0/s, 0:40 elapsed, 1:00 left",
    ]


def test_what_an_earlier_session_did_does_not_count_for_the_rate(clock, capsys):
    with Progress(100, "answers", done=50) as progress:
        assert progress.remaining is None
        clock[0] += 10
        progress.advance(1)
        assert progress.rate == pytest.approx(0.1)
        assert progress.remaining == pytest.approx(490)
    assert capsys.readouterr().err == "answers: 51/100 (51 %), 10.0 s each, 0:10 elapsed, 8:10 left\n"


def test_quiet_says_nothing_and_counts(clock, capsys):
    with Progress(2, "answers", quiet=True) as progress:
        clock[0] += 100
        progress.advance(2)
    assert progress.done == 2
    assert capsys.readouterr().err == ""


def test_nothing_to_do_is_complete(capsys):
    with Progress(0, "answers"):
        pass
    assert "answers: 0/0 (100 %)" in capsys.readouterr().err


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(4, "answers") as progress:
        progress.advance(4)
    captured = capsys.readouterr()
    assert "4/4" in captured.err
    assert captured.out == ""
