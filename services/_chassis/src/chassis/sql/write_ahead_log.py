"""The journal mode of SQLite files: with a write-ahead log (WAL), readers and the writer do not wait for each other."""

import sqlite3
import time
from contextlib import closing

_WAIT_SECONDS = 4
_RETRY_SECONDS = 0.01


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. Waits for processes that start at the same moment: SQLite itself does not, here."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # The low byte is the primary code: the log may be under recovery.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return
