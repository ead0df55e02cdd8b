"""Service of a compose file as a process of this machine, with its command, environment and health check."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

import psutil

from tests.support.compose import Service
from tests.support.compose_rewriting import RewritePlan
from tests.support.database_servers import unprivileged
from tests.support.packages import POSTGRES

_HEALTH_CHECK_SECONDS = 240
_MARKER = "SFSTREAM_DEPLOYED_SERVICE"


class NativeService:
    """One service as a process of this machine.

    :param rewritten: replaces the addresses, ports and paths of the file by those of this machine.
    :param paths: folders on this machine, by path in the container.
    :param folder: folder for its home, its temporary files and its log.
    :param others: additional environment variables.
    """

    def __init__(
        self,
        service: Service,
        rewritten: RewritePlan,
        paths: Mapping[str, Path],
        folder: Path,
        others: Mapping[str, str],
    ) -> None:
        self.service = service
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self._folder, self._paths, self._rewritten = folder, paths, rewritten
        self._mark = f"{service.name}-{uuid4().hex}"
        self.home, temporary = folder / "home", folder / "tmp"
        for path in (self.home, temporary):
            path.mkdir(parents=True)
        self.environment = {
            "PATH": _path(),
            "HOME": str(self.home),
            "AIRFLOW_HOME": str(self.home),
            "HOSTNAME": socket.gethostname(),
            "LANG": "C.UTF-8",
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            _MARKER: self._mark,
            **others,
            "JAVA_TOOL_OPTIONS": f"{others.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={temporary}",
            **{name: rewritten(value) for name, value in service.environment.items()},
        }
        program, *arguments = service.command[2:] if service.command[0].endswith("dumb-init") else service.command
        self.command = [program, *map(rewritten, arguments)]
        if service.image.startswith("postgres:"):
            self._make_postgres(rewritten)

    def launch(self) -> None:
        """Start its command. Processes of an earlier start are not ended; call :meth:`kill` before."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.home,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Return whether its main process runs."""
        return self.process is not None and self.process.poll() is None

    def is_healthy(self) -> bool:
        """Run its health check once and return whether it passes."""
        check = self.service.healthcheck
        assert check is not None, f"{self.service.name} has no health check"
        program, *arguments = ("sh", "-c", check) if isinstance(check, str) else check
        with self.log.open("ab") as log:
            try:
                ended = subprocess.run(
                    [program, *map(self._rewritten, arguments)],
                    env=self.environment,
                    cwd=self.home,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    timeout=_HEALTH_CHECK_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
        return ended.returncode == 0 and self.is_running()

    def runs(self, argument: str) -> bool:
        """Return whether one of its processes has this command line argument."""
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                if argument in process.cmdline():
                    return True
        return False

    def kill(self) -> None:
        """Kill all its processes, as the end of its container does."""
        while found := self._processes():
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(found, timeout=60)
        if self.process is not None:
            self.process.wait(60)

    def end(self) -> None:
        """Send its stop signal, as ``docker compose stop`` does, and wait until its processes have ended."""
        if self.process is not None and self.is_running():
            self.process.send_signal(signal.SIGINT if self.service.image.startswith("postgres:") else signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        self.kill()

    def log_tail(self, characters: int = 3000) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def _processes(self) -> list[psutil.Process]:
        found = {}
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(psutil.Error):
                leader = psutil.Process(self.process.pid)
                found = {one.pid: one for one in (leader, *leader.children(recursive=True))}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(_MARKER) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = process
        return list(found.values())

    def _make_postgres(self, rewritten: RewritePlan) -> None:
        """Create a database cluster and run the init scripts on it, as the image's entrypoint does before it starts."""
        binaries = POSTGRES.find()
        assert binaries is not None, "no PostgreSQL server binaries"
        prefix, owner = unprivileged("postgres")
        data, scripts = (self._paths[path] for path in ("/var/lib/postgresql/data", "/docker-entrypoint-initdb.d"))
        sockets = self._paths["/var/run/postgresql"]
        password = self._folder / "password"
        password.write_text(self.environment["POSTGRES_PASSWORD"])
        for path in (data, sockets, password):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        user = self.environment["POSTGRES_USER"]

        def run(*command: str | Path) -> None:
            subprocess.run(
                [*prefix, *command], check=True, env=self.environment, cwd=data, timeout=120, stdout=subprocess.DEVNULL
            )

        run("initdb", "-D", data, "-U", user, "-A", "scram-sha-256", "--auth-local=trust", "--pwfile", password)
        port = rewritten("5432")
        settings = ["-c", f"port={port}", "-c", f"unix_socket_directories={sockets}"]
        self.environment |= {"PGHOST": str(sockets), "PGPORT": port}
        alone = " ".join([*settings, "-c listen_addresses=''"])
        run("pg_ctl", "-D", data, "-w", "-o", alone, "-l", sockets / "log", "start")
        try:
            for script in sorted(scripts.glob("*.sh")):
                run("bash", script)
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "fast", "stop")
        self.command = [*prefix, *self.command, "-D", str(data), *settings, "-c", "listen_addresses=127.0.0.1"]


def copy_edited(source: Path, target: Path, changed: Callable[[Path, str], str]) -> None:
    """Copy a mounted folder of the repository.

    :param changed: called with path and text of each file; returns the text of the copy.
    """
    for path in source.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(changed(path, path.read_text()))
            shutil.copymode(path, copy)


def _path() -> str:
    """Return the ``PATH`` of services: the commands of this Python, of PostgreSQL, then of the system."""
    binaries = POSTGRES.find()
    return os.pathsep.join(
        [str(Path(sys.executable).parent), *([str(binaries)] if binaries else []), os.environ["PATH"]]
    )
