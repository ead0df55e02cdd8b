"""Whether a status document is one. Whoever may write Variables may write any: no such may hide the others."""

from __future__ import annotations

from datetime import datetime

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.plugins.page.reader import parsed, tasks_of
from airflow_provider_sfstream.protocol.status import Status, connection_of
from airflow_provider_sfstream.tasks.pages import task_page


def is_sound(status: Status) -> bool:
    """Tell whether a document says which stream or folder, which tasks and which time it is of."""
    document = status.document
    try:
        if connection_of(status.subject) is not None:
            parsed(status.subject)
        named = [document.get("output_url", ""), *document.get("streams", ())]
        pages = [task_page(task) for task in tasks_of(status)]
        at = document.get("at")
        zone = at is None or datetime.fromisoformat(at).utcoffset()
    except (ConfigurationError, ValueError, TypeError, KeyError, AttributeError):
        return False
    has_names = all(isinstance(name, str) for name in named)
    return has_names and zone is not None and (status.section != "failed" or bool(at and pages))
