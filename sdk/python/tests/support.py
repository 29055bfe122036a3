"""A runtime that the tests play, and a real one with a client."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from arcp_worker import Worker

T = TypeVar("T")

DEADLINE = 60.0  # seconds, ten times what a test needs
TOKEN = "token-0123456789abcdef"
PROGRAMS = pathlib.Path(__file__).parent
ARCP = os.environ.get("ARCP_BIN", "")

needs_arcp = unittest.skipUnless(ARCP, "the variable ARCP_BIN does not name the program arcp")


async def soon(work: Coroutine[Any, Any, T]) -> T:
    """Wait for what is promised."""
    return await asyncio.wait_for(work, DEADLINE)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker."""
    task = asyncio.ensure_future(worker.serve())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Peer:
    """A worker's connection, as a played runtime sees it."""

    def __init__(self, ws: ServerConnection) -> None:
        self.ws = ws
        self.sent = 0

    async def send(self, kind: str, payload: Any, **about: Any) -> str:
        self.sent += 1
        about.setdefault("id", f"msg_{id(self)}_{self.sent}")
        await self.ws.send(json.dumps({"arcp": "1.1", "type": kind, "timestamp": "2030-01-01T00:00:00Z", "payload": payload} | about))
        return str(about["id"])

    async def receive(self, kind: str) -> Any:
        """Return the next message, which must be of a type. Heartbeats are left out, if they are not asked for."""
        while True:
            env = json.loads(await soon(self.ws.recv()))
            if env["type"] == "job.heartbeat" != kind:
                continue
            if env["type"] != kind:
                raise AssertionError(f"{env} is not of type {kind}")
            return env

    async def closed(self) -> None:
        await soon(self.ws.wait_closed())

    async def open(self, interval: float = 30, token: str = "resume-1") -> Any:
        """Accept a session, and the registration."""
        env = await self.receive("session.open")
        await self.send("session.accepted", {"session_id": "sess_1", "resume_token": token, "heartbeat_interval_sec": interval,
                                             "capabilities": {"executes": True}}, correlation_id=env["id"])
        await self.register()
        return env

    async def register(self) -> Any:
        env = await self.receive("tool.invoke")
        assert env["payload"]["tool"] == "host.register_agent"
        await self.send("job.accepted", {"job_id": "job_r"}, correlation_id=env["id"], event_seq=1)
        await self.send("job.completed", {"value": {"id": "agent-1"}}, correlation_id=env["id"], event_seq=2)
        return env

    async def resume(self, token: str = "resume-2") -> Any:
        env = await self.receive("session.resume")
        await self.send("session.resumed", {"session_id": "sess_1", "resume_token": token, "replayed_from": 2, "replayed": False})
        return env

    async def dispatch(self, tool: str, arguments: Any = None, job: str = "job_1", id: str = "msg_d1", attempt: int = 1, **more: Any) -> None:
        await self.send("tool.invoke", {"tool": tool, "arguments": arguments or {}, "attempt": attempt} | more, id=id, job_id=job)


class PlayedRuntime:
    """A server whose connections a test answers."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()

    async def __aenter__(self) -> PlayedRuntime:
        self._server = await serve(self._serve, "127.0.0.1", 0, subprotocols=["arcp.v1"])  # type: ignore[list-item]
        self.url = "ws://127.0.0.1:%d/arcp" % next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, ws: ServerConnection) -> None:
        await self.peers.put(Peer(ws))
        await ws.wait_closed()

    async def accept(self) -> Peer:
        return await soon(self.peers.get())


class Job:
    """A job that a client has submitted."""

    def __init__(self) -> None:
        self.id = ""
        self.events: list[Any] = []
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    async def reach(self, kind: str) -> Any:
        """Return the next event of a type."""
        while True:
            env = await soon(self.queue.get())
            self.events.append(env)
            if env["type"] == kind:
                return env
            if env["type"] in ("job.completed", "job.failed", "job.cancelled"):
                raise AssertionError(f"the job has ended with {env}")

    async def value(self) -> Any:
        return (await self.reach("job.completed"))["payload"]["value"]

    async def failure(self) -> Any:
        return (await self.reach("job.failed"))["payload"]


class Runtime:
    """A process of `arcp serve`."""

    def __init__(self, *options: str, token: bool = True) -> None:
        self._dir = tempfile.TemporaryDirectory()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % s.getsockname()[1]
        self.url = f"ws://{self.address}/arcp"
        self._options = ["--token", f"alice={TOKEN}"] * token + list(options)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            ARCP, "serve", "--listen", self.address, "--admin", "", "--data", self._dir.name, "--heartbeat", "1s", "--log-level", "error",
            *self._options, stdout=subprocess.PIPE)
        assert self._process.stdout
        line = await soon(self._process.stdout.readline())
        assert line.startswith(b"listening "), line

    async def kill(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def __aenter__(self) -> Runtime:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        self._dir.cleanup()


class Client:
    """A client that submits jobs. It resumes its session after a lost connection."""

    def __init__(self, url: str) -> None:
        self._url, self._jobs, self._sent = url, dict[str, Job](), 0
        self._resume, self._seq = "", 0
        self._up = asyncio.Event()

    async def __aenter__(self) -> Client:
        self._task = asyncio.ensure_future(self._run())
        await soon(self._up.wait())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                async with connect(self._url, subprotocols=["arcp.v1"], ping_interval=None, max_size=None) as ws:  # type: ignore[list-item]
                    await self._serve(ws)
            except Exception:
                await asyncio.sleep(0.05)  # before the next attempt

    async def _serve(self, ws: ClientConnection) -> None:
        self._ws = ws
        if self._resume:
            await self._send("session.resume", {"resume_token": self._resume, "last_event_seq": self._seq})
        else:
            await self._send("session.open", {"auth": {"scheme": "bearer", "token": TOKEN}, "client": {"kind": "test", "version": "1"},
                                              "capabilities": {"human_input": True, "interrupt": True}})
        async for text in ws:
            env = json.loads(text)
            self._seq = max(self._seq, env.get("event_seq", 0))
            if env["type"] in ("session.accepted", "session.resumed"):
                self._resume = env["payload"]["resume_token"]
                self._up.set()
            elif job := self._jobs.get(env.get("correlation_id") or ""):
                job.id = job.id or env.get("job_id", "")
                job.queue.put_nowait(env)

    async def _send(self, kind: str, payload: Any, **about: Any) -> str:
        self._sent += 1
        id = f"msg_test_{self._sent}"
        await self._ws.send(json.dumps({"arcp": "1.1", "id": id, "type": kind, "timestamp": "2030-01-01T00:00:00Z", "payload": payload} | about))
        return id

    async def submit(self, tool: str, arguments: Any = None, **more: Any) -> Job:
        job = Job()
        self._jobs[f"msg_test_{self._sent + 1}"] = job
        await self._send("tool.invoke", {"tool": tool, "arguments": arguments or {}} | more)
        return job

    async def call(self, tool: str, arguments: Any = None, **more: Any) -> Any:
        return await (await self.submit(tool, arguments, **more)).value()

    async def cancel(self, job: Job) -> None:
        await self._send("cancel", {"target": "job", "target_id": job.id, "reason": "enough", "deadline_ms": 60000})

    async def interrupt(self, job: Job) -> None:
        await self._send("interrupt", {"target": "job", "target_id": job.id, "prompt": "stop"})

    async def guide(self, job: Job, request: Any, guidance: str) -> None:
        """Answer the question of an interrupted job."""
        await self._send("human.input.response", {"value": {"action": "continue", "guidance": guidance}, "responded_at": "2030-01-01T00:00:00Z"},
                         correlation_id=request["id"], job_id=job.id)


class Program:
    """A process of a worker in this directory."""

    def __init__(self, name: str, *arguments: str, **variables: str) -> None:
        self._argv = [sys.executable, str(PROGRAMS / name), *arguments]
        self._variables = variables

    async def __aenter__(self) -> Program:
        self.process = await asyncio.create_subprocess_exec(*self._argv, env=os.environ | self._variables, stderr=subprocess.PIPE)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def says(self, text: str) -> str:
        """Return the next line of standard error with a text."""
        assert self.process.stderr
        while line := await soon(self.process.stderr.readline()):
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"the program has ended without saying {text!r}")
