"""A worker's side of ARCP over one WebSocket: it opens a session, registers an
agent, does the jobs it is given, and goes on over another connection when one is
lost. A worker that the runtime has started speaks over its standard streams."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import sys
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, AsyncIterator, Awaitable, Callable

import websockets


class ToolError(Exception):
    """An error with a code of its own."""

    def __init__(self, code: str, message: str, retryable: bool = False):
        super().__init__(message)
        self.code, self.retryable = code, retryable


@dataclass
class Call:
    """One attempt of a job. Its handler's task is cancelled when the job is."""

    job_id: str
    args: dict[str, Any]
    attempt: int
    restored: Any  # what the checkpoint to go on from has kept; None: the start
    _worker: "Worker"
    _dispatch: str

    async def log(self, level: str, message: str) -> None:
        await self._say("log", {"level": level, "message": message})

    async def progress(self, current: float, total: float | None = None) -> None:
        await self._say("job.progress", {"current": current} | ({} if total is None else {"total": total}))

    async def emit(self, name: str, data: Any) -> None:
        await self._say("event.emit", {"name": name, "data": data})

    async def checkpoint(self, data: Any, label: str = "") -> None:
        """Returns when the checkpoint is durable."""
        await self._worker._ask("job.checkpoint", {"data": data, "label": label}, self.job_id, self._dispatch)

    async def _say(self, kind: str, payload: dict[str, Any]) -> None:
        await self._worker._send(kind, payload, job_id=self.job_id, correlation_id=self._dispatch)


@dataclass
class Tool:
    handle: Callable[[Call], Awaitable[Any]]
    about: dict[str, Any] = field(default_factory=dict)  # said in capabilities.tools


@dataclass
class _Running:
    job_id: str
    task: asyncio.Task[None] | None = None
    outcome: tuple[str, dict[str, Any]] | None = None  # until it is acknowledged


STDIO = "stdio:"  # the URL of the standard streams


class Stdio:
    """Standard input and output, a frame a line."""

    async def open(self) -> Stdio:
        self._lines = asyncio.StreamReader(limit=16 << 20)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._lines), sys.stdin)
        return self

    async def send(self, frame: str) -> None:
        print(frame, flush=True)

    async def close(self) -> None:
        self._lines.feed_eof()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while line := await self._lines.readline():
            yield line


class Worker:
    def __init__(self, url: str, token: str, name: str, tools: dict[str, Tool], concurrency: int = 1):
        self.url, self.token, self.name, self.tools, self.concurrency = url, token, name, tools, concurrency
        self._ws: Any = None
        self._main: Any = None  # the task of run
        self._resume_token, self._last_event, self._interval = "", 0, 30.0
        self._running: dict[str, _Running] = {}  # by the id of the dispatch
        self._waiting: dict[str, tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = {}

    async def run(self) -> None:
        """Works until it is cancelled, or standard input ends."""
        self._main, delay = asyncio.current_task(), 0.1
        try:
            if self.url == STDIO:
                self._ws = await Stdio().open()
                await self._open()
                async for frame in self._ws:
                    await self._receive(json.loads(frame))
            while self.url != STDIO:
                with contextlib.suppress(OSError, websockets.WebSocketException):
                    async with websockets.connect(self.url, subprotocols=["arcp.v1"], compression=None, max_size=16 << 20) as ws:
                        self._ws = ws
                        await self._open()
                        async for frame in ws:
                            if await self._receive(json.loads(frame)):
                                delay = 0.1
                await asyncio.sleep(random.random() * delay)
                delay = min(2 * delay, 5.0)
        finally:
            for running in self._running.values():
                if running.task:
                    running.task.cancel()

    async def _open(self) -> None:
        if self._resume_token:
            await self._send("session.resume", {"resume_token": self._resume_token, "last_event_seq": self._last_event})
        else:
            await self._send("session.open", {
                "auth": {"scheme": "none"} if self.url == STDIO else {"scheme": "bearer", "token": self.token},
                "client": {"kind": "worker-python", "version": "1.0.0"},
                "capabilities": {"executes": True},
            })

    async def _send(self, kind: str, payload: dict[str, Any], **about: str) -> None:
        about.setdefault("id", f"msg_{uuid.uuid4()}")
        frame = {"arcp": "1.1", "type": kind, "timestamp": datetime.now(timezone.utc).isoformat(), "payload": payload} | about
        # What is said while there is no connection is lost; what is asked is asked again.
        with contextlib.suppress(OSError, websockets.ConnectionClosed):
            await self._ws.send(json.dumps(frame))

    async def _ask(self, kind: str, payload: dict[str, Any], job_id: str = "", correlation_id: str = "") -> dict[str, Any]:
        """Asks, also over the next connection, until there is an answer."""
        about = {"id": f"msg_{uuid.uuid4()}"} | ({"job_id": job_id, "correlation_id": correlation_id} if job_id else {})
        question = {"kind": kind, "payload": payload} | about
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[about["id"]] = (question, answer)
        try:
            await self._send(**question)
            return await answer
        finally:
            self._waiting.pop(about["id"], None)

    async def _receive(self, env: dict[str, Any]) -> bool:
        """Deals with a frame; true: the session is there."""
        self._last_event = max(self._last_event, env.get("event_seq", 0))
        payload, kind = env["payload"], env["type"]
        match kind:
            case "session.accepted":
                self._resume_token, self._last_event = payload["resume_token"], 0
                self._interval = payload.get("heartbeat_interval_sec") or 30.0
                self._spawn(self._beat(self._ws))
                self._spawn(self._register())
                return True
            case "session.resumed":
                self._resume_token = payload["resume_token"]
                self._spawn(self._beat(self._ws))
                for question, _ in list(self._waiting.values()):
                    await self._send(**question)
                return True
            case "session.rejected" | "session.unauthenticated":
                if not payload.get("retryable"):
                    if not self._resume_token:
                        raise SystemExit(f"{kind}: {payload.get('message')}")
                    self._resume_token = ""  # that session has ended, and so has what it was doing
                    for running in self._running.values():
                        if running.task:
                            running.task.cancel()
                    self._running.clear()
                await self._ws.close()
            case "session.ping":
                await self._send("session.pong", {"ping_nonce": payload["nonce"], "received_at": datetime.now(timezone.utc).isoformat()},
                                 correlation_id=env["id"])
            case "tool.invoke":
                await self._take(env)
            case "cancel":
                running = self._running.get(env.get("correlation_id", ""))
                if running and running.task and not running.outcome:
                    running.task.cancel()
            case "job.accepted":
                pass
            case _:
                _, answer = self._waiting.get(env.get("correlation_id", ""), (None, None))
                if answer and not answer.done():
                    if kind in ("nack", "job.failed"):
                        answer.set_exception(ToolError(payload.get("code", ""), payload.get("message", "")))
                    else:
                        answer.set_result(env)
        return False

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return task

    async def _beat(self, ws: Any) -> None:
        for sequence in itertools.count(1):
            await asyncio.sleep(max(self._interval / 2, 0.1))  # twice an interval: one may be late
            if ws is not self._ws:
                return
            for dispatch, running in list(self._running.items()):
                if not running.outcome:
                    await self._send("job.heartbeat", {"sequence": sequence, "state": "running"},
                                     job_id=running.job_id, correlation_id=dispatch)

    async def _register(self) -> None:
        about = {ref: tool.about for ref, tool in self.tools.items() if tool.about}
        arguments = {"name": self.name, "kind": "worker", "executes": list(self.tools), "concurrency": self.concurrency,
                     "capabilities": {"tools": about}}
        try:
            await self._ask("tool.invoke", {"tool": "host.register_agent", "arguments": arguments})
        except ToolError as e:
            print(f"worker: not registered: {e}", file=sys.stderr, flush=True)
            self._main.cancel()
            return
        print(f"worker: registered {', '.join(self.tools)}", file=sys.stderr, flush=True)

    async def _take(self, env: dict[str, Any]) -> None:
        answer = {"job_id": env["job_id"], "correlation_id": env["id"]}
        running = self._running.get(env["id"])
        if running:  # after a reconnect: say again what may not have been heard
            await self._send("ack", {}, **answer)
            if running.outcome:
                await self._send(*running.outcome, **answer)
            return
        tool = self.tools.get(env["payload"]["tool"])
        if tool is None:
            await self._send("nack", {"code": "UNAVAILABLE", "message": "not executed here", "retryable": True}, **answer)
            return
        await self._send("ack", {}, **answer)
        running = self._running[env["id"]] = _Running(env["job_id"])
        running.task = self._spawn(self._work(env, tool, running))

    async def _work(self, env: dict[str, Any], tool: Tool, running: _Running) -> None:
        payload = env["payload"]
        restored = (payload.get("checkpoint") or {}).get("data")
        call = Call(env["job_id"], payload.get("arguments") or {}, payload["attempt"], restored, self, env["id"])
        try:
            running.outcome = "tool.result", {"value": await tool.handle(call)}
        except asyncio.CancelledError:
            running.outcome = "tool.error", {"code": "CANCELLED", "message": "cancelled", "retryable": False}
        except ToolError as e:
            running.outcome = "tool.error", {"code": e.code, "message": str(e), "retryable": e.retryable}
        except Exception as e:  # whatever a handler raises is its job's failure
            running.outcome = "tool.error", {"code": "UNKNOWN", "message": str(e), "retryable": False}
        with contextlib.suppress(ToolError):  # refused: nobody waits for it any more
            await self._ask(*running.outcome, env["job_id"], env["id"])
        self._running.pop(env["id"], None)


_tasks: set[asyncio.Task[Any]] = set()  # the loop keeps weak references only
