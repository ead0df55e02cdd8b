"""Functions of both the trigger and its shared watch."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.events import StartFrom


def described(after: bytes | StartFrom) -> str:
    """Return the start of a subscription as text for a log."""
    return f"replay ID {after.hex()}" if isinstance(after, bytes) else f"the {after.value}"


async def imported(module: str) -> Any:
    """Import a module in a thread: the import of gRPC or Arrow would block the event loop for too long."""
    return await asyncio.to_thread(importlib.import_module, module)
