"""Nested and flat names of the parts of compound fields."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.privacy.field_rules import other_names


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        ("mailingaddress.street", "mailingstreet"),
        ("personmailingaddress.countrycode", "personmailingcountrycode"),
        ("address.postalcode", "postalcode"),
        ("home__c.street", "home__street__s"),
        ("ns__place__c.latitude", "ns__place__latitude__s"),
        ("name.middlename", "middlename"),
    ],
)
def test_nested_and_flat_names_of_a_part_are_equivalent(nested: str, flat: str) -> None:
    assert list(other_names(nested)) == [flat]
    assert list(other_names(flat)) == [nested]
    assert flat in other_names(nested.partition(".")[0])


def test_person_account_fields_have_their_own_part_names() -> None:
    assert list(other_names("home__pc.city")) == ["home__city__ps", "home__city__pc"]
    assert list(other_names("home__city__pc")) == ["home__pc.city"]
    assert "home__city__s" not in other_names("home__pc")


@pytest.mark.parametrize("name", ["phone", "phone__c.area.code", "order.name", "lastname__r.city", "home__c.city.x"])
def test_field_without_parts_has_no_other_names(name: str) -> None:
    assert list(other_names(name)) == []
