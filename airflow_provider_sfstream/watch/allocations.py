"""One look at an allocation, for a sensor in a worker and for a trigger alike."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from airflow_provider_sfstream.exceptions import QuotaExceededError, SalesforceStreamError
from airflow_provider_sfstream.protocol.allocations import Allocation, Reserve

log = logging.getLogger(__name__)


def enough(read: Callable[[str], Allocation], name: str, reserve: Reserve) -> dict[str, Any] | None:
    """Return what remains of an allocation, if that is at least the reserve; ``None`` if it is not, or if this look
    failed in a way that may pass. Logs either.

    An org whose API requests are used up answers no look: that passes too, and is what one may be waiting for.

    :param read: returns the allocation of a name.
    :return: ``allocation``, ``max``, ``remaining`` and ``reserve``, all numbers of events or requests.
    :raises SalesforceStreamError: what no later look can mend.
    """
    try:
        found = read(name)
    except SalesforceStreamError as error:
        if not isinstance(error, QuotaExceededError) and (not error.retriable or error.invalidates_token):
            raise
        log.warning("%s: this look failed; the next one tries again. %s", name, error)
        return None
    amount = reserve.amount(found)
    log.info("%s; at least %s are to remain.", found, f"{amount:,}")
    if found.remaining < amount:
        return None
    return {"allocation": name, "max": found.most, "remaining": found.remaining, "reserve": amount}
