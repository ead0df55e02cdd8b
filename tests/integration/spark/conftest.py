from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.spark import SHORT_LIVED, start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_session(tmp_path_factory.mktemp("spark"), SHORT_LIVED)
    yield session
    session.stop()
