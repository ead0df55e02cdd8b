"""Deployment of a compose file as processes of this machine, which are restarted as Docker Compose does."""

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
from tests.support.compose_rewriting import GRPC_OFFSET, RewritePlan, free_ports
from tests.support.compose_service import NativeService, copy_edited

_SECONDS = 900.0
_RESTART_SECONDS, _LONGEST_RESTART_SECONDS = 1.0, 30.0


class NativeDeployment:
    """The services of one profile as processes. All their files, including named volumes, are in a temporary folder.

    :param file: the compose file.
    :param variables: variables of ``.env``.
    :param profile: profile of the services to start.
    :param environment: additional environment variables of all services.
    :param edited: called with path and text of each mounted file; returns the text that is then rewritten.
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
        self.root.chmod(0o711)  # PostgreSQL runs as another user
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
        """Yield the names of the services in start order."""
        return iter(self._definitions)

    def port(self, service: str, port: int) -> int:
        """Return the loopback port that replaces a port of a service."""
        return self._ports[service, port]

    def start(self, name: str) -> None:
        """Wait for the conditions of a service's dependencies, then start the service."""
        definition = self._definitions[name]
        for other, condition in definition.depends_on.items():
            if condition == "service_healthy":
                self.wait_until_healthy(other)
            else:
                self._wait_until_completed(other)
        native = self._create_service(definition)
        with self._lock:
            self.services[name] = native
            native.launch()

    def wait_until_healthy(self, *names: str) -> None:
        """Wait until the health checks of these services pass, or of all services if ``names`` is empty."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._wait_until_healthy, names or self._with_health_checks()))

    def hold(self, name: str) -> None:
        """Kill a service and do not restart it, as after a power failure of its machine."""
        with self._lock:
            self._held.add(name)
            self.services[name].kill()

    def release(self, name: str) -> None:
        """Start a held service again."""
        with self._lock:
            self._held.discard(name)
            self.services[name].launch()

    def kill(self, name: str) -> None:
        """Kill all processes of a service, as the kernel does when memory runs out. The service is restarted."""
        with self._lock:
            self.services[name].kill()

    def kill_leader(self, name: str) -> None:
        """Kill only the main process of a service. The service is restarted."""
        process = self.services[name].process
        assert process is not None
        process.kill()

    def restart(self, name: str) -> None:
        """Stop a service gracefully and start it again."""
        with self._lock:
            self.services[name].end()
            self.services[name].launch()

    def files_outside_of_volumes(self) -> set[str]:
        """Return the names of files that services wrote to folders that are read-only in their containers."""
        homes = (native.home for native in self.services.values())
        return {path.name for home in homes for path in home.rglob("*") if path.is_file()}

    def logs(self) -> str:
        """Return the end of the log of each service."""
        return "\n".join(f"--- {name}\n{native.log_tail()}" for name, native in self.services.items())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Restart services that exit, for a ``with`` block; kill all services afterwards."""
        self._watcher.start()
        try:
            yield
        finally:
            self._closing.set()
            self._watcher.join()
            for native in reversed(self.services.values()):
                native.kill()
            shutil.rmtree(self.root, ignore_errors=True)
            # A killed SeaweedFS does not remove its sockets.
            for port in (each + offset for each in self._ports.values() for offset in (0, GRPC_OFFSET)):
                for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    left.unlink(missing_ok=True)

    def _create_service(self, definition: Service) -> NativeService:
        folder = self.root / "services" / definition.name
        folder.mkdir(parents=True)
        paths: dict[str, Path] = {}
        for number, mount in enumerate(definition.mounts):
            repository = mount.source.startswith("./")
            paths[mount.target] = folder / f"mount-{number}" if repository else self.root / "volumes" / mount.source
        # The first tmpfs is /tmp, which all services share with this machine.
        paths |= {target: folder / f"tmpfs-{number}" for number, target in enumerate(definition.tmpfs) if number}
        for path in paths.values():
            path.mkdir(parents=True, exist_ok=True)
        rewritten = RewritePlan(definition, self._ports, paths, self._definitions)
        for mount in definition.mounts:
            if mount.source.startswith("./"):
                copy_edited(
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
        """Return whether to restart a service now. The pause doubles for a service that exits soon after its start."""
        now = time.monotonic()
        last, pause = self._restarts.get(name, (-_LONGEST_RESTART_SECONDS, _RESTART_SECONDS))
        if now - last < pause:
            return False
        quick = now - last < 2 * _LONGEST_RESTART_SECONDS
        self._restarts[name] = now, min(2 * pause, _LONGEST_RESTART_SECONDS) if quick else _RESTART_SECONDS
        return True
