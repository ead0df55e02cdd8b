from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path

import pytest

from sfstream_localorg import ports

HOST = ip_address("127.0.0.1")
NOTHING = dict.fromkeys(ports.NAMES)


def free_ports() -> dict[str, int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in ports.NAMES]
    numbers = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return dict(zip(ports.NAMES, numbers, strict=True))


def test_first_start_uses_any_free_port(tmp_path: Path) -> None:
    assert ports.choose(tmp_path, HOST, NOTHING) == dict.fromkeys(ports.NAMES, 0)


def test_previous_ports_are_reused_unless_other_ports_are_given_or_they_are_in_use(tmp_path: Path) -> None:
    former = free_ports()
    ports.remember(tmp_path, former)
    with socket.create_server(("127.0.0.1", former["grpc_port"])):
        chosen = ports.choose(tmp_path, HOST, NOTHING | {"http_port": 8080, "https_port": 0})
    assert chosen == {**former, "http_port": 8080, "https_port": 0, "grpc_port": 0}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"http_port": "x"}', '{"http_port": 99999}'])
def test_invalid_ports_file_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    assert ports.choose(tmp_path, HOST, NOTHING) == dict.fromkeys(ports.NAMES, 0)
