from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.source.options import SourceOptions
from pyspark_sfstream.landed import Heads, LandedSource, heads_of, offset_of
from tests.support.landing_files import LandedEvent, land_window

SCHEMA = {"type": "record", "name": "Order__e", "fields": [{"name": "a", "type": "int"}]}


def land(folder: Path, topic: str, letters: str, events: int = 2) -> None:
    for place, letter in enumerate(letters):
        previous = name(letters[place - 1]) if place else None
        made = [LandedEvent(number, "one", {"a": number}) for number in range(events)]
        land_window(folder, name(letter), made, {"one": SCHEMA}, topic=topic, previous_window_id=previous)


def name(letter: str) -> str:
    return f"20260110T00000{ord(letter) - ord('a')}Z-{letter}"


def source(folder: Path) -> LandedSource:
    return LandedSource(SourceOptions.from_options({"path": str(folder), "topic": "/event/A__e,/event/B__e"}))


def letters(heads: Heads) -> str:
    return "".join(head[-1] for _, head in sorted(heads.items()))


def test_batch_has_at_least_one_window_and_at_most_max_events(tmp_path: Path) -> None:
    land(tmp_path, "/event/A__e", "acf")
    land(tmp_path, "/event/B__e", "bde")
    read = source(tmp_path)
    heads = read.heads()
    assert letters(heads) == "cd"
    place, steps = dict[str, str](), []
    while place != heads:
        place = read.up_to(place, heads, 4)
        steps.append(letters(place))
    assert steps == ["ab", "cd"]
    assert letters(read.up_to({}, heads, 1)) == "a"
    assert read.up_to({}, heads, None) == heads


def test_read_place_never_moves_back(tmp_path: Path) -> None:
    land(tmp_path, "/event/A__e", "abcd")
    read = source(tmp_path)
    heads = read.heads()
    (key,) = heads
    assert read.up_to(heads, {key: name("a")}, None) == heads
    assert read.windows(heads, {key: name("a")}) == []


def test_manifests_are_not_read_again(tmp_path: Path) -> None:
    land(tmp_path, "/event/A__e", "abcde")
    read = source(tmp_path)
    heads = read.heads()
    (key,) = heads
    first = read.windows({}, heads)
    for manifest in tmp_path.rglob("manifest.json"):
        manifest.unlink()
    assert read.windows({key: name("a")}, heads) == first[1:]
    assert read.windows({key: name("a")}, {key: name("c")}) == first[1:3]
    assert read.windows({}, {key: name("b")}) == first[:2]


def test_offset_of_a_newer_version_is_refused() -> None:
    assert heads_of(offset_of({"b": "2", "a": "1"})) == {"a": "1", "b": "2"}
    with pytest.raises(ConfigurationError, match="an offset of version 2; this package reads version 1"):
        heads_of({"version": 2, "streams": {}})


def test_import_of_the_source_loads_no_large_library() -> None:
    program = "import sys, pyspark_sfstream; print({'pyarrow', 'numpy', 'fsspec', 'airflow'} & sys.modules.keys())"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
