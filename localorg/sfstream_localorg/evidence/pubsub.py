"""Behaviours of the Pub/Sub API, without managed subscriptions."""

from __future__ import annotations

from sfstream_localorg.evidence.behaviour import UNPROBED, Behaviour

PROTO = "pubsub_api.proto (github.com/forcedotcom/pub-sub-api)"
GUIDE = "Pub/Sub API guide"
ERRORS = f"{GUIDE}, Handling Errors"
CDC = "Change Data Capture guide, Change Event Header Fields"
POZIL = "github.com/pozil/pub-sub-api-node-client"
WOLVERINE = "decision records of github.com/meyc-v1/wolverinefxcontrib-salesforcepubsub"
FORCEDOTCOM = "github.com/forcedotcom/pub-sub-api"

BEHAVIOURS = (
    # Refusals of calls.
    Behaviour(
        "*.*.error_code", "documented", "refusals have an `error-code` trailer with the code of the guide", ERRORS
    ),
    Behaviour("*.*.trailers", "observed", "trailers are `error-code`, `rpc-id`, `type`", f"{POZIL}/issues/52"),
    Behaviour("*.*.status", "inferred", "the gRPC status of a refusal is the likely one for its code"),
    Behaviour("*.*.message", "inferred", "the texts of refusals are the local org's own, with `rpcId:` at the end"),
    Behaviour("header_refusals", "documented", "wrong headers are `service.auth.headers.invalid`", ERRORS),
    Behaviour("header_refusals.*.status", "inferred", "`service.auth.headers.invalid` is UNAUTHENTICATED"),
    Behaviour("header_refusals.unknown_token.status", "documented", "`service.auth.error` is UNAUTHENTICATED", ERRORS),
    Behaviour(
        "header_refusals.instance_url_of_another_host",
        "inferred",
        "an `instanceurl` of another host is `service.auth.headers.invalid`",
    ),
    Behaviour(
        "header_refusals.tenant_of_another_org",
        "inferred",
        "a `tenantid` of another org is `service.auth.headers.invalid`",
    ),
    Behaviour(
        "header_refusals.tenant_of_15_characters.status",
        "observed",
        "a `tenantid` of 15 characters is accepted",
        f"{POZIL}, its code",
    ),
    Behaviour(
        "topic_refusals", "documented", "unknown topics and schemas are refused with the code of the guide", ERRORS
    ),
    Behaviour("topic_refusals.empty_topic", "documented", "an empty name is `topic.validation.empty`", ERRORS),
    Behaviour(
        "topic_refusals.unknown_topic.status", "observed", "`topic.not.found` is NOT_FOUND", f"{POZIL}, its own tests"
    ),
    Behaviour("topic_refusals.other_case", "inferred", "letter case counts in names of topics: `topic.not.found`"),
    Behaviour("topic_refusals.push_topic", "inferred", "a PushTopic is `topic.not.found`"),
    Behaviour("topic_refusals.empty_schema", "inferred", "an empty schema ID is `schema.validation.failed`"),
    Behaviour("topic_refusals.unknown_schema", "inferred", "an unknown schema ID is `schema.meta.permission`"),
    Behaviour("subscribe_refusals", "documented", "requests are refused with the codes of the guide", ERRORS),
    Behaviour("subscribe_refusals.*.message", "inferred", "the texts of these refusals are the local org's own"),
    Behaviour(
        "subscribe_refusals.unknown_topic.status",
        "observed",
        "`topic.not.found` is NOT_FOUND",
        f"{POZIL}, its own tests",
    ),
    Behaviour(
        "subscribe_refusals.unknown_token.status", "documented", "`service.auth.error` is UNAUTHENTICATED", ERRORS
    ),
    Behaviour("subscribe_refusals.empty_topic.status", "inferred", "`topic.validation.empty` is INVALID_ARGUMENT"),
    Behaviour(
        "subscribe_refusals.*.status",
        "documented",
        "`subscription.fetch.requested.events.invalid`, `subscription.fetch.topic.mismatch`, "
        "`subscription.fetch.replayid.validation.failed` are INVALID_ARGUMENT",
        ERRORS,
    ),
    Behaviour(
        "subscribe_refusals.replay_id_never_given",
        "inferred",
        "a replay ID that the bus has not issued yet is `subscription.fetch.replayid.corrupted`",
    ),
    Behaviour(
        "subscribe_refusals.malformed_replay_id",
        "documented",
        "`subscription.fetch.replayid.corrupted` is INVALID_ARGUMENT",
        f"{GUIDE}, Event Message Durability",
    ),
    Behaviour(
        "expired_replay_id",
        "documented",
        "an expired replay ID is `subscription.fetch.replayid.corrupted` too",
        f"{GUIDE}, Event Message Durability",
    ),
    Behaviour(
        "expired_replay_id.message",
        "inferred",
        "the text of the refusal of an expired replay ID is the local org's own",
    ),
    Behaviour(
        "expired_replay_id.trailers", "observed", "trailers are `error-code`, `rpc-id`, `type`", f"{POZIL}/issues/52"
    ),
    Behaviour("publish_refusals", "documented", "publishing is refused with the codes of the guide", ERRORS),
    Behaviour(
        "publish_refusals.no_event",
        "inferred",
        "a request without events is `publish.event.count.invalid`, INVALID_ARGUMENT",
    ),
    Behaviour(
        "publish_refusals.empty_topic", "inferred", "a request without a topic is `publish.topic.validation.empty`"
    ),
    Behaviour("publish_refusals.change_event", "inferred", "publishing change events is `topic.meta.permission`"),
    Behaviour(
        "publish_refusals.unreadable_payload", "inferred", "a payload that its schema cannot read fails in its result"
    ),
    Behaviour(
        "publish_refusals.unknown_schema",
        "inferred",
        "an event with a schema ID that is not the topic's fails in its result",
    ),
    Behaviour(UNPROBED, "inferred", "another topic on a PublishStream is `publish.topic.mismatch`, INVALID_ARGUMENT"),
    Behaviour(
        UNPROBED,
        "documented",
        "a PublishRequest above 4 MB is UNAVAILABLE, `upstream connect error`",
        f"{GUIDE}, Pub/Sub API Allocations",
    ),
    Behaviour(
        UNPROBED,
        "observed",
        "`service.unavailable` has the status INTERNAL",
        f"{POZIL}/issues/52 and {POZIL}/issues/64",
    ),
    Behaviour(UNPROBED, "inferred", "`subscription.limit.exceeded` is RESOURCE_EXHAUSTED"),
    Behaviour(UNPROBED, "inferred", "publishing above the hourly limit fails each event with `LIMIT_EXCEEDED`"),
    Behaviour(UNPROBED, "inferred", "a revoked token ends open streams immediately, with `service.auth.error`"),
    # Topics, schemas, events.
    Behaviour("topics", "documented", "GetTopic of events and channels, with a schema ID", PROTO),
    Behaviour("topics.*.tenant", "observed", "`tenant_guid` is `core/prod/` and the org's ID", f"{POZIL}/issues/52"),
    Behaviour("topics.*.schema_id", "observed", "schema IDs have 22 characters", f"{POZIL}, README"),
    Behaviour("topics.channel", "inferred", "a channel has the schema ID of its first member"),
    Behaviour("topics.change_events", "inferred", "`/data/ChangeEvents` has the schema ID of its first entity"),
    Behaviour("topics.*.can_publish", "inferred", "nothing can be published to change events and channels of them"),
    Behaviour("topics.*.rpc_id", "observed", "`rpc_id` is a UUID", f"{POZIL}/issues/52"),
    Behaviour("schemas", "observed", "a schema has the event's name, a namespace, `uuid`", f"{POZIL}, README"),
    Behaviour("schemas.fields", "observed", "`CreatedDate` and `CreatedById` come first", f"{POZIL}, README"),
    Behaviour("schemas.fields.Amount__c.doc", "inferred", "the `doc` of a number is `Data:Double:` and the field's ID"),
    Behaviour(
        "schemas.fields.Order_Number__c.doc", "inferred", "the `doc` of a text is `Data:Text:` and the field's ID"
    ),
    Behaviour(
        "schemas.same_over_rest",
        "documented",
        "`eventSchema` of REST with COMPACT returns the same schema",
        "REST API guide",
    ),
    Behaviour("published_events", "documented", "an event is delivered as published; the result has its key", PROTO),
    Behaviour(
        "published_events.created_date",
        "inferred",
        f"the publisher's `CreatedDate` is unchanged; according to {FORCEDOTCOM}/issues/42 it appears to be ignored",
    ),
    Behaviour("published_events.created_by", "inferred", "the publisher's `CreatedById` is unchanged"),
    Behaviour("published_events.payload_unchanged", "inferred", "the bytes of the payload are unchanged"),
    Behaviour("published_events.event_id_is_given", "inferred", "the event's ID is the publisher's ID"),
    Behaviour("replay_ids", "documented", "replay IDs are opaque; CUSTOM resumes strictly after one", PROTO),
    Behaviour("replay_ids.bytes", "observed", "a replay ID has 10 bytes", f"{POZIL}/issues/36"),
    Behaviour(
        "replay_ids.last_two_bytes", "observed", "the last two bytes of a replay ID are zero", f"{POZIL}/issues/59"
    ),
    Behaviour(
        "replay_ids.first_8_bytes_do", "observed", "the first 8 bytes are accepted too", f"{POZIL}, its own tests"
    ),
    Behaviour("replay_ids.rising", "documented", "replay IDs rise", f"{GUIDE}, Event Message Durability"),
    Behaviour(
        "replay_ids.owed_of_500_asked",
        "documented",
        "at most 100 events are outstanding at a time",
        f"{GUIDE}, Flow Control",
    ),
    Behaviour("replay_ids.latest_is_last_event", "inferred", "`latest_replay_id` with events is the last one's"),
    Behaviour("replay_ids.of_another_topic", "inferred", "a replay ID of another topic of the org is accepted"),
    # Time.
    Behaviour("silent_stream", "inferred", "calls beside a silent stream get normal responses"),
    Behaviour("silent_stream.initial_metadata", "inferred", "initial metadata are sent with the first response"),
    Behaviour(
        "empty_responses",
        "documented",
        "an empty response arrives within 270 s while requested events are pending",
        PROTO,
    ),
    Behaviour("empty_responses.first", "observed", "the first empty response arrives after about 120 s", WOLVERINE),
    Behaviour(
        "empty_responses.second",
        "observed",
        "another empty response arrives about 120 s after the last response",
        WOLVERINE,
    ),
    Behaviour("empty_responses.replay_id_bytes", "documented", "an empty response has a `latest_replay_id`", PROTO),
    Behaviour(
        "empty_responses.can_be_resumed_from",
        "documented",
        "an empty response's replay ID can be resumed from",
        f"{GUIDE}, Subscribe RPC",
    ),
    Behaviour(
        "empty_responses.replay_id_of_the_second",
        "inferred",
        "the replay ID of empty responses rises with time, also where nothing was published",
    ),
    Behaviour(
        "filtered_backlog",
        "documented",
        "a channel delivers the events that match its filter, also of a backlog",
        "Platform Events guide, Filter Your Stream of Platform Events",
    ),
    Behaviour(
        "filtered_backlog.empty_responses_before_it",
        "inferred",
        "no empty response is sent before the first matching event, for any number of events before it; Salesforce "
        "Knowledge 005321562 allows another interpretation, and the fault `seek` sends empty responses",
    ),
    Behaviour(
        UNPROBED,
        "inferred",
        "with the fault `seek`, empty responses advance the replay ID before the events that follow it are sent",
    ),
    Behaviour(
        "idle_stream.after",
        "documented",
        "a stream without pending requested events ends after 60 s",
        f"{GUIDE}, Flow Control",
    ),
    Behaviour("idle_stream", "inferred", "a stream without pending requested events ends with status OK"),
    Behaviour("idle_publish_stream.after", "documented", "a PublishStream without a request ends after 70 s", PROTO),
    Behaviour(
        "idle_publish_stream",
        "inferred",
        "an idle PublishStream ends with `publish.stream.sweeper.timeout`, DEADLINE_EXCEEDED",
    ),
    *(
        Behaviour(f"pings_{seconds}_s", "inferred", f"HTTP/2 pings every {seconds} s are accepted")
        for seconds in (45, 10, 1)
    ),
    Behaviour(
        UNPROBED, "documented", "a response has 3 MB at most, an event 1 MB", f"{GUIDE}, Pub/Sub API Allocations"
    ),
    Behaviour(
        UNPROBED,
        "observed",
        "a stream may end by a reset without a status",
        f"{FORCEDOTCOM}/issues/28",
    ),
    Behaviour(UNPROBED, "documented", "events are retained for 72 hours", f"{GUIDE}, Event Message Durability"),
    Behaviour(
        UNPROBED,
        "documented",
        "standard-volume platform events are retained for 24 hours",
        "Platform Events guide, Standard-Volume Platform Events",
    ),
    # Change events.
    Behaviour("change_events", "documented", "changes of records are change events", CDC),
    Behaviour("change_events.topics.*.event_id", "documented", "the event's ID is empty", f"{GUIDE}, ProducerEvent"),
    Behaviour("change_events.topics.*.schema_id", "observed", "each event has a schema ID", f"{POZIL}/issues/36"),
    Behaviour(
        "change_events.topics.*.schema_id_is_the_topics",
        "inferred",
        "the schema ID of a channel is that of its first member",
    ),
    Behaviour(
        "change_events.topics.*.schema_id_is_the_entitys",
        "inferred",
        "events on channels have the schema ID of their entity",
    ),
    Behaviour(
        "change_events.topics.channel.events",
        "documented",
        "events that do not match the filter are not delivered",
        CDC,
    ),
    Behaviour(
        "change_events.topics.channel.industry_of_the_update",
        "documented",
        "an event has the value of an enriched field that did not change",
        "Change Data Capture guide, Enrich Change Events",
    ),
    Behaviour("change_events.same_replay_ids", "observed", "an event has one replay ID on all topics", WOLVERINE),
    Behaviour("change_events.header.fields", "observed", "the order of the header's fields", f"{POZIL}, README"),
    Behaviour("change_events.header.change_origin", "documented", "`com/salesforce/api/…;client=…`", CDC),
    Behaviour(
        "change_events.header.commit_number_above_2_53", "observed", "commit numbers are large", f"{POZIL}, README"
    ),
    Behaviour("change_events.update", "documented", "bitmaps name the fields", f"{GUIDE}, Deserialization"),
    Behaviour(
        "change_events.update.changed", "inferred", "`changedFields` has `LastModifiedDate` and the nulled fields"
    ),
    Behaviour("change_events.update.nulled", "inferred", "`nulledFields` has the fields that became null"),
    Behaviour("change_events.update.compound_field", "inferred", "unchanged parts of a compound field are null"),
    Behaviour(
        UNPROBED,
        "inferred",
        "a long text is a diff unless over a quarter of its lines changed, the lengths "
        "differ by over half, or the diff is not shorter; line numbers of a diff that only adds or removes",
    ),
    Behaviour(UNPROBED, "inferred", "a filter compares the latest values of a record, also for replayed events"),
    Behaviour(UNPROBED, "inferred", "a gap event is filtered by the values of its record; without a record it passes"),
    Behaviour(UNPROBED, "inferred", "events of a removed member are no longer delivered, also if published before"),
    Behaviour(UNPROBED, "documented", "more than 100,000 changes in a transaction are a GAP_OVERFLOW event", CDC),
)
