"""Connections to a runtime: a WebSocket, or the standard streams of the process."""

from __future__ import annotations

import asyncio
import os
import ssl as _ssl
import sys
import threading
from collections.abc import AsyncIterator
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

MAX_FRAME = 16 << 20  # bytes of a frame that is read
OPEN_TIMEOUT = 10.0  # seconds to open a connection


class LinkError(Exception):
    """The connection cannot be opened, or is lost."""


class Link(Protocol):
    """A connection. One task sends, and one receives."""

    async def send(self, frame: str) -> None:
        """Send a frame. Raises LinkError."""

    def frames(self) -> AsyncIterator[str | bytes]:
        """Return the frames that are received, until the connection ends. Raises LinkError."""

    async def close(self) -> None:
        """Close the connection."""


class WebSocketLink:
    """A WebSocket."""

    def __init__(self, ws: ClientConnection) -> None:
        self._ws = ws

    @classmethod
    async def open(cls, url: str, ssl: _ssl.SSLContext | None) -> WebSocketLink:
        """Open a connection. Raises LinkError."""
        options = {} if ssl is None else {"ssl": ssl}
        try:
            # The runtime pings, so the keepalive of the library is not needed.
            return cls(await connect(url, subprotocols=["arcp.v1"], compression=None, max_size=MAX_FRAME,  # type: ignore[list-item]
                                     open_timeout=OPEN_TIMEOUT, ping_interval=None, **options))  # type: ignore[arg-type]
        except (OSError, asyncio.TimeoutError, WebSocketException) as e:
            raise LinkError(str(e) or type(e).__name__) from e

    async def send(self, frame: str) -> None:
        try:
            await self._ws.send(frame)
        except (OSError, WebSocketException) as e:
            raise LinkError(_reason(e)) from e

    async def frames(self) -> AsyncIterator[str | bytes]:
        try:
            async for frame in self._ws:
                yield frame
        except (OSError, WebSocketException) as e:
            raise LinkError(_reason(e)) from e

    async def close(self) -> None:
        try:
            await self._ws.close()
        except (OSError, WebSocketException):
            pass  # it is closed


def _reason(e: Exception) -> str:
    """Return why a connection is lost."""
    if isinstance(e, ConnectionClosed):
        return f"the runtime has closed it: {e.rcvd.reason or e.rcvd.code}" if e.rcvd else "it was lost"
    return str(e)


class StdioLink:
    """The standard streams of the process, one frame a line.

    From then on, ``print`` and the processes that tools start write to standard error.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue(64)
        sys.stdout.flush()
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._in = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        threading.Thread(target=self._read, name="arcp-stdin", daemon=True).start()

    def _read(self) -> None:
        """Read lines in a thread. An empty line is the end."""
        with open(self._in, "rb") as lines:
            while True:
                line = lines.readline(MAX_FRAME)
                try:
                    asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop).result()
                except (RuntimeError, asyncio.CancelledError):
                    return  # the loop has ended
                if not line:
                    return

    async def send(self, frame: str) -> None:
        data = frame.encode() + b"\n"
        try:
            await asyncio.to_thread(self._write, data)
        except OSError as e:
            raise LinkError(str(e)) from e

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._out, view):]

    async def frames(self) -> AsyncIterator[str | bytes]:
        while line := await self._lines.get():
            yield line

    async def close(self) -> None:
        pass  # the streams end with the process
