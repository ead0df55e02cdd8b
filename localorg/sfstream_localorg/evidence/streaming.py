"""Behaviours of the Streaming API (CometD)."""

from __future__ import annotations

from sfstream_localorg.evidence.behaviour import UNPROBED, Behaviour

GUIDE = "Streaming API guide"
ERRORS = f"{GUIDE}, Streaming API Error Codes"
EMP = "github.com/forcedotcom/EMP-Connector"
COMETD = "github.com/cometd/cometd"

BEHAVIOURS = (
    Behaviour("cometd_session", "observed", "replies of a session, as clients' logs show them", f"{COMETD}/issues/775"),
    Behaviour(
        "cometd_session.handshake.ext", "observed", "the reply to the handshake has `replay`", f"{COMETD}/issues/775"
    ),
    Behaviour("cometd_session.first_connect.after", "inferred", "the first connect gets an immediate reply"),
    Behaviour(
        "cometd_session.first_connect.advice", "documented", "timeout 110,000, interval 0, retry", f"{GUIDE}, Timeouts"
    ),
    Behaviour(
        "cometd_session.event", "documented", "`schema`, `payload`, `event` with `replayId`", f"{GUIDE}, Message"
    ),
    Behaviour(
        "cometd_session.event.replay_id_is_first_8_bytes", "inferred", "`replayId` is the first 8 bytes of gRPC's"
    ),
    Behaviour("cometd_session.event.event", "documented", "`EventUuid` beside `replayId`", "Platform Events guide"),
    Behaviour("cometd_session.event.created_date", "documented", "times are texts", "Platform Events guide"),
    Behaviour("cometd_session.unsubscribe", "inferred", "unsubscribing is answered without advice"),
    Behaviour("cometd_session.disconnect", "inferred", "disconnecting is answered without advice"),
    Behaviour("cometd_refusals", "documented", "refusals have the texts of the guide", ERRORS),
    Behaviour("cometd_refusals.*.advice", "inferred", "a refusal of a subscribe or an unknown channel has no advice"),
    Behaviour("cometd_refusals.version_36.http_status", "inferred", "an API version below 37.0 is HTTP 400"),
    Behaviour("cometd_refusals.no_version.http_status", "inferred", "no API version is HTTP 400"),
    Behaviour("cometd_refusals.version_36.replies", "inferred", "an HTTP error has a Bayeux reply as its body"),
    Behaviour("cometd_refusals.no_version.replies", "inferred", "an HTTP error has a Bayeux reply as its body"),
    Behaviour("cometd_refusals.too_large.http_status", "documented", "more than 32,768 bytes are HTTP 413", ERRORS),
    Behaviour("cometd_refusals.too_large.replies", "inferred", "an HTTP error has a Bayeux reply as its body"),
    Behaviour(
        "cometd_refusals.handshake_with_unknown_token",
        "documented",
        "`403::Handshake denied`, the cause in `ext.sfdc.failureReason`, advice `none`",
        ERRORS,
    ),
    Behaviour(
        "cometd_refusals.connect_of_unknown_client",
        "observed",
        "`403::Unknown client`, advice `handshake`",
        f"{EMP}/issues/4",
    ),
    Behaviour(
        "cometd_refusals.unknown_event",
        "observed",
        "an unknown event is `403:denied_by_security_policy:create_denied`",
        f"{EMP}/issues/17",
    ),
    Behaviour(
        "cometd_refusals.other_name_in_replay",
        "observed",
        "`400::The replayId for channel {…} wasn't found using the provided replay ID map`",
        f"{EMP}/issues/39",
    ),
    Behaviour(
        "cometd_refusals.replay_id_never_given", "inferred", "a replay ID that the bus has not issued is refused"
    ),
    Behaviour("cometd_refusals.unknown_meta_channel", "documented", "`404::Unknown channel`", ERRORS),
    Behaviour("cometd_refusals.publishing", "inferred", "publishing is `403:denied_by_security_policy:publish_denied`"),
    Behaviour("cometd_refusals.no_name", "inferred", "an empty name is `400::Channel name not specified`"),
    Behaviour(
        "expired_cometd_replay_id",
        "documented",
        "`400::The replayId {…} you provided was invalid`",
        f"{GUIDE}, Handling Errors",
    ),
    Behaviour("cometd_hold", "documented", "a connect is held for 110 s", f"{GUIDE}, Timeouts"),
    Behaviour("cometd_late_connect", "documented", "a session ends 40 s after an answer", f"{GUIDE}, Timeouts"),
    Behaviour(
        "cometd_late_connect.error", "observed", "a session that ended is `403::Unknown client`", f"{EMP}/issues/4"
    ),
    Behaviour(UNPROBED, "inferred", "events count as delivered once sent, also if the response is lost"),
    Behaviour(UNPROBED, "inferred", "a change event omits null fields unless they became null"),
    Behaviour(UNPROBED, "inferred", "the event of a deletion on a PushTopic has only the `Id`"),
    Behaviour(UNPROBED, "documented", "PushTopic and generic events are retained for 24 hours", f"{GUIDE}, Durability"),
    Behaviour(
        UNPROBED,
        "documented",
        "with the fault `stall_delivery`, replies to polls have no events although events are stored",
        "help.salesforce.com, knowledge article 005321562",
    ),
    Behaviour(
        UNPROBED,
        "documented",
        "`403::Organization total events daily limit exceeded`, `403::Organization concurrent user limit exceeded`",
        ERRORS,
    ),
    Behaviour(UNPROBED, "documented", "`503::Server is too busy` in `ext.sfdc.failureReason`", ERRORS),
)
