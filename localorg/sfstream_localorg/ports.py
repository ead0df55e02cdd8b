"""Ports of a local org. A later start with the same data directory reuses them."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

NAMES = ("http_port", "https_port", "grpc_port", "grpc_tls_port")
_FILE = "ports.json"


def choose(data_dir: Path, host: IPv4Address | IPv6Address, given: Mapping[str, int | None]) -> dict[str, int]:
    """Return the ports to listen on: the requested port, else the previous port if free, else 0 for any free port.

    :param given: requested ports by name, ``None`` for no request.
    """
    former = _previous_ports(data_dir)
    return {name: _choose_port(host, given[name], former.get(name)) for name in NAMES}


def remember(data_dir: Path, ports: Mapping[str, int]) -> None:
    """Write the ports of a running org into its data directory."""
    (data_dir / _FILE).write_text(json.dumps({name: ports[name] for name in NAMES}))


def _previous_ports(data_dir: Path) -> dict[str, int]:
    try:
        former = json.loads((data_dir / _FILE).read_text())
    except (OSError, ValueError):  # the first start, or a process was killed while it wrote the file
        return {}
    return {name: port for name, port in former.items() if isinstance(port, int)} if isinstance(former, dict) else {}


def _choose_port(host: IPv4Address | IPv6Address, given: int | None, former: int | None) -> int:
    if given is not None:
        return given
    return former if former is not None and _is_free(host, former) else 0


def _is_free(host: IPv4Address | IPv6Address, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if host.version == 6 else socket.AF_INET) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers, to ignore TIME_WAIT
        try:
            server.bind((str(host), port))
        except (OSError, OverflowError):
            return False
        return True
