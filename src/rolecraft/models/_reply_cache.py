"""What a server answered, kept by content, so that nothing is asked or paid for twice."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rolecraft.errors import RolecraftError


class ReplyCache:
    """Rows by key, in an SQLite file that several processes may share, or in memory.

    Each row is committed as it comes, so that a killed process loses none.

    Raises:
        RolecraftError: Also by its methods, if the file cannot be read or written (no rights, disk full, damaged).
    """

    def __init__(self, path: str | Path | None = None) -> None:
        """Open or create the cache.

        Args:
            path: The file; None keeps the rows in memory.
        """
        self._where = str(path or ":memory:")
        self._lock = threading.Lock()
        try:
            if path:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._where, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, row TEXT NOT NULL)")
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from None

    def find(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the rows of those keys that are known."""
        found = {}
        with self._lock:
            try:
                for key in keys:
                    hit = self._database.execute("SELECT row FROM replies WHERE key = ?", (key,)).fetchone()
                    if hit:
                        found[key] = json.loads(hit[0])
            except sqlite3.Error as error:
                raise self._explained(error) from None
        return found

    def put(self, key: str, row: Any) -> None:
        """Keep a row; one that is there already stays."""
        with self._lock:
            try:
                self._database.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, json.dumps(row)))
            except sqlite3.Error as error:
                raise self._explained(error) from None

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _explained(self, error: Exception) -> RolecraftError:
        return RolecraftError(
            f"the cache of replies {self._where}: {error}. What is in it stays; mend the cause (a full disk, missing "
            "rights; delete the file if it is damaged) and run again."
        )
