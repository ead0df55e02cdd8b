"""One look at an allocation, for a sensor in a worker and for a trigger alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError, QuotaExceededError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.allocations import API_REQUESTS, Allocation, Reserve

log = logging.getLogger(__name__)


def enough(read: Callable[[str], Allocation], name: str, reserve: Reserve) -> dict[str, Any] | None:
    """Return what remains of an allocation, if that is at least the reserve; ``None`` if it is not, or if this look
    failed in a way that may pass. Logs either.

    An org whose API requests are used up answers no look: that passes too, and is what one may be waiting for.

    :param read: returns the allocation of a name.
    :return: ``allocation``, ``max``, ``remaining`` and ``reserve``, all numbers of events or requests.
    :raises ConfigurationError: if the reserve is more than the org has in all.
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
    if amount > found.most:
        raise ConfigurationError(
            f"{found}: a reserve of {amount:,} is more than the org has in all, so that waiting for it has no end. "
            "Lower the reserve."
        )
    log.info("%s; at least %s are to remain.", found, f"{amount:,}")
    if found.remaining < amount:
        return None
    return {"allocation": name, "max": found.most, "remaining": found.remaining, "reserve": amount}


def log_delivered(name: str, read: Callable[[], Mapping[str, int]]) -> None:
    """Log what an allocation of which too little remains went to, as far as Salesforce says. Never an error.

    :param name: of the allocation; of requests there is no such metric.
    :param read: returns how many events of each kind were delivered in 24 hours.
    """
    if name == API_REQUESTS:
        return
    try:
        delivered = read()
    except SalesforceStreamError as error:  # it explains, and nothing hangs on it
        log.info("%s: what it went to is not known: %s", name, error)
        return
    told = ", ".join(f"{count:,} {kind}" for kind, count in delivered.items())
    log.info("%s: delivered to all clients in the 24 hours to the last full hour: %s.", name, told or "not known")
