"""Who may stream from a managed subscription, and when."""

from __future__ import annotations

from sfstream_localorg.managed.slots import Slots


class Clock:
    def __init__(self) -> None:
        self.now = 50.0
        self.release = 15.0
        self.half_open = 900.0

    def slots(self) -> Slots:
        return Slots(
            release_seconds=lambda: self.release, half_open_seconds=lambda: self.half_open, clock=lambda: self.now
        )


def test_one_holder_at_a_time() -> None:
    slots = Clock().slots()
    assert slots.state("a") == "free"
    assert slots.take("a", "first")
    assert not slots.take("a", "second")
    assert slots.take("b", "second")
    assert (slots.state("a"), slots.freed_at("a", "first")) == ("active", None)


def test_a_slot_is_held_after_the_end() -> None:
    clock = Clock()
    slots = clock.slots()
    slots.take("a", "first")
    slots.leave("a", "first")
    assert (slots.state("a"), slots.take("a", "second")) == ("held", False)
    clock.now += 15
    assert (slots.state("a"), slots.take("a", "second")) == ("free", True)


def test_a_vanished_client_holds_longer_and_its_end_is_not_noticed() -> None:
    clock = Clock()
    slots = clock.slots()
    slots.take("a", "first")
    assert slots.vanish("a")
    clock.now += 100
    slots.leave("a", "first")
    assert (slots.state("a"), slots.freed_at("a", "first")) == ("half_open", 950.0)
    clock.now = 949.0
    assert not slots.take("a", "second")
    clock.now = 950.0
    assert slots.take("a", "second")
    slots.leave("a", "first")  # the old stream, ended at last
    assert slots.state("a") == "active"


def test_a_shorter_time_is_for_slots_held_already_too() -> None:
    clock = Clock()
    slots = clock.slots()
    slots.take("a", "first")
    slots.vanish("a")
    clock.half_open = 0.0
    assert slots.state("a") == "free"


def test_only_a_stream_can_vanish() -> None:
    slots = Clock().slots()
    assert not slots.vanish("a")
    slots.take("a", "first")
    slots.leave("a", "first")
    assert not slots.vanish("a")
    assert slots.state("a") == "held"
