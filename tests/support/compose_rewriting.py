"""Rewriting of addresses, ports and paths in a compose file's services for processes on one machine."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.compose import Service

GRPC_OFFSET = 10_000
"""SeaweedFS listens on each of its ports, and for gRPC on the port with this offset."""


def free_ports(services: Iterable[Service]) -> dict[tuple[str, int], int]:
    """Return a free loopback port for each port of each service, below the system's range of ephemeral ports."""
    found: dict[tuple[str, int], int] = {}
    candidates = iter(random.sample(range(12_000, 22_000), 5_000))
    for service in services:
        for port in service.expose:
            found[service.name, port] = next(
                each for each in candidates if _is_free(each) and _is_free(each + GRPC_OFFSET)
            )
    return found


class RewritePlan:
    """Replacement of a service's addresses, ports and paths by those of this machine.

    :param ports: loopback ports of all services, by service and port.
    :param paths: folders on this machine, by path in the container.
    :param hosts: names of all services.
    """

    def __init__(
        self, service: Service, ports: Mapping[tuple[str, int], int], paths: Mapping[str, Path], hosts: Iterable[str]
    ) -> None:
        self._ports = ports
        self._own = {str(port): str(ports[service.name, port]) for port in service.expose}
        self._paths = {target: str(path) for target, path in paths.items()}
        self._hosts = frozenset(hosts)
        names = "|".join(sorted(map(re.escape, self._hosts), key=len, reverse=True))
        self._address = re.compile(rf"(?<![\w.-])({names}):(\d+)\b")
        self._host = re.compile(rf"(?<==)({names})$|^({names})$")

    def __call__(self, text: str) -> str:
        """Return ``text`` with the addresses of services, the service's own ports and its paths replaced.

        An address is ``name:port``. A name without port counts as an address only if it is the whole text, or the
        whole text after a ``=``.
        """
        text = self._address.sub(self._replace_address, text)
        text = self._host.sub("127.0.0.1", text).replace("0.0.0.0", "127.0.0.1").replace("localhost:", "127.0.0.1:")
        if self._own:
            text = re.sub(rf"(?<![\w.]){_any_of(self._own)}(?![\w.])", lambda match: self._own[match[0]], text)
        if self._paths:
            text = re.sub(rf"(?<![\w.-]){_any_of(self._paths)}(?![\w-])", lambda match: self._paths[match[0]], text)
        return text

    def _replace_address(self, match: re.Match[str]) -> str:
        try:
            return f"127.0.0.1:{self._ports[match[1], int(match[2])]}"
        except KeyError:
            raise ValueError(f"{match[0]} is not among the ports that {match[1]} exposes") from None


def _any_of(texts: Iterable[str]) -> str:
    return "(?:" + "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) + ")"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
