"""Provider metadata that Airflow discovers, with and without Airflow's own Salesforce provider."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from airflow_provider_sfstream import provider_info
from airflow_provider_sfstream.assets.sfstream import create_asset, sanitize_uri
from airflow_provider_sfstream.salesforce.network.settings import TIMERS

ROOT = Path(__file__).parents[2]
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
}
OURS = {"auth_flow", "login_url", "refresh_token", "access_token", "pubsub_endpoint", "tls_ca", "allow_insecure"}
OURS |= set(TIMERS)
KINDS_OF_MODULES = ("operators", "sensors", "triggers", "hooks")
FIRST = ["domain", "consumer_key", "consumer_secret", "auth_flow"]
FLOWS = ("client_credentials", "jwt_bearer", "refresh_token", "password", "access_token")
SECTIONS: dict[str | None, list[str]] = {
    None: FIRST,
    "Login with a JWT": ["private_key", "private_key_file_path"],
    "Other Logins": ["refresh_token", "security_token", "access_token", "instance_url", "instance"],
    "Org and Network": [
        "login_url",
        "organization_id",
        "pubsub_endpoint",
        "version",
        "tls_ca",
        "proxies",
        "allow_insecure",
    ],
    "Timers": list(TIMERS),
}
SECRETS = {"consumer_secret", "private_key", "security_token", "refresh_token", "access_token", "proxies"}


def connection_type(monkeypatch: pytest.MonkeyPatch, *, installed: bool) -> dict[str, Any]:
    monkeypatch.setattr(provider_info, "_is_installed", lambda name: installed)
    [only] = provider_info.get_provider_info()["connection-types"]
    return dict(only)


def test_package_name_equals_the_distribution_name() -> None:
    info = provider_info.get_provider_info()
    assert metadata.distribution(info["package-name"]).metadata["Name"] == info["package-name"]
    entry_points = metadata.entry_points(group="apache_airflow_provider", name="provider_info")
    assert provider_info.get_provider_info in [each.load() for each in entry_points if each.dist]


def test_provider_info_is_valid_by_the_schema_of_airflow() -> None:
    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    info = provider_info.get_provider_info()
    jsonschema.validate(info, schema)
    assert set(info) <= set(schema["properties"])


def test_guides_and_logo_are_files_of_the_repository() -> None:
    source = dict(url.split(", ") for url in metadata.metadata("airflow-provider-sfstream").get_all("Project-URL"))[
        "Source"
    ]
    [integration] = provider_info.get_provider_info()["integrations"]
    for url in integration["how-to-guide"]:
        assert (ROOT / url.removeprefix(f"{source}/blob/main/")).is_file(), url
    logo = integration["logo"].removeprefix(source.replace("github.com", "raw.githubusercontent.com") + "/main/")
    assert (ROOT / logo).read_text().startswith("<svg ")


@pytest.mark.parametrize("kind", ["operators", "sensors"])
def test_every_module_is_listed(kind: str) -> None:
    [group] = provider_info.get_provider_info()[kind]
    modules = sorted((ROOT / "airflow_provider_sfstream" / kind).glob("[a-z]*.py"))
    assert group["python-modules"] == [f"airflow_provider_sfstream.{kind}.{module.stem}" for module in modules]


def test_airflow_knows_the_options_and_the_links() -> None:
    manager = ProvidersManager()
    info = provider_info.get_provider_info()
    assert dict(manager.provider_configs)["airflow-provider-sfstream"] == info["config"]
    assert set(info["extra-links"]) <= set(manager.extra_links_class_names)


def test_airflow_has_the_command() -> None:
    functions = getattr(ProvidersManager(), "cli_command_functions", None)
    if functions is None:
        pytest.skip("Airflow before 3.2 does not load commands of providers")
    names = [command.name for function in functions for command in function()]
    assert names.count("sfstream") == 1


def test_the_plugin_is_loaded_once() -> None:
    """The plugin has an entry point. If the provider named it too, Airflow would report a duplicate."""
    named = [each.value for each in metadata.entry_points(group="airflow.plugins") if each.name == "sfstream"]
    assert set(named) == {"airflow_provider_sfstream.plugins.streams:SalesforceStreamsPlugin"}
    assert "plugins" not in provider_info.get_provider_info()


def test_every_module_named_exists() -> None:
    info = provider_info.get_provider_info()
    known = {integration["integration-name"] for integration in info["integrations"]}
    groups = [group for kind in KINDS_OF_MODULES for group in info[kind]]
    assert len(groups) == len(KINDS_OF_MODULES)
    for group in groups:
        assert group["integration-name"] in known
        for module in group["python-modules"]:
            assert find_spec(module), module


def test_airflow_finds_the_handler_and_the_factory_of_the_uri() -> None:
    manager = ProvidersManagerTaskRuntime()
    assert manager.asset_uri_handlers["sfstream"] is sanitize_uri
    assert manager.asset_factories["sfstream"] is create_asset


def test_airflow_finds_the_message_queue() -> None:
    assert "airflow_provider_sfstream.queues.sfstream.SfstreamMessageQueueProvider" in (
        ProvidersManager().queue_class_names
    )


def test_airflow_finds_the_notifier() -> None:
    name = "airflow_provider_sfstream.notifications.salesforce_stream.SalesforceStreamNotifier"
    assert name in ProvidersManager().notification


def test_form_has_all_fields_without_the_provider_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    type_ = connection_type(monkeypatch, installed=False)
    assert set(type_["conn-fields"]) == THEIRS | OURS
    assert type_["hook-class-name"].endswith(".SalesforcePubSubHook")
    assert {n for n, f in type_["conn-fields"].items() if f["schema"].get("format") == "password"} >= SECRETS


def test_beside_airflows_provider_only_our_fields_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    type_ = connection_type(monkeypatch, installed=True)
    assert set(type_["conn-fields"]) == OURS
    assert type_["hook-class-name"] == "airflow.providers.salesforce.hooks.salesforce.SalesforceHook"
    assert "ui-field-behaviour" not in type_


def sections(fields: dict[str, Any]) -> dict[str | None, list[str]]:
    """Return the names of fields by the heading that Airflow shows them under, both in the order of the page."""
    found: dict[str | None, list[str]] = {}
    for name, field in fields.items():
        found.setdefault(field["schema"].get("section"), []).append(name)
    return found


def test_form_begins_with_common_fields_and_continues_by_login(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = connection_type(monkeypatch, installed=False)["conn-fields"]
    assert list(fields)[: len(FIRST)] == FIRST
    assert list(sections(fields).items()) == list(SECTIONS.items())


def test_our_fields_keep_their_sections_beside_airflows_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = connection_type(monkeypatch, installed=True)["conn-fields"]
    ours = {heading: [name for name in names if name in OURS] for heading, names in SECTIONS.items()}
    assert sections(fields) == {heading: names for heading, names in ours.items() if names}


@pytest.mark.parametrize("installed", [False, True])
def test_no_field_looks_required_and_each_has_a_description(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    for name, field in connection_type(monkeypatch, installed=installed)["conn-fields"].items():
        assert "null" in field["schema"]["type"], name  # the form marks any other with an asterisk
        assert field["description"], name
        assert "Airflow's Salesforce provider" not in field["description"], name


@pytest.mark.parametrize("installed", [False, True])
def test_each_login_flow_has_a_display_text(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    schema = connection_type(monkeypatch, installed=installed)["conn-fields"]["auth_flow"]["schema"]
    assert schema["enum"] == [None, *FLOWS]
    assert set(schema["values_display"]) == {"null", *FLOWS}  # without this entry Airflow shows "null"
    assert "null" not in schema["values_display"].values()


def test_the_port_is_shown_since_the_test_button_of_airflow_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    behaviour = connection_type(monkeypatch, installed=False)["ui-field-behaviour"]
    assert behaviour["hidden-fields"] == ["schema", "host"]
    assert behaviour["placeholders"]["port"].startswith("0")


def test_airflow_shows_the_form() -> None:
    manager = ProvidersManager()
    manager.initialize_providers_hooks()
    hook = manager._hook_provider_dict["salesforce"]
    assert hook.hook_class_name == "airflow_provider_sfstream.hooks.salesforce_pubsub.SalesforcePubSubHook"
    widgets = manager._connection_form_widgets
    for name in THEIRS | OURS:
        assert widgets[f"extra__salesforce__{name}"].is_sensitive == (name in SECRETS), name
    assert manager._field_behaviours["salesforce"]["relabeling"] == {"login": "Username"}


def test_provider_info_imports_no_large_library() -> None:
    code = (
        "import sys; from airflow_provider_sfstream.provider_info import get_provider_info; get_provider_info();"
        "heavy = {'airflow', 'grpc', 'pyarrow', 'httpx', 'fastavro', 'sqlalchemy', 'pyspark'} & set(sys.modules);"
        "sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_readme_links_are_valid_on_package_indexes() -> None:
    package = metadata.metadata("airflow-provider-sfstream")
    urls = dict(url.split(", ") for url in package.get_all("Project-URL") or ())
    text = str(package.get_payload() or package["Description"])
    links = re.findall(r"\]\(([^)#]+)", text)
    tree = f"{urls['Source']}/blob/main/"
    ours = [link.removeprefix(tree) for link in links if link.startswith(tree)]
    assert len(ours) > 20
    assert {link for link in links if link.startswith(urls["Source"])} - {tree + link for link in ours} == {
        urls["Issues"]
    }
    assert [link for link in ours if not (ROOT / link).exists()] == []
    assert [link for link in links if not link.startswith("https://")] == []
    assert urls["Documentation"] == f"{urls['Source']}/blob/main/docs"
