from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError
from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, StreamState
from airflow_provider_sfstream.tables.replica.windows import check_windows, new_windows, numbered

DUE = datetime(2026, 1, 10, tzinfo=UTC)
ROOT = "file:///lake/org/pubsub/data~topic/airflow/windows"


def url_of(window_id: str) -> str:
    return f"{ROOT}/2026/01/10/{window_id}/manifest.json"


def window(number: int, *, topic: str = "/data/ChangeEvents", encoding: Any = "avro", **values: Any) -> Manifest:
    """Return the window ``number`` of a chain. Each window has two events."""
    window_id = values.get("window_id", f"20260110T0000{number:02d}Z-{number}")
    landed = ReplayWindow(
        **{
            "window_id": window_id,
            "kind": "live",
            "after": bytes([number]),
            "through": bytes([number + 1]),
            "event_count": 2,
            "first_event_time": None,
            "last_event_time": None,
            "manifest_url": url_of(window_id),
            "run": RunIdentity("dag", "drain", "run", DUE),
            "previous_window_id": f"20260110T0000{number - 1:02d}Z-{number - 1}" if number else None,
            **values,
        }
    )
    return Manifest(
        stream=Stream("00D000000000001EAA", "pubsub", topic),
        window=landed,
        fence=0,
        files=(WindowFile("part-0.parquet", landed.event_count, 1, ""),),
        schemas={},
        payload_bytes=1,
        stop_reason="caught_up",
        started_at=DUE,
        finished_at=DUE,
        provider_version="0",
        payload_encoding=encoding,
    )


class Manifests(dict[str, Manifest]):
    """Manifests by URL, with a record of the URLs that were read."""

    def __init__(self, windows: list[Manifest]) -> None:
        super().__init__({each.window.manifest_url: each for each in windows})
        self.read: list[str] = []

    def __call__(self, url: str) -> Manifest:
        self.read.append(url)
        try:
            return self[url]
        except KeyError:
            raise ManifestError(f"There is no manifest at {url}.") from None


def state_after(windows: list[Manifest], remembered: int = 1000) -> StreamState:
    """Return the state of a replica after it applied these windows."""
    places = numbered((each.window for each in windows), 1)
    recent = tuple(each.window.window_id for each in windows)[-remembered:]
    through = replay_id_to_text(windows[-1].window.through)
    return StreamState(**vars(windows[-1].stream), last=places[-1], through=through, recent=recent)


def ids(found: list[Any]) -> list[str]:
    return [each.manifest.window.window_id for each in found]


CHAIN = [window(number) for number in range(8)]


@given(st.integers(0, 7), st.sets(st.integers(0, 7), min_size=1), st.randoms())
def test_new_windows_complete_the_chain_without_holes(
    applied: int, given_numbers: set[int], shape: random.Random
) -> None:
    chosen = [CHAIN[number] for number in given_numbers]
    shape.shuffle(chosen)
    state = state_after(CHAIN[:applied]) if applied else None
    found = new_windows(chosen, state, Manifests(CHAIN))
    # Without a state the replica begins with the first window of the input.
    first = applied if applied else min(given_numbers)
    assert ids(found) == [each.window.window_id for each in CHAIN[first : max(given_numbers) + 1]]
    assert not any(each.breaks for each in found)


def test_recently_applied_windows_need_no_reads() -> None:
    manifests = Manifests(CHAIN)
    assert new_windows(CHAIN[:5], state_after(CHAIN[:5]), manifests) == []
    assert manifests.read == []


@pytest.mark.parametrize("number", [0, 3])
def test_windows_applied_long_ago_are_skipped(number: int) -> None:
    assert new_windows([CHAIN[number]], state_after(CHAIN, remembered=2), Manifests(CHAIN)) == []


class Pages:
    """IDs of a long chain, 1,000 on a page, with the number of pages that were read."""

    def __init__(self, ids: list[str]) -> None:
        self.pages = [ids[at : at + 1_000] for at in range(0, len(ids), 1_000)]
        self.read = 0

    def __call__(self) -> Iterator[list[str]]:
        for page in reversed(self.pages):
            self.read += 1
            yield page


@pytest.mark.parametrize("age", [100, 10_000, 100_000])
def test_reads_depend_only_on_the_number_of_new_windows(age: int) -> None:
    old = [f"20250101T000000Z-{number:06d}" for number in range(age)]
    pages, manifests = Pages(old), Manifests(CHAIN)
    state = replace(state_after(CHAIN[:5]), pages=len(pages.pages))
    assert ids(new_windows([CHAIN[7]], state, manifests, pages)) == [each.window.window_id for each in CHAIN[5:]]
    assert (len(manifests.read), pages.read) == (2, 0)
    manifests.read.clear()
    for number in (0, age // 2, age - 1):
        ancient = window(0, window_id=old[number], previous_window_id="20250101-gone")
        assert new_windows([ancient], state, manifests, pages) == []
    assert manifests.read == []


def test_window_dated_earlier_by_a_wrong_clock_is_new() -> None:
    late = window(8, window_id="20240101T000000Z-late")
    pages = Pages(["20250101T000000Z-1"])
    state = replace(state_after(CHAIN[1:]), pages=1)
    assert ids(new_windows([late], state, Manifests(CHAIN), pages)) == [late.window.window_id]
    assert pages.read == 1


def test_a_window_from_before_the_replica_is_left_out() -> None:
    state = state_after(CHAIN[3:6])
    assert new_windows([CHAIN[1]], state, Manifests(CHAIN)) == []


def test_missing_intermediate_window_is_an_error() -> None:
    with pytest.raises(ManifestError, match="no manifest"):
        new_windows([CHAIN[5]], state_after(CHAIN[:3]), Manifests([*CHAIN[:4], *CHAIN[5:]]))


def test_two_successors_of_one_window_are_an_error() -> None:
    fork = window(9, previous_window_id=CHAIN[2].window.window_id)
    with pytest.raises(ManifestError, match="another window that follows it"):
        new_windows([fork], state_after(CHAIN[:6]), Manifests([*CHAIN, fork]))


def test_circle_of_windows_is_an_error() -> None:
    one = window(10, previous_window_id=window(11).window.window_id)
    two = window(11)
    with pytest.raises(ManifestError, match="cycle"):
        new_windows([two], state_after(CHAIN), Manifests([*CHAIN, one, two]))


@pytest.mark.parametrize(("after", "breaks"), [(CHAIN[-1].window.through, False), (b"w", True), (None, True)])
def test_new_chain_breaks_unless_it_continues_the_last_position(after: bytes | None, breaks: bool) -> None:
    restarted = window(20, previous_window_id=None, after=after)
    found = new_windows([restarted], state_after(CHAIN), Manifests([*CHAIN, restarted]))
    assert [(each.manifest.window.window_id, each.breaks) for each in found] == [(restarted.window.window_id, breaks)]


def test_window_with_a_gap_breaks_the_chain() -> None:
    (found,) = new_windows([window(8, gap=Gap(None, None, None, DUE, "lost"))], state_after(CHAIN), Manifests(CHAIN))
    assert found.breaks


def test_backfill_windows_are_left_out() -> None:
    backfill = window(30, kind="backfill", previous_window_id=None)
    assert ids(new_windows([backfill, CHAIN[0]], None, Manifests(CHAIN))) == [CHAIN[0].window.window_id]


def test_windows_are_numbered_consecutively() -> None:
    places = numbered([CHAIN[0].window, window(1, event_count=0).window, CHAIN[2].window], 5)
    assert [(place.first_sequence, place.event_count) for place in places] == [(5, 2), (7, 0), (7, 2)]
    assert places[0] == AppliedWindow(CHAIN[0].window.window_id, CHAIN[0].window.manifest_url, 5, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [({"encoding": "json"}, "api='pubsub'"), ({"topic": "/event/Order__e"}, "has no change events")],
)
def test_windows_without_change_events_are_refused(values: dict[str, Any], message: str) -> None:
    check_windows([CHAIN[0]])
    with pytest.raises(ConfigurationError, match=message):
        check_windows([window(0, **values)])


def test_invalid_previous_window_id_is_an_error() -> None:
    with pytest.raises(ManifestError, match="names an invalid window ID"):
        new_windows([window(9, previous_window_id="../../secret")], state_after(CHAIN), Manifests(CHAIN))


def test_landing_that_was_lost_and_drained_again_is_an_error() -> None:
    restarted = window(9, previous_window_id=None)
    with pytest.raises(ManifestError, match="There is no manifest"):
        new_windows([restarted], state_after(CHAIN), Manifests([restarted]))
