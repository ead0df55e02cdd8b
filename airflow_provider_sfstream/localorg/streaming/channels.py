"""Which channels the Streaming API has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_sfstream.localorg.streaming import replies
from airflow_provider_sfstream.localorg.streaming.replies import BayeuxError
from airflow_provider_sfstream.localorg.streaming.sessions import Condition

if TYPE_CHECKING:
    from airflow_provider_sfstream.localorg.org import Org


def find_channel(org: Org, name: str) -> tuple[str, Condition | None]:
    """Return the channel that a client names, without its filter, and the filter.

    :raises BayeuxError: if there is no such channel. There are no wildcards, and letter case counts.
    """
    channel, _, query = name.partition("?")
    if org.topics.get(channel) is None or query:
        raise _refused(channel)
    return channel, None


def _refused(channel: str) -> BayeuxError:
    if channel.startswith(("/event/", "/data/")):
        return BayeuxError(replies.CREATE_DENIED)
    return replies.no_such_channel(channel)
