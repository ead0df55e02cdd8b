from __future__ import annotations

from typing import Any

import pytest

from sfstream_localorg.cometd.faults import DROP, FAIL, LOSE, CometdFaults

CONNECT, SUBSCRIBE = "/meta/connect", "/meta/subscribe"


def outcomes(faults: CometdFaults, count: int, **about: Any) -> list[bool]:
    return [faults.take(DROP, CONNECT, **about) is not None for _ in range(count)]


def test_cometd_fault_applies_once_by_default() -> None:
    faults = CometdFaults()
    faults.add(DROP, {})
    assert outcomes(faults, 3) == [True, False, False]
    faults.add(DROP, {"times": 2})
    assert outcomes(faults, 3) == [True, True, False]
    faults.add(DROP, {"times": None})
    assert outcomes(faults, 3) == [True] * 3
    faults.clear()
    assert outcomes(faults, 1) == [False]


def test_cometd_fault_applies_to_every_nth_matching_message() -> None:
    faults = CometdFaults()
    faults.add(DROP, {"times": None, "every": 3, "topic": "/u/a"})
    assert outcomes(faults, 2, topics={"/u/b"}) == [False, False]
    assert faults.take(DROP, SUBSCRIBE, {"/u/a"}) is None
    assert faults.take(LOSE, CONNECT, {"/u/a"}) is None
    assert outcomes(faults, 6, topics={"/u/a", "/u/b"}) == [False, False, True, False, False, True]


def test_cometd_fault_with_a_seed_applies_repeatably() -> None:
    runs = []
    for _ in range(2):
        faults = CometdFaults()
        faults.add(DROP, {"times": None, "probability": 0.3, "seed": 5})
        runs.append(outcomes(faults, 200))
    assert runs[0] == runs[1]
    assert 30 < sum(runs[0]) < 90


def test_two_cometd_faults_of_one_name_apply_one_after_the_other() -> None:
    faults = CometdFaults()
    faults.add(FAIL, {"error": "first", "channel": SUBSCRIBE})
    faults.add(FAIL, {"error": "second", "channel": "*"})
    taken = [faults.take(FAIL, SUBSCRIBE) for _ in range(3)]
    assert [one and one["error"] for one in taken] == ["first", "second", None]


def test_cometd_faults_are_listed_as_json_values() -> None:
    faults = CometdFaults()
    faults.add(LOSE, {"part": 0.5, "every": 2})
    assert faults.as_list() == [
        {
            "name": LOSE,
            "channel": CONNECT,
            "parameters": {"part": 0.5},
            "topic": None,
            "times": 1,
            "every": 2,
            "probability": 1.0,
            "seed": None,
            "seen": 0,
        }
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"times": 0},
        {"times": True},
        {"every": 0},
        {"probability": 1.5},
        {"channel": "x"},
        {"part": -1},
        {"kind": "json"},
    ],
)
def test_invalid_parameters_of_a_cometd_fault_are_refused(body: dict[str, Any]) -> None:
    faults = CometdFaults()
    with pytest.raises(ValueError):
        faults.add(LOSE, body)
    assert faults.as_list() == []
