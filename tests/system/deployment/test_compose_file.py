"""Static checks of docker-compose.yaml: secrets, privileges and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet

from scripts import env
from tests.support.compose import ComposeError, Service, generated_variables, read_services, variables_of

ROOT = Path(__file__).resolve().parents[3]
FILE, EXAMPLE = ROOT / "docker-compose.yaml", ROOT / ".env.example"
PROFILES = {"local", "celery"}
VARIABLES = generated_variables(EXAMPLE)
SERVICES = read_services(FILE, VARIABLES, PROFILES)
SECRETS = sorted(name for name, value in variables_of(EXAMPLE.read_text()).items() if not value)
ENDS = {"airflow-init"}


def texts(service: Service) -> Iterator[str]:
    """Yield the texts in which a service can name another: commands, environment, health check, mounted files."""
    yield from service.command
    yield from service.environment.values()
    if service.healthcheck is not None:
        yield from [service.healthcheck] if isinstance(service.healthcheck, str) else service.healthcheck
    for mount in service.mounts:
        if mount.source.startswith("./"):
            files = (path for path in (ROOT / mount.source).rglob("*") if path.is_file())
            yield from (path.read_text() for path in files if path.suffix not in ("", ".pyc"))


def strings(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every key and scalar below a YAML node."""
    for key, each in value.items() if isinstance(value, dict) else [("", one) for one in value]:
        if isinstance(each, dict | list):
            yield from ((inner or key, text) for inner, text in strings(each))
        else:
            yield key, str(each)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_services_of_each_profile(profile: str) -> None:
    started = set(read_services(FILE, VARIABLES, {profile}))
    tasks = {"local": {"airflow-scheduler"}, "celery": {"airflow-scheduler-celery", "airflow-worker", "redis"}}
    always = {"postgres", "object-storage", "salesforce-org", "spark-master", "spark-worker-1", "spark-worker-2"}
    airflow = {"airflow-init", "airflow-api-server", "airflow-dag-processor", "airflow-triggerer"}
    assert started == always | airflow | tasks[profile]


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_has_a_default(name: str) -> None:
    with pytest.raises(ComposeError, match=name):
        read_services(FILE, {**VARIABLES, name: ""}, PROFILES)


def test_make_env_sets_every_secret_and_never_overwrites_one(tmp_path: Path) -> None:
    (tmp_path / ".env.example").write_text(EXAMPLE.read_text())
    assert env.write(tmp_path)
    written = tmp_path / ".env"
    variables = variables_of(written.read_text())
    assert variables.keys() == variables_of(EXAMPLE.read_text()).keys()
    assert len({variables[name] for name in SECRETS}) == len(SECRETS) > 5
    assert all(len(variables[name]) >= 32 for name in SECRETS)
    assert (
        Fernet(variables["AIRFLOW_FERNET_KEY"]).decrypt(Fernet(variables["AIRFLOW_FERNET_KEY"]).encrypt(b"x")) == b"x"
    )
    assert variables["COMPOSE_PROFILES"] == "local"
    assert written.stat().st_mode & 0o777 == 0o600
    assert not env.write(tmp_path)
    assert variables_of(written.read_text()) == variables


def test_no_secret_is_in_the_file() -> None:
    document = yaml.safe_load(FILE.read_text())
    for key, text in strings(document):
        if re.search(r"PASSWORD|SECRET|FERNET_KEY", key) and "/" not in text:
            assert re.fullmatch(r"\$\{\w+:\?is missing in \.env\}", text), key
        for password in re.findall(r"://\w*:([^@/\s]*)@", text):
            assert password.startswith("${"), key
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_each_secret_is_given_only_to_services_that_need_it() -> None:
    def holders(secret: str) -> set[str]:
        return {name for name, one in SERVICES.items() if VARIABLES[secret] in " ".join(one.environment.values())}

    # A worker calls only Airflow's API, with the token that it receives with each task.
    metadata = {name for name in SERVICES if name.startswith("airflow-")} - {"airflow-worker"}
    runs_tasks = {"airflow-scheduler", "airflow-worker"}
    assert holders("POSTGRES_PASSWORD") == {"postgres"}
    assert holders("AIRFLOW_DATABASE_PASSWORD") == metadata | {"postgres"}
    assert holders("AIRFLOW_FERNET_KEY") == metadata
    assert holders("AIRFLOW_JWT_SECRET") == {"airflow-api-server", "airflow-scheduler", "airflow-scheduler-celery"}
    store = runs_tasks | {"postgres", "airflow-init", "airflow-triggerer"}
    assert holders("SFSTREAM_DATABASE_PASSWORD") == store
    assert holders("AIRFLOW_ADMIN_PASSWORD") == holders("AIRFLOW_API_SECRET_KEY") == {"airflow-api-server"}
    assert holders("LAKE_AIRFLOW_SECRET_KEY") == holders("LAKE_SPARK_SECRET_KEY") == runs_tasks | {"object-storage"}
    assert holders("SALESFORCE_CONSUMER_SECRET") == runs_tasks | {"airflow-triggerer", "salesforce-org"}
    assert holders("REDIS_PASSWORD") == {"redis", "airflow-scheduler-celery", "airflow-worker"}


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_a_service_has_few_privileges(service: Service) -> None:
    definition = service.definition
    assert definition["read_only"] is True
    assert definition["cap_drop"] == ["ALL"]
    assert definition["security_opt"] == ["no-new-privileges:true"]
    assert str(definition["user"]).split(":")[0] not in ("", "0", "root")
    assert not any("docker.sock" in mount.source for mount in service.mounts)
    assert all(mount.read_only for mount in service.mounts if mount.source.startswith("./"))


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_each_service_has_a_health_check(service: Service) -> None:
    assert (service.healthcheck is None) == (service.name in ENDS)
    assert service.restart == ("no" if service.name in ENDS else "unless-stopped")
    for other, condition in service.depends_on.items():
        assert condition == ("service_completed_successfully" if other in ENDS else "service_healthy")


def test_images_are_pinned() -> None:
    bases = [re.findall(r"^FROM (\S+)", path.read_text(), re.MULTILINE) for path in ROOT.glob("deploy/**/Dockerfile")]
    images = {one.image for one in SERVICES.values() if "build" not in one.definition}.union(*bases)
    assert images == {
        "apache/airflow:3.3.2-python3.11",
        "chrislusf/seaweedfs:4.48",
        "postgres:17.6-bookworm",
        "python:3.11.14-slim-bookworm",
        "redis:7.2.10-bookworm",
    }


def test_only_the_ui_is_published_and_only_on_loopback() -> None:
    published = {name: one.definition["ports"] for name, one in SERVICES.items() if "ports" in one.definition}
    assert published == {"airflow-api-server": ["127.0.0.1:8080:8080"]}


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_every_address_leads_to_a_port_on_a_common_network(service: Service) -> None:
    addresses = re.compile(rf"(?<![\w.-])({'|'.join(sorted(SERVICES, key=len, reverse=True))}):(\d+)\b")
    for text in texts(service):
        for name, port in addresses.findall(text):
            assert int(port) in SERVICES[name].expose, f"{name}:{port}"
            # All services have the URL of Airflow's API in their environment, also those outside its network.
            common = service.networks & SERVICES[name].networks
            assert name == service.name or common or (name, service.name) == ("airflow-api-server", "airflow-init")
