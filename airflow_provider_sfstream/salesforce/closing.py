"""Base of clients and streams that are context managers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class ClosedOnExit:
    """Context manager that closes itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""
