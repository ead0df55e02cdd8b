"""What Airflow discovers, with and without Airflow's own Salesforce provider."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_provider_sfstream import provider_info

THEIRS = {
    "security_token",
    "domain",
    "consumer_key",
    "consumer_secret",
    "private_key_file_path",
    "private_key",
    "organization_id",
    "instance",
    "instance_url",
    "proxies",
    "version",
    "client_id",
}
OURS = {"auth_flow", "login_url", "refresh_token", "access_token", "pubsub_endpoint", "tls_ca", "allow_insecure"}
SECRETS = {"consumer_secret", "private_key", "security_token", "refresh_token", "access_token", "proxies"}


def connection_type(monkeypatch: pytest.MonkeyPatch, *, installed: bool) -> dict[str, Any]:
    monkeypatch.setattr(provider_info, "_is_installed", lambda name: installed)
    [only] = provider_info.get_provider_info()["connection-types"]
    return dict(only)


def test_the_package_name_is_the_distributions() -> None:
    info = provider_info.get_provider_info()
    assert metadata.distribution(info["package-name"]).metadata["Name"] == info["package-name"]
    entry_points = metadata.entry_points(group="apache_airflow_provider", name="provider_info")
    assert provider_info.get_provider_info in [each.load() for each in entry_points if each.dist]


def test_every_module_and_class_named_exists() -> None:
    info = provider_info.get_provider_info()
    for group in (*info["operators"], *info["hooks"]):
        for module in group["python-modules"]:
            assert find_spec(module), module


def test_alone_the_whole_form_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    type_ = connection_type(monkeypatch, installed=False)
    assert set(type_["conn-fields"]) == THEIRS | OURS
    assert type_["hook-class-name"].endswith(".SalesforcePubSubHook")
    assert {n for n, f in type_["conn-fields"].items() if f["schema"].get("format") == "password"} >= SECRETS


def test_beside_airflows_provider_only_our_fields_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    type_ = connection_type(monkeypatch, installed=True)
    assert set(type_["conn-fields"]) == OURS
    assert type_["hook-class-name"] == "airflow.providers.salesforce.hooks.salesforce.SalesforceHook"
    assert "ui-field-behaviour" not in type_


def test_airflow_shows_the_form() -> None:
    manager = ProvidersManager()
    manager.initialize_providers_hooks()
    hook = manager._hook_provider_dict["salesforce"]
    assert hook.hook_class_name == "airflow_provider_sfstream.hooks.salesforce_pubsub.SalesforcePubSubHook"
    widgets = manager._connection_form_widgets
    for name in THEIRS | OURS:
        assert widgets[f"extra__salesforce__{name}"].is_sensitive == (name in SECRETS), name
    assert manager._field_behaviours["salesforce"]["relabeling"] == {"login": "Username"}


def test_loading_it_imports_next_to_nothing() -> None:
    code = (
        "import sys; from airflow_provider_sfstream.provider_info import get_provider_info; get_provider_info();"
        "heavy = {'airflow', 'grpc', 'pyarrow', 'httpx', 'fastavro', 'sqlalchemy', 'pyspark'} & set(sys.modules);"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_the_hook_loads_no_client_library() -> None:
    code = (
        "import sys, airflow.sdk; airflow.sdk.BaseHook; before = set(sys.modules);"
        "import airflow_provider_sfstream.hooks.salesforce_pubsub;"
        "heavy = {'grpc', 'pyarrow', 'fastavro', 'pyruhvro'} & (set(sys.modules) - before);"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
