from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.pruned import PrunedWindows, write_pruned
from airflow_provider_sfstream.replay_windows.committed_order import newest_committed, windows_after
from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream
from tests.support.landing_files import RECEIVED_AT, land_window

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")


class Chain:
    """Chain of windows, named by letters and landed in alphabetical order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = LandingCatalog(Landing.from_url(str(folder)))

    def land(self, letters: str, previous: str | None = None, kind: str = "live") -> None:
        for letter in letters:
            due = RECEIVED_AT + timedelta(minutes=ord(letter))
            run = RunIdentity("dag", "task", letter, due)
            link = previous and name(previous)
            land_window(self.folder, name(letter), [], {}, previous_window_id=link, kind=kind, run=run)
            previous = letter

    def remove(self, letter: str) -> None:
        Path(self.catalog.landing.manifest_path(STREAM, name(letter))).unlink()

    def after(self, start: str | None, head: str, recorded: str | None = None) -> str:
        store = None if recorded is None else lambda: [self.window(letter) for letter in recorded]
        found = windows_after(self.catalog, STREAM, start and name(start), name(head), store)
        return "".join(manifest.window.window_id[-1] for manifest in found)

    def window(self, letter: str) -> ReplayWindow:
        manifest = self.catalog.read_manifest(STREAM, name(letter))
        assert manifest is not None
        return manifest.window


def name(letter: str) -> str:
    return f"20260110T0000{ord(letter):03}Z-{letter}"


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_newest_window_is_committed_by_a_following_window_or_the_position(chain: Chain) -> None:
    assert newest_committed(chain.catalog, STREAM) is None
    chain.land("abc")
    assert newest_committed(chain.catalog, STREAM) == name("b")
    assert newest_committed(chain.catalog, STREAM, name("c")) == name("c")


def test_window_of_the_losing_run_is_never_read(chain: Chain) -> None:
    chain.land("ab")
    chain.land("c", previous="b")
    chain.land("d", previous="b")  # drained from the same position as c, and followed
    chain.land("e", previous="d")
    assert newest_committed(chain.catalog, STREAM) == name("d")
    assert chain.after(None, "d") == "abd"
    assert chain.after("b", "d") == "d"


def test_windows_before_the_place_are_not_returned(chain: Chain) -> None:
    chain.land("abc")
    assert chain.after("c", "b") == ""
    assert chain.after("c", "c") == ""
    assert chain.after("a", "c") == "bc"


def test_windows_pruned_before_the_place_are_not_required(chain: Chain) -> None:
    chain.land("abcd")
    chain.remove("a")
    with pytest.raises(ManifestError, match=r"window .*-a, which follows the beginning .* is missing"):
        chain.after(None, "d")
    earlier = datetime(2026, 1, 9, 23, tzinfo=UTC)  # too early to have removed the window
    write_pruned(chain.catalog.landing, PrunedWindows(STREAM, earlier, earlier, "dag.prune", 1))
    with pytest.raises(ManifestError, match=r"-a, which .* is missing"):
        chain.after(None, "d")
    write_pruned(chain.catalog.landing, PrunedWindows(STREAM, RECEIVED_AT, RECEIVED_AT, "dag.prune", 2))
    assert chain.after(None, "d") == "bcd"
    assert chain.after("b", "d") == "cd"
    chain.remove("b")
    assert chain.after("b", "d") == "cd"
    chain.remove("c")
    with pytest.raises(ManifestError, match=r"window .*-c, which follows window .*-b .* is missing: .*pruned, or lost"):
        chain.after("b", "d")


@pytest.mark.parametrize("start", [None, "a", "b"])
def test_windows_before_a_reset_position_need_the_replay_store(chain: Chain, start: str | None) -> None:
    chain.land("ab")
    chain.land("x", kind="backfill")
    chain.land("c", previous="a")  # of the losing run
    chain.land("de")  # starts a new chain
    with pytest.raises(ManifestError, match=r"set back by hand.*Set the option replay_store"):
        chain.after(start, "e")
    assert chain.after(start, "e", recorded="abdex") == {None: "abde", "a": "bde", "b": "de"}[start]
    with pytest.raises(ManifestError, match="set back by hand"):
        chain.after(start, "e", recorded="de" if start else "d")
    chain.remove("d")
    with pytest.raises(ManifestError, match=r"-d, which .* is missing"):
        chain.after(start, "e")
