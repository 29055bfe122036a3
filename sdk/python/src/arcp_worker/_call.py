"""The state of an attempt of a job, and the frames about it."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import threading
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ._errors import ToolError

if TYPE_CHECKING:
    from ._worker import Tool

MAX_PAYLOAD = 4 << 20  # bytes; the runtime accepts no larger result
MAX_BUFFERED = 256  # frames of a job that wait for a connection; then the methods of the context wait
MAX_REQUESTS = 32  # of a job under way; the runtime accepts 64


def new_id() -> str:
    """Return the id of a new message."""
    return f"msg_{uuid.uuid4().hex}"


def now() -> str:
    """Return the time in the form of the protocol."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def encode(value: Any) -> str:
    """Return a value as JSON: dataclasses are objects, and enums are their values. Raises TypeError or
    ValueError if it has no JSON, or more than MAX_PAYLOAD bytes."""
    text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    if (size := len(text.encode())) > MAX_PAYLOAD:
        raise ValueError(f"it has {size} bytes, and at most {MAX_PAYLOAD} are allowed")
    return text


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} has no JSON form")


@dataclass
class Frame:
    """A message to the runtime."""

    type: str
    payload: str  # JSON
    call: Call | None = None  # the job that it is about
    correlation_id: str = ""  # "": the dispatch of the call when the frame is sent
    job_id: str = ""
    id: str = field(default_factory=new_id)
    answer: asyncio.Future[dict[str, Any]] | None = None  # not None: the frame is sent again until it is answered

    def encode(self) -> str:
        """Return the message as it is sent."""
        about = {"arcp": "1.1", "id": self.id, "type": self.type, "timestamp": now()}
        if job_id := self.job_id or (self.call.job_id if self.call else ""):
            about["job_id"] = job_id
        if correlation_id := self.correlation_id or (self.call.dispatch if self.call else ""):
            about["correlation_id"] = correlation_id
        return f'{json.dumps(about)[:-1]}, "payload": {self.payload}}}'


class Call:
    """An attempt of a job in this process. It belongs to the event loop.

    A call is confirmed while the runtime is known to wait for it on the present connection. Only then
    are its frames sent.
    """

    def __init__(self, env: dict[str, Any], tool: Tool) -> None:
        self.tool = tool
        self.job_id: str = env["job_id"]
        self.dispatch: str = env["id"]
        self.trace_id: str = env.get("trace_id") or ""
        self.payload: dict[str, Any] = env["payload"]
        self.restored: Any = (self.payload.get("checkpoint") or {}).get("data")
        self.confirmed = True
        self.handler: asyncio.Task[Any] | None = None
        self.done = False  # the handler has returned
        self.succeeded = False
        self.cancelled = False  # the job is cancelled, or runs elsewhere
        self.dropped = False  # the runtime does not wait for the outcome any more
        self.reason = ""  # of the cancellation
        self.cancel_event = threading.Event()
        self.interrupt_id = ""  # of the open interrupt
        self.guidance = ""  # of the answer to the latest interrupt
        self.resumed = asyncio.Event()  # cleared while an interrupt is open
        self.resumed.set()
        self.adopted = asyncio.Event()  # another dispatch continues this call
        self.room = asyncio.Event()
        self.requests = asyncio.Semaphore(MAX_REQUESTS)
        self.buffer: deque[Frame] = deque()  # to be sent
        self.unanswered: dict[str, Frame] = {}  # requests that were sent
        self.ready = False  # it is in the list of calls with frames to send
        self.heartbeat = ""  # id of the latest heartbeat
        self.heartbeats = 0

    def cancel(self, reason: str) -> None:
        """Cancel the handler."""
        if self.done or self.cancelled:
            return
        self.cancelled, self.reason = True, reason
        self.cancel_event.set()
        self.resume("")
        if self.handler is not None and self.tool.is_async:
            self.handler.cancel()

    def interrupt(self, id: str) -> None:
        """Hold the handler at its next safe point."""
        if not self.done and not self.cancelled:
            self.interrupt_id = id
            self.resumed.clear()

    def resume(self, guidance: str) -> None:
        """Close the interrupt, if there is one."""
        if self.interrupt_id:
            self.interrupt_id, self.guidance = "", guidance
            self.resumed.set()

    def continues(self) -> bool:
        """Report whether another dispatch of the job can be answered with this attempt."""
        return not self.cancelled and (self.succeeded or not self.done)

    def drop(self, reason: str) -> None:
        """Cancel a handler whose outcome the runtime does not wait for."""
        self.cancel(reason)
        self.dropped = True
        for frame in [*self.unanswered.values(), *self.buffer]:
            if frame.answer is not None and not frame.answer.done():
                frame.answer.set_exception(ToolError("FAILED_PRECONDITION", reason))
        self.unanswered.clear()
        self.buffer.clear()
        self.room.set()
