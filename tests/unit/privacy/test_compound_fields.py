"""The names that a part of a compound field has."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.privacy.compound_fields import other_names


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
def test_a_part_is_another_name_of_itself_and_the_compound_field_one_of_each(nested: str, flat: str) -> None:
    assert list(other_names(nested)) == [flat]
    assert list(other_names(flat)) == [nested]
    assert flat in other_names(nested.partition(".")[0])


def test_parts_of_a_custom_field_that_a_person_account_has_of_its_contact() -> None:
    assert list(other_names("home__pc.city")) == ["home__city__ps", "home__city__pc"]
    assert list(other_names("home__city__pc")) == ["home__pc.city"]
    assert "home__city__s" not in other_names("home__pc")


@pytest.mark.parametrize("name", ["phone", "phone__c.area.code", "order.name", "lastname__r.city", "home__c.city.x"])
def test_a_field_that_is_no_part(name: str) -> None:
    assert list(other_names(name)) == []
