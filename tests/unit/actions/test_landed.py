"""The ``windows`` argument of a Spark job: results of drains, manifest URLs, and lists of both."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.actions.windows_argument import WindowsArgument, reason_to_skip
from airflow_provider_sfstream.exceptions import ConfigurationError

FROM, TO, NEXT = (f"2026-11-20T{hour}:00:00+00:00" for hour in (10, 11, 12))


def interval(*windows: dict[str, Any], bounds: tuple[str, str] = (FROM, TO)) -> dict[str, Any]:
    """Return the result of a drain in interval mode."""
    return {
        "mode": "interval",
        "event_time_from": bounds[0],
        "event_time_to": bounds[1],
        "windows": list(windows),
        "event_count": sum(window["event_count"] for window in windows),
    }


def window(name: str, event_count: int = 3) -> dict[str, Any]:
    return {"manifest_url": f"s3://lake/{name}/manifest.json", "event_count": event_count}


def landed(windows: Any, event_time_from: str | None = None, event_time_to: str | None = None) -> WindowsArgument:
    return WindowsArgument.from_argument(windows, event_time_from, event_time_to)


def test_windows_are_drain_results_urls_and_lists_of_both() -> None:
    got = landed([window("a"), "s3://lake/b/manifest.json", [window("a")], window("c", 0), None])
    assert got.manifests == ("s3://lake/a/manifest.json", "s3://lake/b/manifest.json", "s3://lake/a/manifest.json")
    assert (got.event_time_from, got.event_time_to) == (None, None)


def test_interval_result_supplies_its_nonempty_windows_and_its_bounds() -> None:
    got = landed(interval(window("a"), window("b", 0), window("c")))
    assert got == WindowsArgument(("s3://lake/a/manifest.json", "s3://lake/c/manifest.json"), FROM, TO)
    assert landed(interval()) == WindowsArgument((), FROM, TO)


def test_several_results_of_one_interval_are_one_job() -> None:
    assert landed([interval(window("a")), interval(window("b")), None]) == WindowsArgument(
        ("s3://lake/a/manifest.json", "s3://lake/b/manifest.json"), FROM, TO
    )


def test_a_missing_result_is_no_result_without_events() -> None:
    assert reason_to_skip([window("a", 0)]) == "There are no windows with events to process."
    for windows in (None, [], [None, []]):
        assert reason_to_skip(windows).startswith("No result of a drain was received")


@pytest.mark.parametrize(
    "windows",
    [
        [interval(window("a")), interval(window("b"), bounds=(TO, NEXT))],
        [interval(window("a")), window("b")],
        [interval(window("a")), "s3://lake/b/manifest.json"],
    ],
)
def test_windows_of_several_intervals_are_refused(windows: Any) -> None:
    with pytest.raises(ConfigurationError, match="several intervals"):
        landed(windows)


def test_explicit_bounds_apply_to_windows_and_may_repeat_those_of_an_interval() -> None:
    assert landed(window("a"), FROM, TO) == WindowsArgument(("s3://lake/a/manifest.json",), FROM, TO)
    assert (
        landed(interval(window("a")), "2026-11-20T11:00:00+01:00", "2026-11-20T12:00:00+01:00").event_time_from == FROM
    )


@pytest.mark.parametrize(
    ("bounds", "remedy"),
    [
        ((FROM, NEXT), "differ from the interval"),
        ((FROM, None), "both event_time_from and event_time_to"),
        (("2026-11-20T10:00:00", "2026-11-20T11:00:00"), "time zone"),
        (("ten", "eleven"), "ISO 8601"),
    ],
)
def test_bounds_that_contradict_the_interval_are_refused(bounds: tuple[Any, Any], remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        landed(interval(window("a")), *bounds)


@pytest.mark.parametrize("windows", [7, [b"x"], {"window_id": "w1"}, "{'a': 1}", {"mode": "interval", "windows": []}])
def test_invalid_windows_argument_is_refused(windows: Any) -> None:
    with pytest.raises(ConfigurationError, match="windows"):
        landed(windows)
