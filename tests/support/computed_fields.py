"""Computed fields of the local org, which no change event carries: formulas, also of the parent, and a roll-up."""

from __future__ import annotations

from typing import Any

from tests.support.localorg import LocalOrg

COMPUTED: dict[str, tuple[dict[str, Any], ...]] = {
    "Account": (
        {"name": "Owed_With_Tax__c", "type": "Double", "formula": "Amount_Owed__c * 2"},
        {
            "name": "Pipeline__c",
            "type": "Currency",
            "summaryOperation": "sum",
            "summarizedField": "Opportunity.Amount",
            "summaryForeignKey": "Opportunity.AccountId",
        },
    ),
    "Shipment__c": ({"name": "Twice_The_Weight__c", "type": "Double", "formula": "Weight__c * 2"},),
    "Contact": (
        {"name": "Account_Industry__c", "type": "Text", "formula": "Account.Industry"},
        {"name": "Account_Since__c", "type": "DateTime", "formula": "Account.Some_Date_Time__c"},
    ),
}


def add_computed_fields(org: LocalOrg) -> None:
    """Add the fields of :data:`COMPUTED` to an org's objects."""
    for entity, fields in COMPUTED.items():
        for field in fields:
            org.admin("POST", f"/entities/{entity}/fields", field)
