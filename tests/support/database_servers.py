"""Start and stop of database servers of any kind for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEADLINE = 120
"""Seconds for a server to start, and to stop."""


def unprivileged(user: str) -> tuple[list[str], pwd.struct_passwd]:
    """Return a command prefix that drops root privileges, and the user who then runs the server.

    Database servers refuse to run as root. If ``setpriv`` is installed, the server also ends when the tests are killed.

    :param user: user who runs the server if the tests run as root; ``nobody`` if this user does not exist.
    """
    setpriv = ["setpriv", "--pdeathsig", "QUIT"]
    if os.getuid() != 0:
        return setpriv if shutil.which("setpriv") else [], pwd.getpwuid(os.getuid())
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    owner = known.get(user) or known["nobody"]
    return [*setpriv, f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"], owner


def wait_until_ready(
    connect: Callable[[], Any], refused: type[Exception], process: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait until ``connect`` returns a connection, and close the connection.

    :param refused: exception that ``connect`` raises until the server is ready.
    :raises RuntimeError: with the server's log, if the server ends or is not ready after :data:`DEADLINE` seconds.
    """
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            connect().close()
            return
        except refused as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"The server did not start: {log.read_text(errors='replace')}") from error
            time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], how: signal.Signals, seconds: float) -> None:
    """Send a signal to a server, and kill it if it has not ended after ``seconds``."""
    if process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
