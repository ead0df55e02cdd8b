"""Field protection rules: the fields that they cover, their treatment, and the rules recorded with a table."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.documents import from_document, to_document
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, Coverage, FieldRules, Treatment, unmet

KEY = "correct horse battery staple"
RULES = FieldRules.from_arguments(["Phone"], ["Name.FirstName"], ["Contact.Email"], KEY)
FLAT = {"name.firstname": {"firstname"}, "firstname": {"name.firstname"}}


@pytest.mark.parametrize(
    ("path", "table", "expected"),
    [
        ("Phone", "Account", "exclude"),
        ("PHONE", "Account", "exclude"),
        ("Phone.Area", "Account", "exclude"),
        ("Phone__c", "Account", None),
        ("Name.FirstName", "Account", "mask"),
        ("Name", "Account", None),
        ("Name.LastName", "Account", None),
        ("FirstName", "Account", "mask"),
        ("Email", "Contact", "hash"),
        ("Email", "Account", None),
    ],
)
def test_rule_covers_its_fields(path: str, table: str, expected: Treatment | None) -> None:
    assert Coverage(RULES, [table], FLAT).treatment_of(path.split(".")) == expected


def test_value_with_inseparable_parts_is_treated_as_a_whole() -> None:
    assert Coverage(RULES, ["Account"]).treatment_of(["Name"], is_opaque=True) == "mask"


def test_strictest_of_several_rules_applies() -> None:
    rules = FieldRules.from_arguments(["Address.Street"], ["Contact.Address"], ["Address"], KEY)
    coverage = Coverage(rules, ["Contact"])
    assert [coverage.treatment_of(path.split(".")) for path in ("Address.Street", "Address.City", "Address")] == [
        "exclude",
        "mask",
        "mask",
    ]


def test_rules_without_a_field_are_reported() -> None:
    coverages = [Coverage(RULES, [table]) for table in ("Account", "Contact")]
    for coverage in coverages:
        coverage.treatment_of(["Phone"])
    coverages[1].treatment_of(["Email"])
    assert unmet(RULES, coverages) == ["Name.FirstName"]


def test_hash_equals_hmac_of_the_standard_library() -> None:
    expected = hmac.new(KEY.encode(), "josé@example.com".encode(), hashlib.sha256).hexdigest()
    assert RULES.text("josé@example.com", "hash") == expected
    assert RULES.text("Ada", "mask") == "***"
    assert RULES.text("Ada", "exclude") is None


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (("Phone", [], []), r"exclude_fields='Phone' must be a list"),
        (([], [7], []), r"mask_fields=\[7\] must be a list"),
        (([], [], ["Phone; DROP"]), r"hash_fields: 'Phone; DROP' is not a field name"),
        ((["Id"], [], []), r"exclude_fields: Id identifies rows"),
        ((["Phone"], ["phone"], []), r"phone is listed in both exclude_fields and mask_fields"),
    ],
)
def test_invalid_rule_arguments_are_refused(rules: tuple[Any, Any, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        FieldRules.from_arguments(*rules)


@pytest.mark.parametrize(("key", "why"), [(None, "is missing"), ("", "is missing"), ("short", "fewer than 16")])
def test_hashes_need_a_key_of_sufficient_length(key: str | None, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"key for the hash of Email .*{why}.*hash_conn_id"):
        FieldRules.from_arguments([], [], ["Email"]).with_key(key)
    assert FieldRules.from_arguments(["Email"], [], []).with_key(key).key == b""


def test_the_key_is_in_no_document_and_no_repr() -> None:
    document = json.dumps(to_document(RULES))
    assert KEY not in document + repr(RULES)
    assert from_document(FieldRules, json.loads(document)) == RULES.recorded()


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (NO_RULES, r"T is written with exclude_fields=\['Phone'\], but in this job the field has no rule"),
        (FieldRules.from_arguments([], ["Phone"], []), "in this job the field is listed in mask_fields"),
        (FieldRules.from_arguments(["Phone"], [], []), r"mask_fields=\['Name.FirstName'\]"),
        (
            FieldRules.from_arguments(["Phone"], ["Name.FirstName"], ["Contact.Email"], KEY + "!"),
            "hashes of Contact.Email from another key",
        ),
    ],
)
def test_job_that_would_store_protected_fields_is_refused(rules: FieldRules, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{text}.*Nothing was written"):
        rules.check_keep(RULES.recorded(), "T")


def test_a_job_may_have_more_rules_than_a_table() -> None:
    FieldRules.from_arguments(["PHONE", "Fax"], ["Name.FirstName"], ["Contact.Email"], KEY).check_keep(
        RULES.recorded(), "T"
    )
    RULES.check_keep(NO_RULES, "T")
