"""Reader of compose files that follows Docker Compose: variables, anchors, profiles, and the start order of services.

It supports only the features that this repository's file uses. Any other feature raises an error, so that it is not
silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.env import filled

_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}|(?P<invalid>))")
_SERVICE_KEYS = {
    *("image", "build", "entrypoint", "command", "user", "environment", "expose", "ports", "volumes", "tmpfs"),
    *("networks", "profiles", "depends_on", "healthcheck", "restart", "read_only", "cap_drop", "security_opt"),
}


class ComposeError(Exception):
    """The compose file is invalid for Docker Compose too, or uses a feature that this reader does not support."""


@dataclass(frozen=True)
class Mount:
    """A named volume, or a file or folder of the repository (``source`` begins with ``./``)."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class Service:
    """One service, with its variables substituted.

    :param expose: ports that it listens on.
    :param depends_on: services on which its start depends, each with the required condition: ``service_healthy`` or
        ``service_completed_successfully``.
    :param healthcheck: command of its health check; a string is a command for the shell.
    :param definition: its complete definition in the file.
    """

    name: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    expose: tuple[int, ...]
    mounts: tuple[Mount, ...]
    tmpfs: tuple[str, ...]
    networks: frozenset[str]
    profiles: frozenset[str]
    depends_on: Mapping[str, str]
    healthcheck: tuple[str, ...] | str | None
    restart: str
    definition: Mapping[str, Any]


def variables_of(text: str) -> dict[str, str]:
    """Return the variables of an ``.env`` file."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def read_services(path: Path, variables: Mapping[str, str], profiles: Iterable[str]) -> dict[str, Service]:
    """Return the services of the profiles, sorted so that each follows the services that it depends on.

    :raises ComposeError: if a variable is missing, also in a service of another profile, as in Docker Compose.
    """
    document = _filled(yaml.safe_load(path.read_text()), variables)
    services = [_service(name, definition) for name, definition in document["services"].items()]
    for service in services:
        _check_declared(service, document)
    chosen = {one.name: one for one in services if not one.profiles or one.profiles & set(profiles)}
    return {name: chosen[name] for name in _in_order(chosen)}


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, variables) for each in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match, variables), value)
    return value


def _variable(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "$"
    if match["name"] is None:
        raise ComposeError(f"{match.string!r}: write a variable as ${{NAME}}, and a dollar sign as $$")
    value = variables.get(match["name"], "")
    if value or match["kind"] is None:
        return value
    if match["kind"] == "?":
        raise ComposeError(f"{match['name']} {match['text']}")
    return str(match["text"])


def _service(name: str, definition: Mapping[str, Any]) -> Service:
    if unknown := definition.keys() - _SERVICE_KEYS:
        raise ComposeError(f"service {name}: this reader does not support {sorted(unknown)}")
    command = [*definition.get("entrypoint", ()), *definition.get("command", ())]
    return Service(
        name=name,
        image=definition["image"],
        command=tuple(str(part) for part in command),
        environment={key: str(value) for key, value in definition.get("environment", {}).items()},
        expose=tuple(int(port) for port in definition.get("expose", ())),
        mounts=tuple(_mount(text) for text in definition.get("volumes", ())),
        tmpfs=tuple(text.partition(":")[0] for text in definition.get("tmpfs", ())),
        networks=frozenset(definition.get("networks", ())),
        profiles=frozenset(definition.get("profiles", ())),
        depends_on={other: given["condition"] for other, given in definition.get("depends_on", {}).items()},
        healthcheck=_healthcheck(definition.get("healthcheck", {}).get("test")),
        restart=definition.get("restart", "no"),
        definition=definition,
    )


def _mount(text: str) -> Mount:
    source, target, *options = text.split(":")
    return Mount(source, target, options == ["ro"])


def _healthcheck(test: Sequence[str] | None) -> tuple[str, ...] | str | None:
    if test is None:
        return None
    if test[0] == "CMD":
        return tuple(test[1:])
    if test[0] == "CMD-SHELL" and len(test) == 2:
        return test[1]
    raise ComposeError(f"this reader does not support the health check {test}")


def _check_declared(service: Service, document: Mapping[str, Any]) -> None:
    named = {mount.source for mount in service.mounts if not mount.source.startswith("./")}
    for kind, used in (("volumes", named), ("networks", service.networks), ("services", service.depends_on)):
        if missing := set(used) - set(document[kind]):
            raise ComposeError(f"service {service.name}: {kind} {sorted(missing)} are not in the file")


def _in_order(services: Mapping[str, Service]) -> Iterator[str]:
    done: set[str] = set()
    while len(done) < len(services):
        ready = [name for name, one in services.items() if name not in done and one.depends_on.keys() <= done]
        if not ready:
            raise ComposeError(
                f"these services depend on each other or on other profiles: {sorted(services.keys() - done)}"
            )
        yield from ready
        done |= set(ready)


def generated_variables(example: Path, **others: str) -> dict[str, str]:
    """Return the variables that ``make env`` generates from ``.env.example``, and ``others``."""
    return {**variables_of(filled(example.read_text())), **others}
