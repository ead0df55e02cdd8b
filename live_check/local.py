"""The local org for the comparison: a new org with the metadata of ``deploy/salesforce``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

from live_check.login import log_in_with
from live_check.probe import BACKLOG
from live_check.run import SAMPLE_EVENT, ProbedOrg
from live_check.state import left_replay_id
from sfstream_localorg.process import LocalOrg

METADATA = Path(__file__).resolve().parent.parent / "deploy/salesforce/events/main/default"
_TYPES = {"Number": "double", "Text": "string"}
EXPIRED_SECONDS = 73 * 3600
CHANNELS, MEMBERS = "PlatformEventChannel", "PlatformEventChannelMember"
LISTS = {"enrichedFields"}


def deploy(org: LocalOrg) -> None:
    """Create the metadata of ``deploy/salesforce`` in a local org."""
    for folder in sorted((METADATA / "objects").iterdir()):
        fields = [_elements(path) for path in sorted((folder / "fields").iterdir())]
        org.define(folder.name, **{str(field["fullName"]): _TYPES[str(field["type"])] for field in fields})
    for kind in (CHANNELS, MEMBERS, "ManagedEventSubscription"):
        folder = METADATA / f"{kind[0].lower()}{kind[1:]}s"
        for path in sorted(folder.iterdir()):
            body = {"FullName": path.name.partition(".")[0], "Metadata": _elements(path)}
            org.rest("POST", f"/tooling/sobjects/{kind}", body)


def _elements(path: Path) -> dict[str, Any]:
    """Return the elements of a metadata file in the format of the Tooling API."""
    elements: dict[str, Any] = {}
    for child in ElementTree.parse(path).getroot():  # noqa: S314 - a file of this repository
        name = child.tag.partition("}")[2]
        if len(child):
            value: Any = {each.tag.partition("}")[2]: each.text for each in child}
        else:
            value = child.text
        if name in LISTS:
            elements.setdefault(name, []).append(value)
        else:
            elements[name] = value
    return elements


@contextmanager
def local_org(data_dir: Path, knobs: Mapping[str, Any]) -> Iterator[LocalOrg]:
    """Start a local org with the sample metadata and one event."""
    with LocalOrg.running(data_dir) as org:
        deploy(org)
        org.publish(SAMPLE_EVENT, [{"Order_Number__c": "first"}])
        if knobs:
            org.knobs(**knobs)
        yield org


@contextmanager
def probed_local_org(knobs: Mapping[str, Any], *, expired: bool, backlog: int = BACKLOG) -> Iterator[ProbedOrg]:
    """Start a local org and log in to it in the same way as to a real org.

    :param expired: whether to publish an event and let it expire first.
    :param backlog: number of events for the probe that needs a backlog.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="live-check-"))
        org = stack.enter_context(local_org(Path(folder), knobs))
        probed = ProbedOrg(log_in_with(org.airflow_connection()))
        stack.callback(probed.close)
        probed.backlog = backlog
        if expired:
            probed.left_replay_id = left_replay_id(probed)
            org.knobs(clock_offset_seconds=EXPIRED_SECONDS)
        yield probed
