"""Behaviours of the REST API and the Tooling API."""

from __future__ import annotations

from sfstream_localorg.evidence.behaviour import UNPROBED, Behaviour

REST = "REST API guide, Status Codes and Error Responses"
TOOLING = "Tooling API reference"
POZIL = "github.com/pozil/pub-sub-api-node-client"

BEHAVIOURS = (
    Behaviour("rest_refusals", "documented", "a refusal is an array with `errorCode` and `message`", REST),
    Behaviour("rest_refusals.*.messages", "inferred", "the texts of refusals that the guide does not show"),
    Behaviour("rest_refusals.limits", "documented", "the allocations of events in `/limits`", "REST API guide, Limits"),
    Behaviour("rest_refusals.limit_header", "documented", "`Sforce-Limit-Info` on every answer", "REST API guide"),
    Behaviour(
        "rest_refusals.managed_in_plain_query",
        "documented",
        "a managed subscription outside Tooling queries is `INVALID_TYPE`",
        TOOLING,
    ),
    Behaviour("tooling_refusals", "inferred", "the codes of Tooling's refusals are those of other objects"),
    Behaviour("tooling_refusals.*.messages", "inferred", "texts of Tooling's refusals are the local org's own"),
    Behaviour(
        "tooling_refusals.managed_paused.error_codes", "documented", "the state PAUSE is `INVALID_INPUT`", TOOLING
    ),
    Behaviour("tooling_refusals.metadata_of_several", "documented", "`Metadata` of one record at a time", TOOLING),
    Behaviour(UNPROBED, "inferred", "the topic or name of a managed subscription cannot be changed: `INVALID_INPUT`"),
    Behaviour(
        UNPROBED,
        "documented",
        "`eventType` of a platform event is `HighVolume` or, for old ones, `StandardVolume`",
        "Platform Events guide, Migrate Platform Event Definitions with Metadata API",
    ),
    Behaviour(UNPROBED, "inferred", "`Metadata` and `FullName` of Tooling's CustomObject show a platform event"),
    Behaviour(
        UNPROBED, "inferred", "without View Setup and Configuration, objects of the Tooling API are `INVALID_TYPE`"
    ),
    Behaviour(UNPROBED, "inferred", "the header `Date` of each answer is by the clock that stamps events"),
    Behaviour(
        UNPROBED,
        "observed",
        "`query?columns=true` answers `columnMetadata`, `entityName`, `groupBy`, `idSelected` and `keyPrefix`",
        "github.com/salesforcecli/plugin-data",
    ),
    Behaviour(UNPROBED, "inferred", "the `apexType` of numbers, dates and compound fields in `columnMetadata`"),
    Behaviour(
        UNPROBED,
        "documented",
        "jobs, batches and results of Bulk API 1 in JSON; an error has `exceptionCode` and `exceptionMessage`",
        "Bulk API 2.0 and Bulk API Developer Guide",
    ),
    Behaviour(
        UNPROBED, "documented", "hard deletion requires the permission Bulk API Hard Delete", "Bulk API Developer Guide"
    ),
    Behaviour(UNPROBED, "inferred", "texts of Bulk API 1's refusals; a hard deletion is a DELETE event"),
    Behaviour(UNPROBED, "documented", "no token has an `expires_in`", "OAuth guide"),
    Behaviour(
        UNPROBED,
        "observed",
        "client credentials are refused on a login host: `request not supported on this domain`",
        f"{POZIL}/issues/58",
    ),
)
