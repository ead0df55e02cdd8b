"""Salesforce metadata that users deploy: known types and fields, valid references, and no secrets."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

import pytest

PROJECT = Path(__file__).parents[2] / "deploy/salesforce"
NAMESPACE = "{http://soap.sforce.com/2006/04/metadata}"
TYPES = {
    "CustomObject": (
        "objects/*/*.object",
        "deploymentStatus description eventType label pluralLabel publishBehavior",
    ),
    "CustomField": (
        "objects/*/fields/*.field",
        "fullName externalId label length precision required scale type unique",
    ),
    "PermissionSet": (
        "permissionsets/*.permissionset",
        "description hasActivationRequired label objectPermissions userPermissions",
    ),
    "PlatformEventChannel": ("platformEventChannels/*__chn.platformEventChannel", "channelType label"),
    "PlatformEventChannelMember": (
        "platformEventChannelMembers/*.platformEventChannelMember",
        "enrichedFields eventChannel filterExpression selectedEntity",
    ),
    "ManagedEventSubscription": (
        "managedEventSubscriptions/*.managedEventSubscription",
        "defaultReplay errorRecoveryReplay label state topicName version",
    ),
    "ExternalClientApplication": (
        "externalClientApps/*.eca",
        "contactEmail description distributionState isProtected label",
    ),
    "ExtlClntAppOauthSettings": (
        "extlClntAppOauthSettings/*.ecaOauth",
        "commaSeparatedOauthScopes externalClientApplication label",
    ),
    "ExtlClntAppGlobalOauthSettings": (
        "extlClntAppGlobalOauthSets/*.ecaGlblOauth",
        "callbackUrl certificate externalClientApplication isClientCredentialsFlowEnabled isConsumerSecretOptional "
        "label",
    ),
    "ExtlClntAppOauthConfigurablePolicies": (
        "extlClntAppOauthPolicies/*.ecaOauthPlcy",
        "clientCredentialsFlowUser commaSeparatedPermissionSet externalClientApplication ipRelaxationPolicyType "
        "isClientCredentialsFlowEnabled label permittedUsersPolicyType refreshTokenPolicyType",
    ),
}
"""Path and used fields of each metadata type, by the Metadata API guide."""
FILES = sorted(PROJECT.rglob("*-meta.xml"))


def root_of(path: Path) -> ElementTree.Element:
    return ElementTree.parse(path).getroot()


def texts(kind: str, field: str) -> list[str]:
    """Return all values that files of a type have in a field."""
    roots = [root for root in map(root_of, FILES) if root.tag == NAMESPACE + kind]
    return [element.text or "" for root in roots for element in root.iter(NAMESPACE + field)]


def names(kind: str) -> set[str]:
    """Return the names of the components of a type."""
    return {path.name.partition(".")[0] for path in FILES if root_of(path).tag == NAMESPACE + kind}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_has_the_path_and_the_fields_of_its_type(path: Path) -> None:
    root = root_of(path)
    place, fields = TYPES[root.tag.removeprefix(NAMESPACE)]
    assert fnmatch(path.relative_to(PROJECT).as_posix(), f"*/main/default/{place}-meta.xml")
    assert {child.tag.removeprefix(NAMESPACE) for child in root} <= set(fields.split())


def test_every_type_is_present_and_every_reference_is_valid() -> None:
    assert {root_of(path).tag.removeprefix(NAMESPACE) for path in FILES} == TYPES.keys()
    apps = names("ExternalClientApplication")
    for kind in TYPES:
        if kind.startswith("ExtlClntApp"):
            assert set(texts(kind, "externalClientApplication")) == apps
    assert set(texts("ExtlClntAppOauthConfigurablePolicies", "commaSeparatedPermissionSet")) == names("PermissionSet")
    assert set(texts("PlatformEventChannelMember", "eventChannel")) == names("PlatformEventChannel")
    assert texts("ManagedEventSubscription", "topicName") == [f"/event/{name}" for name in names("CustomObject")]
    entities = {f"{name.removesuffix('ChangeEvent')}" for name in texts("PlatformEventChannelMember", "selectedEntity")}
    assert set(texts("PermissionSet", "object")) == entities | names("CustomObject")


def test_values_of_an_org_come_from_the_environment() -> None:
    replacements = json.loads((PROJECT / "sfdx-project.json").read_text())["replacements"]
    readme = (PROJECT / "README.md").read_text()
    for path in FILES:
        found = set(re.findall("%[A-Z_]+%", path.read_text()))
        relative = path.relative_to(PROJECT).as_posix()
        known = {each["stringToReplace"] for each in replacements if fnmatch(relative, each["glob"])}
        assert found == known, relative
    for each in replacements:
        assert each["stringToReplace"] == f"%{each['replaceWithEnv']}%"
        assert re.search(rf"\b{each['replaceWithEnv']}=", readme)


def test_keys_and_secrets_are_not_in_the_files() -> None:
    for path in FILES:
        assert not re.search("consumerKey|consumerSecret", path.read_text()), path
