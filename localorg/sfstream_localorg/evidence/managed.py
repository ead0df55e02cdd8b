"""Behaviours of managed event subscriptions."""

from __future__ import annotations

from sfstream_localorg.evidence.behaviour import UNPROBED, Behaviour
from sfstream_localorg.evidence.pubsub import ERRORS, GUIDE, PROTO, WOLVERINE

RPC = f"{GUIDE}, ManagedSubscribe RPC Method"

BEHAVIOURS = (
    Behaviour(UNPROBED, "inferred", "a commit moves the start of later streams, whichever client sent it"),
    Behaviour(UNPROBED, "inferred", "a subscription recreated under the same name has another ID and no position"),
    Behaviour("managed_refusals", "documented", "requests are refused with the codes of the guide", ERRORS),
    Behaviour(
        "managed_refusals.*.status",
        "inferred",
        "`managed.subscription.id.or.developer.name.empty`, `subscription.id.invalid`, `fetch.request.invalid`, "
        "`fetch.request.events.invalid`, `fetch.request.commit.request.restricted` are INVALID_ARGUMENT",
    ),
    Behaviour("managed_refusals.*.message", "inferred", "the texts of these refusals are the local org's own"),
    Behaviour(
        "managed_refusals.none_named", "inferred", "a request without a subscription is `id.or.developer.name.empty`"
    ),
    Behaviour(
        "managed_refusals.two_named", "inferred", "a request with ID and name is `id.or.developer.name.empty` too"
    ),
    Behaviour(
        "managed_refusals.unknown_name.status",
        "documented",
        "`managed.subscription.developer.name.not.found` is NOT_FOUND",
        RPC,
    ),
    Behaviour(
        "managed_refusals.unknown_id.status",
        "documented",
        "`managed.subscription.subscription.id.not.found` is NOT_FOUND",
        RPC,
    ),
    Behaviour("managed_refusals.already_active.status", "observed", "`already.active` is ALREADY_EXISTS", WOLVERINE),
    Behaviour("managed_refusals.another_name_later", "inferred", "another name in a later request ends the stream"),
    Behaviour(
        UNPROBED,
        "inferred",
        "an `auth_refresh` is `fetch.request.auth.request.restricted` or `fetch.request.invalid`",
    ),
    Behaviour("managed_commits", "documented", "a commit is answered with its replay ID", PROTO),
    Behaviour(
        "managed_commits.*.error",
        "documented",
        "invalid commits get an error of code COMMIT; the stream continues",
        RPC,
    ),
    Behaviour("managed_commits.*.message", "inferred", "the texts of commit errors are the local org's own"),
    Behaviour("managed_commits.*.latest_replay_id", "inferred", "an answer to a commit has a `latest_replay_id` too"),
    Behaviour(
        "managed_commits.*.events_with_it",
        "inferred",
        "an answer to a commit has events only if the client requested them",
    ),
    Behaviour("managed_commits.again.error", "inferred", "the committed replay ID may be committed again"),
    Behaviour("managed_commits.*.replay_id_echoed", "inferred", "a refused replay ID is echoed too"),
    Behaviour("managed_commits.last_of_three_at_once", "documented", "one answer acknowledges all before it", PROTO),
    Behaviour("managed_commits.slot_free_after_a_clean_end", "observed", "the slot is free within 15 s", WOLVERINE),
    Behaviour(
        "managed_commits.starts_after_the_committed", "documented", "a stream starts after the committed replay ID", RPC
    ),
    Behaviour("managed_visibility", "documented", "the Pub/Sub API sees changes of a record within 2 minutes", RPC),
    Behaviour(
        "managed_visibility.key_prefix",
        "documented",
        "IDs of managed subscriptions begin with `18x`",
        "Tooling API reference",
    ),
    Behaviour(
        "managed_visibility.visible",
        "inferred",
        "a new managed subscription is visible immediately, unless the knob sets a delay",
    ),
    Behaviour("managed_visibility.gone", "inferred", "a deletion is visible immediately, unless the knob sets a delay"),
    Behaviour(
        "managed_visibility.end",
        "inferred",
        "a managed stream ends with `config.deleted` (NOT_FOUND) when it is deleted",
    ),
    Behaviour(
        "managed_visibility.until_then",
        "documented",
        "a managed subscription that is not visible yet is `not.found`",
        RPC,
    ),
    Behaviour(
        UNPROBED,
        "inferred",
        "a stopped managed subscription is `config.stopped`, FAILED_PRECONDITION, and loses its position",
    ),
    Behaviour(
        "managed_without_commits.end",
        "observed",
        "a managed stream without commits ends with DEADLINE_EXCEEDED, without a code",
        WOLVERINE,
    ),
    Behaviour("managed_without_commits", "observed", "after 1,800 s without a commit the stream ends", WOLVERINE),
    Behaviour(
        "expired_commit", "documented", "if the committed ID has expired, `errorRecoveryReplay` defines the start", RPC
    ),
    Behaviour(UNPROBED, "observed", "the slot of a vanished client stays occupied for about 15 minutes", WOLVERINE),
    Behaviour(UNPROBED, "inferred", "an acknowledgement's `latest_replay_id` may be committed"),
)
