from __future__ import annotations

from tests.support.object_storage import object_storage

__all__ = ["object_storage"]
