"""Metadata of a ManagedEventSubscription, with Salesforce's validation. Pure.

Source: the Tooling API and Metadata API references of ``ManagedEventSubscription``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.errors import ApiError

OBJECT = "ManagedEventSubscription"
RUN, STOP = "RUN", "STOP"
LATEST, EARLIEST = "LATEST", "EARLIEST"
LONGEST_NAME = 80
_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9])*", re.ASCII)
_ELEMENTS = {
    "label": "label",
    "topicName": "topic_name",
    "defaultReplay": "default_replay",
    "errorRecoveryReplay": "error_recovery_replay",
    "state": "state",
    "version": "version",
}
_REQUIRED = ("topicName", "state")


@dataclass(frozen=True)
class ManagedSettings:
    """Settings of a managed subscription: the elements of its Metadata."""

    label: str
    topic_name: str
    state: str
    default_replay: str = LATEST
    error_recovery_replay: str = LATEST
    version: str = "60.0"

    def as_metadata(self) -> dict[str, str]:
        """Return the Metadata, as the Tooling API shows it."""
        return {element: str(getattr(self, name)) for element, name in _ELEMENTS.items()}

    @classmethod
    def from_metadata(
        cls, metadata: object, *, full_name: str, version: str, is_topic: Callable[[str], bool]
    ) -> ManagedSettings:
        """Return the settings in a request's Metadata, with Salesforce's defaults for missing elements.

        :param full_name: default of the label.
        :param version: the API version of the request, the default of the version.
        :param is_topic: returns whether the Pub/Sub API has a topic of this name.
        :raises ApiError: if an element is missing or unknown, or has an invalid value.
        """
        if not isinstance(metadata, Mapping):
            raise ApiError("JSON_PARSER_ERROR", "Metadata must be a JSON object")
        given = {name: value for name, value in metadata.items() if value not in (None, "")}
        _check_elements(metadata, given)
        settings = cls(**{"label": full_name, "version": version} | {_ELEMENTS[name]: v for name, v in given.items()})
        settings.check()
        if not is_topic(settings.topic_name):
            raise ApiError("INVALID_INPUT", "The topicName field is invalid")
        return settings

    def check(self) -> None:
        """Validate the values.

        :raises ApiError: if an element has a value that Salesforce refuses.
        """
        if self.state == "PAUSE":
            message = "You can create a managed event subscription state field only to RUN or STOP"
            raise ApiError("INVALID_INPUT", message)
        _check_choice("EventSubscriptionAdminState", self.state, (RUN, STOP))
        for preset in (self.default_replay, self.error_recovery_replay):
            _check_choice("EventSubscriptionReplayPreset", preset, (LATEST, EARLIEST))
        _check_length("Label", self.label)

    def check_change(self, settings: ManagedSettings) -> None:
        """Validate a change to other settings. The topic of a subscription cannot change.

        :raises ApiError: if ``settings`` name another topic.
        """
        if settings.topic_name != self.topic_name:
            raise ApiError("INVALID_INPUT", "You can't change the topicName field of a managed event subscription")


def check_full_name(name: object) -> str:
    """Validate and return the name of a new subscription.

    :raises ApiError: if the name is missing or invalid as a developer name.
    """
    if name in (None, ""):
        raise ApiError("REQUIRED_FIELD_MISSING", "Required fields are missing: [FullName]", fields=("FullName",))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = (
            f"The {OBJECT} API Name can only contain underscores and alphanumeric characters. It must be unique, "
            "begin with a letter, not include spaces, not end with an underscore, and not contain two consecutive "
            "underscores."
        )
        raise ApiError("FIELD_INTEGRITY_EXCEPTION", message, fields=("FullName",))
    _check_length("FullName", name)
    return name


def _check_elements(metadata: Mapping[Any, Any], given: Mapping[Any, Any]) -> None:
    unknown = [name for name in metadata if name not in _ELEMENTS]
    if unknown:
        raise ApiError("JSON_PARSER_ERROR", f"Unrecognized field '{unknown[0]}' in Metadata of {OBJECT}")
    missing = [name for name in _REQUIRED if name not in given]
    if missing:
        raise ApiError("REQUIRED_FIELD_MISSING", f"Required fields are missing: [{', '.join(missing)}]")
    wrong = [name for name, value in given.items() if not isinstance(value, str)]
    if wrong:
        raise ApiError("JSON_PARSER_ERROR", f"Cannot deserialize instance of string from the value of {wrong[0]}")


def _check_choice(kind: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ApiError("JSON_PARSER_ERROR", f"Cannot deserialize instance of {kind} from VALUE_STRING value {value}")


def _check_length(field: str, value: str) -> None:
    if len(value) > LONGEST_NAME:
        message = f"{field}: data value too large: {value} (max length={LONGEST_NAME})"
        raise ApiError("STRING_TOO_LONG", message, fields=(field,))
