"""What a tool knows about its job, and how it reports on it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._call import Call
from ._errors import Cancelled

if TYPE_CHECKING:
    from ._worker import Worker

T = TypeVar("T")

Level = Literal["trace", "debug", "info", "warn", "error", "critical"]


class _Job:
    """The job of a context."""

    def __init__(self, worker: Worker, call: Call) -> None:
        self._worker, self._call = worker, call

    @property
    def job_id(self) -> str:
        """The identifier of the job."""
        return self._call.job_id

    @property
    def tool(self) -> str:
        """The tool as name@version."""
        return str(self._call.payload["tool"])

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as they were received."""
        return self._call.payload.get("arguments") or {}

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return int(self._call.payload.get("attempt") or 1)

    @property
    def restored(self) -> Any:
        """The data of the checkpoint to continue from, or None."""
        return self._call.restored

    @property
    def lease(self) -> Any:
        """The lease of the job, or None."""
        return self._call.payload.get("lease")

    @property
    def deadline(self) -> str | None:
        """When the attempt ends at the latest, as in RFC 3339, unless the connection is lost; or None."""
        return self._call.payload.get("deadline")

    @property
    def trace_id(self) -> str:
        """The trace of the job."""
        return self._call.trace_id

    @property
    def cancelled(self) -> bool:
        """Whether the job is cancelled. The tool should then stop."""
        return self._call.cancelled


class Context(_Job):
    """The job of an async tool.

    The cancellation of the job raises ``asyncio.CancelledError`` in the tool. Events are sent in the
    order of the calls. While there is no connection, up to 256 of them wait; then the methods wait.
    """

    async def progress(self, current: float, total: float | None = None, *, units: str | None = None, message: str | None = None) -> None:
        """Report the progress of the job."""
        await self._worker._event(self._call, "job.progress", _members(current=current, total=total, units=units, message=message))

    async def log(self, message: str, level: Level = "info", **attributes: Any) -> None:
        """Emit a log event of the job."""
        await self._worker._event(self._call, "log", _members(level=level, message=message, attributes=attributes or None))

    async def metric(self, name: str, value: float, unit: str = "1", **dimensions: str) -> None:
        """Emit a measurement. A name that begins with ``cost.`` debits the budget of the job."""
        await self._worker._event(self._call, "metric", _members(name=name, value=value, unit=unit, dims=dimensions or None))

    async def emit(self, name: str, data: Any) -> None:
        """Emit a named event of the job."""
        await self._worker._event(self._call, "event.emit", {"name": name, "data": data})

    async def checkpoint(self, data: Any, label: str = "") -> None:
        """Save data, and return when it is durable. A later attempt of a tool with ``recovery``
        ``"checkpoint"`` has it as ``restored``."""
        await self._worker._request(self._call, "job.checkpoint", {"data": data} | _members(label=label or None))

    async def call(self, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call another tool within the lease of the job, and return its result. Raises ToolError."""
        return await self._worker._child(self._call, tool, arguments or {})

    async def safe_point(self) -> str:
        """Wait while a client interrupts the job, and return the guidance of the client, or "". Tools with
        ``interruptible`` call it between their steps."""
        await asyncio.sleep(0)  # has the event loop receive messages
        while not self._call.resumed.is_set():
            await self._call.resumed.wait()
        guidance, self._call.guidance = self._call.guidance, ""
        return guidance


class SyncContext(_Job):
    """The job of a tool that is not async. Such a tool runs in a thread of its own.

    The methods are those of :class:`Context`. When the job is cancelled they raise
    :class:`Cancelled`, and ``cancelled`` is true. They may be called from any thread but that of the
    event loop.
    """

    def __init__(self, worker: Worker, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(worker, call)
        self._loop, self._async = loop, Context(worker, call)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self.cancelled:
            coroutine.close()
            raise Cancelled(self._call.reason)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def check(self) -> None:
        """Raise Cancelled if the job is cancelled."""
        if self.cancelled:
            raise Cancelled(self._call.reason)

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait until the job is cancelled, at most ``timeout`` seconds. Return whether it is."""
        return self._call.cancel_event.wait(timeout)

    def progress(self, current: float, total: float | None = None, *, units: str | None = None, message: str | None = None) -> None:
        """Report the progress of the job."""
        self._run(self._async.progress(current, total, units=units, message=message))

    def log(self, message: str, level: Level = "info", **attributes: Any) -> None:
        """Emit a log event of the job."""
        self._run(self._async.log(message, level, **attributes))

    def metric(self, name: str, value: float, unit: str = "1", **dimensions: str) -> None:
        """Emit a measurement. A name that begins with ``cost.`` debits the budget of the job."""
        self._run(self._async.metric(name, value, unit, **dimensions))

    def emit(self, name: str, data: Any) -> None:
        """Emit a named event of the job."""
        self._run(self._async.emit(name, data))

    def checkpoint(self, data: Any, label: str = "") -> None:
        """Save data, and return when it is durable."""
        self._run(self._async.checkpoint(data, label))

    def call(self, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call another tool within the lease of the job, and return its result. Raises ToolError."""
        return self._run(self._async.call(tool, arguments))

    def safe_point(self) -> str:
        """Wait while a client interrupts the job, and return the guidance of the client, or "". Tools with
        ``interruptible`` call it between their steps."""
        guidance = self._run(self._async.safe_point())
        self.check()
        return guidance


def _members(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
