"""What is started before it is used, and closed behind it.

Owns that `async with` does both, the same for all clients. It must never know what starting means.
Base of what the other modules of this room offer.
"""

from abc import ABC, abstractmethod
from typing import Self


class ClientLifetime(ABC):
    """`async with` starts it and closes it, whatever happens inside."""

    @abstractmethod
    async def start(self) -> None:
        """Make it ready."""

    @abstractmethod
    async def close(self) -> None:
        """Leave, and close the connections."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
