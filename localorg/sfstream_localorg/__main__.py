"""Run a local Salesforce org: ``python -m sfstream_localorg --data-dir DIR``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web

from sfstream_localorg import ports
from sfstream_localorg.app import make_app
from sfstream_localorg.bus.topics import read_topics_file
from sfstream_localorg.connections import airflow_commands
from sfstream_localorg.identity import CONSUMER_SECRET
from sfstream_localorg.org import DataDirectoryInUseError, Org
from sfstream_localorg.pubsub.service import OPTIONS, PubSubService

_GRACE_SECONDS = 0.5
_LONGEST_URL = 16_384
"""Maximum length of a URL in bytes, as at Salesforce (REST API guide, "Status Codes and Error Responses", 414)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the org until SIGTERM or SIGINT, and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        org = Org(options.data_dir, options.host_name)
    except (DataDirectoryInUseError, OSError, ValueError) as error:
        return _complain(error)
    try:
        if options.ca_file is not None:
            options.ca_file.write_bytes(org.tls.ca.read_bytes())
        if options.topics is not None:
            org.load_topics(read_topics_file(options.topics))
        asyncio.run(_run(org, options))
    except (OSError, RuntimeError, ValueError) as error:
        return _complain(error)
    finally:
        org.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sfstream_localorg",
        description="A Salesforce org for your laptop. When it is ready, it prints one JSON line with its ports and "
        "credentials, then one command for each login flow that creates an Airflow connection to it.",
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="data of the org; created if missing")
    parser.add_argument(
        "--host", type=ip_address, default=ip_address("127.0.0.1"), help="IP address to listen on (default: 127.0.0.1)"
    )
    for name in ("http", "https", "grpc", "grpc-tls"):
        parser.add_argument(f"--{name}-port", type=int, help="0 for any free port (default: the last one, if free)")
    parser.add_argument("--host-name", help="host name for its URLs and certificate (default: from --host)")
    parser.add_argument("--ca-file", type=Path, help="write a copy of the certificate authority here")
    parser.add_argument("--topics", type=Path, help="JSON or YAML file of platform events and channels to define")
    return parser


def _complain(error: Exception) -> int:
    sys.stderr.write(f"local org: {error}\n")
    return 1


async def _run(org: Org, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    for name, port in ports.choose(org.data_dir, options.host, vars(options)).items():
        setattr(options, name, port)
    async with _http_servers(org, options) as (http_port, https_port), _grpc_server(org, options) as grpc_ports:
        address = ip_address("127.0.0.1") if options.host.is_unspecified else options.host
        host = options.host_name or _authority(address)
        org.listening(f"http://{host}:{http_port}", f"https://{host}:{https_port}")
        ports.remember(org.data_dir, dict(zip(ports.NAMES, (http_port, https_port, *grpc_ports), strict=True)))
        ready = _ready_line(org, http_port, https_port, *grpc_ports)
        sys.stdout.write("\n".join([json.dumps(ready), *airflow_commands(ready), ""]))
        sys.stdout.flush()
        await stop.wait()


def _authority(host: IPv4Address | IPv6Address) -> str:
    return f"[{host}]" if host.version == 6 else str(host)


def _ready_line(org: Org, http_port: int, https_port: int, grpc_port: int, grpc_tls_port: int) -> dict[str, Any]:
    return {
        "http_port": http_port,
        "https_port": https_port,
        "grpc_port": grpc_port,
        "grpc_tls_port": grpc_tls_port,
        "instance_url": org.instance_url,
        "https_instance_url": org.https_instance_url,
        "login_url": org.login_url,
        "org_id": org.org_id,
        "client_id": org.client_id,
        # The user who set this variable knows the secret, and many people can read a container's log.
        "client_secret": None if os.environ.get(CONSUMER_SECRET) else org.client_secret,
        "username": org.username,
        "password": org.password,
        "security_token": org.security_token,
        "jwt_private_key_file": str(org.jwt_private_key_file.absolute()),
        "ca_file": str(org.tls.ca.absolute()),
        "admin_url": f"{org.instance_url}/admin",
    }


@asynccontextmanager
async def _http_servers(org: Org, options: argparse.Namespace) -> AsyncIterator[tuple[int, int]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(org.tls.certificate, org.tls.key)
    limits: dict[str, Any] = {"max_line_size": _LONGEST_URL, "max_field_size": _LONGEST_URL}
    runner = web.AppRunner(make_app(org), access_log=None, shutdown_timeout=_GRACE_SECONDS, **limits)
    await runner.setup()
    try:
        await web.TCPSite(runner, str(options.host), options.http_port).start()
        await web.TCPSite(runner, str(options.host), options.https_port, ssl_context=context).start()
        http, https = runner.addresses
        yield http[1], https[1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _grpc_server(org: Org, options: argparse.Namespace) -> AsyncIterator[tuple[int, int]]:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((PubSubService(org).handler(),))
    credentials = grpc.ssl_server_credentials([(org.tls.key.read_bytes(), org.tls.certificate.read_bytes())])
    plain = server.add_insecure_port(f"{_authority(options.host)}:{options.grpc_port}")
    secure = server.add_secure_port(f"{_authority(options.host)}:{options.grpc_tls_port}", credentials)
    await server.start()
    try:
        yield plain, secure
    finally:
        await server.stop(_GRACE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
