"""Small things that both sides of the trigger need."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.events import StartFrom


def described(after: bytes | StartFrom) -> str:
    """Return where a subscription begins, for a log line."""
    return f"replay ID {after.hex()}" if isinstance(after, bytes) else f"the {after.value}"


async def imported(module: str) -> Any:
    """Return a module whose import (gRPC, Arrow) takes long enough to hold up an event loop."""
    return await asyncio.to_thread(importlib.import_module, module)
