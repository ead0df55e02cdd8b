"""Commands that create Airflow connections to this org, one for each login flow without a browser."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any


def airflow_commands(org: Mapping[str, Any]) -> list[str]:
    """Return shell commands for client credentials, a JWT and a password, from the content of the ready line.

    They create the connections ``salesforce_default``, ``salesforce_jwt`` and ``salesforce_password``. Flows that need
    the client secret are omitted if the ready line does not contain it.
    """
    everywhere = {
        "login_url": org["https_instance_url"],
        "pubsub_endpoint": f"localhost:{org['grpc_tls_port']}",
        "tls_ca": org["ca_file"],
        "consumer_key": org["client_id"],
    }
    secret = {"consumer_secret": org["client_secret"]}
    jwt = {"private_key_file_path": org["jwt_private_key_file"]}
    login, password = ["--conn-login", org["username"]], ["--conn-password", org["password"]]
    commands = [_command("salesforce_jwt", {**everywhere, **jwt}, login)]
    if org["client_secret"] is not None:
        token = {"security_token": org["security_token"]}
        commands.insert(0, _command("salesforce_default", {**everywhere, **secret}))
        commands.append(_command("salesforce_password", {**everywhere, **secret, **token}, [*login, *password]))
    return commands


def _command(connection_id: str, extra: Mapping[str, str], others: list[str] | None = None) -> str:
    # The hooks ignore the port, but the Test button of Airflow 3.3 refuses a connection without one.
    kind = ["--conn-type", "salesforce", "--conn-port", "0"]
    words = ["airflow", "connections", "add", connection_id, *kind, *(others or [])]
    return shlex.join([*words, "--conn-extra", json.dumps(extra)])
