"""The services of a compose file as processes of this machine, started, watched and restarted as Compose does."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.support.compose import Service, read_services
from tests.support.compose_rewriting import GRPC_OFFSET, Rewriting, free_ports
from tests.support.compose_service import NativeService, copied

_SECONDS = 900.0
_RESTART_SECONDS, _LONGEST_RESTART_SECONDS = 1.0, 30.0


class NativeDeployment:
    """The services of one profile. Named volumes and everything else are in one temporary folder.

    :param file: the compose file.
    :param variables: those of ``.env``.
    :param profile: which services to start.
    :param environment: variables that every service has besides.
    :param edited: changes the text of a mounted file, given its path, before it is rewritten.
    """

    def __init__(
        self,
        file: Path,
        variables: Mapping[str, str],
        profile: str,
        *,
        environment: Mapping[str, str] | None = None,
        edited: Callable[[Path, str], str] = lambda _, text: text,
    ) -> None:
        self.variables = dict(variables)
        self.root = Path(tempfile.mkdtemp(prefix="sfstream-deployment-"))
        self.root.chmod(0o711)  # PostgreSQL is another user
        self._definitions = read_services(file, variables, {profile})
        self._ports = free_ports(self._definitions.values())
        self._repository, self._environment = file.parent, dict(environment or {})
        self._edited = edited
        self.services: dict[str, NativeService] = {}
        self._held: set[str] = set()
        self._restarts: dict[str, tuple[float, float]] = {}
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="restarts", daemon=True)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the services in the order that they start in."""
        return iter(self._definitions)

    def port(self, service: str, port: int) -> int:
        """Return where a service's port is here."""
        return self._ports[service, port]

    def start(self, name: str) -> None:
        """Start a service once what it depends on is as it says."""
        definition = self._definitions[name]
        for other, condition in definition.depends_on.items():
            if condition == "service_healthy":
                self.wait_until_healthy(other)
            else:
                self._wait_until_completed(other)
        native = self._made(definition)
        with self._lock:
            self.services[name] = native
            native.launch()

    def wait_until_healthy(self, *names: str) -> None:
        """Wait until the health checks of services, of all if none is named, pass."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._wait_until_healthy, names or self._with_health_checks()))

    def hold(self, name: str) -> None:
        """Kill a service, and do not restart it: a machine without power."""
        with self._lock:
            self._held.add(name)
            self.services[name].kill()

    def release(self, name: str) -> None:
        """Start a service again that was held."""
        with self._lock:
            self._held.discard(name)
            self.services[name].launch()

    def kill(self, name: str) -> None:
        """Kill a service as the kernel does that has run out of memory; it is restarted."""
        with self._lock:
            self.services[name].kill()

    def kill_leader(self, name: str) -> None:
        """Kill the first process of a service alone; the service is restarted when it is gone."""
        process = self.services[name].process
        assert process is not None
        process.kill()

    def restart(self, name: str) -> None:
        """End a service in peace and start it again."""
        with self._lock:
            self.services[name].end()
            self.services[name].launch()

    def files_outside_of_volumes(self) -> set[str]:
        """Return the names of files that services left where their containers have a read-only file system."""
        homes = (native.home for native in self.services.values())
        return {path.name for home in homes for path in home.rglob("*") if path.is_file()}

    def logs(self) -> str:
        """Return the last lines of each service."""
        return "\n".join(f"--- {name}\n{native.log_tail()}" for name, native in self.services.items())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Restart services that end by themselves, for a ``with`` block; end them all afterwards."""
        self._watcher.start()
        try:
            yield
        finally:
            self._closing.set()
            self._watcher.join()
            for native in reversed(self.services.values()):
                native.kill()
            shutil.rmtree(self.root, ignore_errors=True)
            # Sockets that SeaweedFS would have removed itself.
            for port in (each + offset for each in self._ports.values() for offset in (0, GRPC_OFFSET)):
                for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    left.unlink(missing_ok=True)

    def _made(self, definition: Service) -> NativeService:
        folder = self.root / "services" / definition.name
        folder.mkdir(parents=True)
        paths: dict[str, Path] = {}
        for number, mount in enumerate(definition.mounts):
            repository = mount.source.startswith("./")
            paths[mount.target] = folder / f"mount-{number}" if repository else self.root / "volumes" / mount.source
        # Everybody's /tmp is this machine's.
        paths |= {target: folder / f"tmpfs-{number}" for number, target in enumerate(definition.tmpfs) if number}
        for path in paths.values():
            path.mkdir(parents=True, exist_ok=True)
        rewritten = Rewriting(definition, self._ports, paths, self._definitions)
        for mount in definition.mounts:
            if mount.source.startswith("./"):
                copied(
                    self._repository / mount.source,
                    paths[mount.target],
                    lambda path, text: rewritten(self._edited(path, text)),
                )
        return NativeService(definition, rewritten, paths, folder, self._environment)

    def _with_health_checks(self) -> list[str]:
        return [name for name, native in self.services.items() if native.service.healthcheck is not None]

    def _wait_until_healthy(self, name: str) -> None:
        native, deadline = self.services[name], time.monotonic() + _SECONDS
        while not native.is_healthy():
            assert time.monotonic() < deadline, f"{name} is not healthy:\n{native.log_tail()}"
            time.sleep(0.3)

    def _wait_until_completed(self, name: str) -> None:
        process = self.services[name].process
        assert process is not None
        assert process.wait(_SECONDS) == 0, f"{name} failed:\n{self.services[name].log_tail()}"

    def _watch(self) -> None:
        while not self._closing.wait(_RESTART_SECONDS):
            with self._lock:
                for name, native in self.services.items():
                    ended = name not in self._held and not native.is_running()
                    if ended and native.service.restart == "unless-stopped" and self._is_due(name):
                        native.kill()
                        native.launch()

    def _is_due(self, name: str) -> bool:
        """Return whether to restart a service now. One that ends at once is restarted ever more seldom."""
        now = time.monotonic()
        last, pause = self._restarts.get(name, (-_LONGEST_RESTART_SECONDS, _RESTART_SECONDS))
        if now - last < pause:
            return False
        quick = now - last < 2 * _LONGEST_RESTART_SECONDS
        self._restarts[name] = now, min(2 * pause, _LONGEST_RESTART_SECONDS) if quick else _RESTART_SECONDS
        return True
