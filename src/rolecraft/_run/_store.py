"""The run store: a directory that can be killed, resumed, read while it runs, copied, and read again years later."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rolecraft._files import write_atomic
from rolecraft._run._keys import plain
from rolecraft._run._lock import LOCK, hold, holder
from rolecraft._run._record import config_hash, differences, machine, new_record, timestamp, versions
from rolecraft.errors import RolecraftError, RunMismatchError, UserError

VOLATILE = frozenset({"budget", "concurrency", "dry_run", "out", "record", "resume", "workers"})
"""Fields that change how fast or where a run is done, not what it computes; they may differ on resuming."""

RECORD, DATABASE = "run.json", "run.db"

last_run: Path | None = None
"""Directory of the run this process opened last, not counting runs within runs: an interrupted command names it."""
_open_stores = 0

SCHEMA = """
CREATE TABLE IF NOT EXISTS units (
    stage TEXT NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL, seconds REAL, created REAL NOT NULL,
    UNIQUE (stage, key)
);
CREATE TABLE IF NOT EXISTS timings (stage TEXT PRIMARY KEY, seconds REAL NOT NULL);
"""


class RunView:
    """A run directory as its readers see it; made by `RunStore.read`, and safe while the run is going on."""

    def __init__(self, directory: Path, database: sqlite3.Connection, record: dict[str, Any]) -> None:
        self.directory = directory
        self.record = record
        """The content of `run.json`."""
        self._database = database
        self._lock = threading.RLock()

    @property
    def id(self) -> str:
        """Identity of the run, unique over runs."""
        return str(self.record["id"])

    @property
    def kind(self) -> str:
        """What kind of run it is, such as `screen`."""
        return str(self.record["kind"])

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, as JSON holds it."""
        return dict(self.record["config"])

    @property
    def holder(self) -> int | None:
        """Process id of the process that is working on this run now; None when nobody is."""
        return holder(self.directory)

    def get(self, stage: str, key: str) -> Any:
        """Return one row, or None."""
        found = self._query("SELECT row FROM units WHERE stage = ? AND key = ?", stage, key)
        return json.loads(found[0][0]) if found else None

    def rows(self, stage: str) -> dict[str, Any]:
        """Return the rows of a stage by key, in the order they were written."""
        return {
            key: json.loads(row)
            for key, row in self._query("SELECT key, row FROM units WHERE stage = ? ORDER BY rowid", stage)
        }

    def count(self, stage: str) -> int:
        """Return the number of rows of a stage."""
        return int(self._query("SELECT count(*) FROM units WHERE stage = ?", stage)[0][0])

    def missing(self, stage: str, keys: Iterable[str]) -> list[str]:
        """Return those of `keys` that have no row yet, in their order and each once."""
        done = {key for (key,) in self._query("SELECT key FROM units WHERE stage = ?", stage)}
        return [key for key in dict.fromkeys(keys) if key not in done]

    def timings(self) -> dict[str, dict[str, float]]:
        """Return `{stage: {"seconds": ..., "units": ...}}`: wall seconds summed over resumes, and rows."""
        seconds = dict(self._query("SELECT stage, seconds FROM timings ORDER BY rowid"))
        units = dict(self._query("SELECT stage, count(*) FROM units GROUP BY stage ORDER BY min(rowid)"))
        return {
            stage: {"seconds": float(seconds.get(stage, 0.0)), "units": int(units.get(stage, 0))}
            for stage in dict.fromkeys([*units, *seconds])
        }

    def close(self) -> None:
        """Close the database."""
        with self._lock, self._speaking():
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _query(self, sql: str, *values: Any) -> list[Any]:
        with self._lock, self._speaking():
            return self._database.execute(sql, values).fetchall()

    def _speaking(self) -> Any:
        return _speaking(self.directory)


class RunStore(RunView):
    """A run directory as the one process that works on it sees it.

    Every row is committed as it is put: killing the process at any instant loses at most the unit in flight. (A power
    cut may lose the last moments too, but leaves the database whole.) Threads may share a store; worker processes
    return their rows to the process that holds it.

    Example:
        ```python
        with RunStore.open(Path("runs/first"), "screen", {"roles": ["pirate"], "seeds": [0]}) as store:
            for key in store.missing("answers", cells):
                with store.timed("answers"):
                    store.put("answers", key, {"answer": play(cells[key])})
        ```
    """

    def __init__(self, directory: Path, database: sqlite3.Connection, record: dict[str, Any], lock: int) -> None:
        super().__init__(directory, database, record)
        self._lock_file = lock
        self._timers: dict[str, float] = {}

    @classmethod
    def open(
        cls,
        directory: str | Path,
        kind: str,
        config: Mapping[str, Any],
        *,
        resume: bool = True,
        volatile: Iterable[str] = VOLATILE,
    ) -> RunStore:
        """Start a run in a directory, or go on with the one that is there.

        Args:
            directory: Made if it is not there.
            kind: What kind of run it is, such as `screen`.
            config: The resolved configuration; whatever decides what is computed, content hashes included.
            resume: False refuses a directory that holds rows.
            volatile: Fields of the configuration that may differ on resuming.

        Raises:
            RunMismatchError: If another process holds the run, the kind or a field of the configuration differs, rows
                are there and `resume` is False, or the directory holds something else.
            RolecraftError: If the disk is full or the database is damaged.
        """
        global last_run, _open_stores
        directory, volatile = Path(directory), frozenset(volatile)
        _refuse_foreign(directory)
        with _speaking(directory):
            directory.mkdir(parents=True, exist_ok=True)
            lock = hold(directory)
            database: sqlite3.Connection | None = None
            try:
                known = _read_record(directory) if (directory / RECORD).exists() else None
                if known and not (directory / DATABASE).exists():
                    raise RunMismatchError(
                        f"{directory}: {RECORD} is there, but {DATABASE} is missing; copy it back, "
                        "or start in a new directory."
                    )
                database = _connect(directory / DATABASE)
                database.executescript(SCHEMA)
                rows = int(database.execute("SELECT count(*) FROM units").fetchone()[0])
                record = new_record(kind, config, volatile)
                if known and rows:
                    record = _resumed(directory, known, record, rows, resume, volatile)
                write_atomic(directory / RECORD, json.dumps(record, indent=2, allow_nan=False) + "\n")
            except BaseException:
                if database:
                    database.close()
                os.close(lock)
                raise
        last_run = last_run if _open_stores else directory
        _open_stores += 1
        return cls(directory, database, record, lock)

    @staticmethod
    def read(directory: str | Path) -> RunView:
        """Open a run for reading; works while another process works on it, and on a copy without write permission.

        Raises:
            UserError: If the directory holds no run.
            RolecraftError: If the database is damaged.
        """
        directory = Path(directory)
        if not (directory / RECORD).exists() or not (directory / DATABASE).exists():
            raise UserError(
                f"{directory}: not a run directory (a run has {RECORD} and {DATABASE}).{_runs_nearby(directory)}"
            )
        with _speaking(directory):
            return RunView(directory, _connect(directory / DATABASE, read_only=True), _read_record(directory))

    def put(self, stage: str, key: str, row: Any, *, seconds: float | None = None) -> bool:
        """Store one row, committed on return; see `put_many`.

        Returns:
            False if the key had a row already: the first write wins.
        """
        return self.put_many(stage, {key: row}, seconds=seconds) == 1

    def put_many(self, stage: str, rows: Mapping[str, Any], *, seconds: float | None = None) -> int:
        """Store several rows in one transaction: all of them or none.

        Args:
            stage: Name of the stage of the run.
            rows: Key to row; a row is whatever JSON holds (numpy scalars and arrays are turned into numbers and lists).
            seconds: What the rows took together; shared equally.

        Returns:
            How many were new. A key that has a row keeps it: the first write wins.

        Raises:
            ValueError: If a row is not JSON, or holds NaN or an infinity (put None where a value is missing).
            RolecraftError: If the disk is full.
        """
        each = None if seconds is None else seconds / max(len(rows), 1)
        now = time.time()
        encoded = [(stage, key, _encode(stage, key, row), each, now) for key, row in rows.items()]
        with self._transaction():
            before = self._database.total_changes
            self._database.executemany("INSERT OR IGNORE INTO units VALUES (?, ?, ?, ?, ?)", encoded)
            new = self._database.total_changes - before
            self._save_timers()
        return new

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the wall seconds of a block to a stage; saved with every row, so that a killed run knows its time."""
        with self._lock:
            self._timers[stage] = time.perf_counter()
        try:
            yield
        finally:
            with self._transaction():
                self._save_timers()
                self._timers.pop(stage, None)

    def close(self) -> None:
        """Close the database and let the next process in."""
        global _open_stores
        super().close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1
            _open_stores -= 1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, self._speaking():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _save_timers(self) -> None:
        now = time.perf_counter()
        for stage, since in self._timers.items():
            self._database.execute(
                "INSERT INTO timings VALUES (?, ?) "
                "ON CONFLICT (stage) DO UPDATE SET seconds = seconds + excluded.seconds",
                (stage, now - since),
            )
            self._timers[stage] = now


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    name = path.resolve().as_uri()
    if read_only:
        # Without write permission SQLite cannot make its shared-memory file; a finished run needs none.
        finished = not path.with_name(path.name + "-wal").exists() and not os.access(path.parent, os.W_OK)
        name += "?mode=ro" + ("&immutable=1" if finished else "")
    database = sqlite3.connect(name, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    if not read_only:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
    return database


def _refuse_foreign(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise RunMismatchError(f"{directory}: is a file; a run needs a directory of its own.")
    if not directory.exists() or (directory / RECORD).exists():
        return
    own = (LOCK, DATABASE, f".{RECORD}.")
    foreign = sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith(own))
    if foreign:
        raise RunMismatchError(
            f"{directory}: holds no run but other files ({', '.join(foreign[:3])}); choose a new or an empty directory."
        )


def _read_record(directory: Path) -> dict[str, Any]:
    try:
        record = json.loads((directory / RECORD).read_text())
        if not {"kind", "id", "config", "config_hash"} <= set(record):
            raise ValueError("fields are missing")
    except ValueError as error:
        raise RunMismatchError(
            f"{directory / RECORD}: damaged ({error}); copy it back, or start in a new directory."
        ) from None
    return dict(record)


def _resumed(
    directory: Path, known: dict[str, Any], asked: dict[str, Any], rows: int, resume: bool, volatile: frozenset[str]
) -> dict[str, Any]:
    """Return the record of the run that goes on, or refuse."""
    if not resume:
        raise RunMismatchError(
            f"{directory}: holds a run with {rows} rows; go on with it by --resume, or choose another --out."
        )
    if known["kind"] != asked["kind"]:
        raise RunMismatchError(
            f"{directory}: holds a run of kind {known['kind']!r}, expected {asked['kind']!r}; choose another --out."
        )
    if config_hash(known["config"], volatile) != asked["config_hash"]:
        changed = [
            f"  {name}: the run has {json.dumps(old)}, you gave {json.dumps(new)}"
            for name, old, new in differences(known["config"], asked["config"])
            if name.split(".")[0] not in volatile
        ]
        raise RunMismatchError(
            f"{directory}: was made with another configuration, and rows of both must not mix:\n"
            + "\n".join(changed)
            + "\nGive the same values to resume, or choose another --out."
        )
    session = {"at": timestamp(), "versions": versions(), "machine": machine()}
    return {**known, "config": asked["config"], "resumed": [*known.get("resumed", []), session]}


def _runs_nearby(directory: Path) -> str:
    near = sorted(path.parent.name for path in directory.glob(f"*/{RECORD}")) if directory.is_dir() else []
    return f" Runs in it: {', '.join(near[-5:])}." if near else ""


def _encode(stage: str, key: str, row: Any) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"stage {stage!r}, row {key!r}: {error}; a row holds what JSON holds, and None for a missing value."
        ) from None


@contextmanager
def _speaking(directory: Path) -> Iterator[None]:
    """Turn the failures of disk and database into messages that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise RolecraftError(f"{directory / DATABASE}: {_explain(error)}") from error
    except OSError as error:
        raise RolecraftError(
            f"{error.filename or directory}: {error.strerror}; mend it and run again: nothing stored is lost."
        ) from error


def _explain(error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text:
        return "the disk is full. Everything stored so far is safe; free some space and run again with --resume."
    if "not a database" in text or "malformed" in text:
        return (
            f"the database is damaged ({text}). Copy it back from a backup, or save what can be read with "
            "`sqlite3 run.db .recover`, or start again in a new directory."
        )
    if "readonly" in text:
        return f"cannot be written ({text}); check the permissions of the directory."
    return f"{text}. Everything stored so far is safe; run again with --resume."
