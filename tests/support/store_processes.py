"""Process functions for tests of the table store: races, interrupted commits and concurrent upgrades."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from typing import Any

from sqlalchemy import event

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.replay_stores.table import TableReplayStore, schema
from airflow_provider_sfstream.replay_stores.table.engine import engine_for
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, Stream
from tests.support.replay_stores import run_at

DEADLINE = 200


@contextmanager
def processes(target: Any, arguments: list[tuple[Any, ...]]) -> Iterator[list[tuple[BaseProcess, Connection]]]:
    """Start one process for each tuple of arguments, with a pipe for its messages; kill all of them at the end."""
    spawn = multiprocessing.get_context("spawn")
    started: list[tuple[BaseProcess, Connection]] = []
    try:
        for values in arguments:
            ours, theirs = spawn.Pipe(duplex=False)
            process = spawn.Process(target=target, args=(theirs, *values))
            process.start()
            theirs.close()
            started.append((process, ours))
        yield started
    finally:
        for process, ours in started:
            process.kill()
            process.join()
            ours.close()


def receive(pipe: Connection) -> Any:
    """Receive the next message of a process; fail at the deadline."""
    assert pipe.poll(DEADLINE), "the process sent no message before the deadline"
    return pipe.recv()


def race(pipe: Connection, url: str, stream: Stream, worker: int, rounds: int, barrier: Barrier) -> None:
    """Advance ``rounds`` times from a position that all processes have read; send the rounds that this one won."""
    store = TableReplayStore(url)
    won = []
    for number in range(rounds):
        barrier.wait(DEADLINE)
        position = store.read(stream)
        run = run_at(number, map_index=worker)
        through = bytes([number + 1, worker])
        window = ReplayWindow(
            f"{number}-{worker}", "live", position.replay_id, through, 0, None, None, "file:///w", run
        )
        barrier.wait(DEADLINE)
        try:
            store.advance(stream, position, window)
        except PositionConflictError:
            continue
        won.append(number)
    store.close()
    pipe.send(won)


def hang_before_commit(pipe: Connection, url: str, stream: Stream, window: ReplayWindow) -> None:
    """Advance, but block right before the commit."""
    store = TableReplayStore(url)
    position = store.read(stream)

    def stop(connection: object) -> None:
        pipe.send("about to commit")
        time.sleep(DEADLINE)

    event.listen(store._engine, "commit", stop)
    store.advance(stream, position, window)


def upgrade_concurrently(pipe: Connection, url: str, barrier: Barrier) -> None:
    """Upgrade the schema at the same time as the other processes; send the revision or the error."""
    engine = engine_for(url)
    barrier.wait(DEADLINE)
    try:
        pipe.send(schema.upgrade(engine))
    except Exception as error:
        pipe.send(repr(error))
    engine.dispose()
