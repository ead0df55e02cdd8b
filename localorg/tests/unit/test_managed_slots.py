"""Slots of managed subscriptions."""

from __future__ import annotations

from sfstream_localorg.managed.slots import Slots


class SlotClock:
    def __init__(self) -> None:
        self.now = 50.0
        self.release = 15.0
        self.half_open = 900.0

    def slots(self) -> Slots:
        return Slots(
            release_seconds=lambda: self.release, half_open_seconds=lambda: self.half_open, clock=lambda: self.now
        )


def test_slot_has_one_holder_at_a_time() -> None:
    slots = SlotClock().slots()
    assert slots.state("a") == "free"
    assert slots.take("a", "first")
    assert not slots.take("a", "second")
    assert slots.take("b", "second")
    assert (slots.state("a"), slots.freed_at("a", "first")) == ("active", None)


def test_slot_stays_occupied_after_the_end_of_its_stream() -> None:
    clock = SlotClock()
    slots = clock.slots()
    slots.take("a", "first")
    slots.leave("a", "first")
    assert (slots.state("a"), slots.take("a", "second")) == ("held", False)
    clock.now += 15
    assert (slots.state("a"), slots.take("a", "second")) == ("free", True)


def test_slot_of_a_vanished_client_is_half_open_until_the_timeout() -> None:
    clock = SlotClock()
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
    slots.leave("a", "first")  # the late end of the old stream
    assert slots.state("a") == "active"


def test_shorter_timeout_applies_to_occupied_slots() -> None:
    clock = SlotClock()
    slots = clock.slots()
    slots.take("a", "first")
    slots.vanish("a")
    clock.half_open = 0.0
    assert slots.state("a") == "free"


def test_vanish_requires_an_active_stream() -> None:
    slots = SlotClock().slots()
    assert not slots.vanish("a")
    slots.take("a", "first")
    slots.leave("a", "first")
    assert not slots.vanish("a")
    assert slots.state("a") == "held"
