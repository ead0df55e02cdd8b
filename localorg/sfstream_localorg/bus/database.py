"""SQLite database of the bus, the schemas and the topics."""

from __future__ import annotations

import sqlite3
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS event (
    position INTEGER PRIMARY KEY, published_at REAL NOT NULL, frame BLOB);
CREATE TABLE IF NOT EXISTS topic_number (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS topic_event (
    topic INTEGER NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (topic, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS expired (position INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS floor (topic TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS schema (
    schema_id TEXT PRIMARY KEY, name TEXT NOT NULL, json TEXT NOT NULL, registration INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS topic (name TEXT PRIMARY KEY, definition TEXT NOT NULL);
"""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the database and create missing tables. Committed changes survive a killed process."""
    connection = sqlite3.connect(path, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA mmap_size=1073741824")
    connection.executescript(_TABLES)
    return connection
