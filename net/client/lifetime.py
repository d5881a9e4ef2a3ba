"""A base class for clients that are started before use and closed after it.

Owns that `async with` does both, in the same way for all clients. It must never know what starting
means.
"""

from abc import ABC, abstractmethod
from typing import Self


class ClientLifetime(ABC):
    """A client for `async with`, which starts it and closes it even if the block raises."""

    @abstractmethod
    async def start(self) -> None:
        """Make the client ready for use; raises ClientError if it is started already."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the servers' lists of clients, and close the connections. Closing twice does
        nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
