"""The worker: it registers tools, executes their jobs, and resumes its session."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import inspect
import json
import logging
import os
import random
import signal
import ssl as _ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ._call import MAX_BUFFERED, Call, Frame, encode, new_id, now
from ._context import Context, SyncContext
from ._errors import Cancelled, ToolError, WorkerError
from ._link import Link, LinkError, StdioLink, WebSocketLink
from ._schema import Parameters

F = TypeVar("F", bound=Callable[..., Any])

SideEffect = Literal["none", "read", "write", "network", "database", "external_system"]
Recovery = Literal["fail", "rerun", "checkpoint"]

DEFAULT_URL = "ws://127.0.0.1:7777/arcp"
MIN_DELAY, MAX_DELAY = 0.1, 5.0  # seconds between connections
DEFAULT_INTERVAL = 30.0  # seconds between heartbeats, if the runtime announces none
MAX_SILENT = 4  # beats without a frame: two heartbeat intervals
STOP_TIMEOUT = 2.0  # seconds to wait for an answer when the worker stops

log = logging.getLogger("arcp_worker")


@dataclass
class Tool:
    """A tool of a worker."""

    ref: str  # name@version
    function: Callable[..., Any]
    parameters: Parameters
    is_async: bool
    description: dict[str, Any] = field(default_factory=dict)  # its entry in capabilities.tools


class _SessionEnded(Exception):
    """The session cannot be resumed. A new one can be opened."""


class Worker:
    """A worker of an ARCP runtime.

    ``url``: the address of the runtime; default: the variable ``ARCP_URL``, then ``ws://127.0.0.1:7777/arcp``.

    ``token``: a token of a principal with the role ``worker``, or a function that returns one for each new
    session; default: the variable ``ARCP_TOKEN``.

    ``name``: the name of the worker, for people.

    ``concurrency``: how many jobs run at once, of all tools together.

    ``grace``: how many seconds running jobs have to end when the worker is stopped. Jobs that still run then
    are lost: ``recovery`` of their tool decides whether another worker runs them.

    ``scheme``: ``"signed_jwt"`` if the token is a JWT.

    ``ssl``: the TLS context of a ``wss`` address; default: the certificates of the system.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | Callable[[], str] | None = None,
        name: str = "worker",
        concurrency: int = 1,
        grace: float = 8.0,
        scheme: Literal["bearer", "signed_jwt"] = "bearer",
        ssl: _ssl.SSLContext | None = None,
    ) -> None:
        if not 1 <= concurrency <= 1000:
            raise ValueError(f"concurrency is {concurrency}; it must be from 1 to 1000")
        self.url = url or os.environ.get("ARCP_URL") or DEFAULT_URL
        self.name = name
        self.concurrency = concurrency
        self._token, self._scheme, self._ssl, self._grace = token, scheme, ssl, grace
        self._tools: dict[str, Tool] = {}
        self._started = False
        self._stdio = False

        # The session.
        self._resume_token = ""
        self._last_event = 0
        self._interval = DEFAULT_INTERVAL
        self._agent = ""  # id of the registered agent

        # The connection.
        self._link: Link | None = None  # not None: the session is established on it
        self._silent = 0  # beats since the last frame
        self._control: deque[Frame] = deque()  # frames that go first
        self._ready: deque[Call] = deque()  # calls with frames to send
        self._retry_after = 0.0  # seconds that the runtime asks to wait
        self._said = ""  # the last reason that was logged

        # The jobs.
        self._calls: dict[str, Call] = {}  # by dispatch
        self._handlers = 0  # that run
        self._waiting: dict[str, Frame] = {}  # requests by id
        self._heartbeats: dict[str, Call] = {}  # by id of the heartbeat
        self._session_requests: dict[str, Frame] = {}  # requests that are about no job
        self._tasks: set[asyncio.Task[Any]] = set()

    def tool(
        self,
        name: str,
        *,
        version: str = "1.0.0",
        description: str | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        side_effect: SideEffect | None = None,
        recovery: Recovery | None = None,
        idempotent: bool | None = None,
        retry: dict[str, Any] | None = None,
        approval: str | dict[str, Any] | None = None,
        min_trust: str | None = None,
        timeout: float | None = None,
        start_timeout: float | None = None,
        interruptible: bool | None = None,
        max_request_bytes: int | None = None,
        max_response_bytes: int | None = None,
    ) -> Callable[[F], F]:
        """Make a function a tool.

        The parameters of the function are the arguments of the tool. One with the annotation
        :class:`Context` (or :class:`SyncContext`, if the function is not async) is the job. The
        annotations of the others make the input schema, unless ``input_schema`` is given. The default
        of ``description`` is the first paragraph of the docstring. ``timeout`` and ``start_timeout`` are
        in seconds. An ``interruptible`` tool calls ``safe_point`` of its context between its steps.
        SPEC.md §7.1 and §7.8 describe the members.
        """
        ref = name if "@" in name else f"{name}@{version}"
        members: dict[str, Any] = {
            "output_schema": output_schema, "side_effect": side_effect, "recovery": recovery, "idempotent": idempotent,
            "retry": retry, "approval": approval, "min_trust": min_trust, "interruptible": interruptible,
            "max_request_bytes": max_request_bytes, "max_response_bytes": max_response_bytes,
            "timeout_ms": _milliseconds(timeout), "start_timeout_ms": _milliseconds(start_timeout),
        }

        def register(function: F) -> F:
            if self._started:
                raise RuntimeError(f"tool {ref}: add tools before the worker runs")
            if ref in self._tools:
                raise ValueError(f"tool {ref} exists already")
            is_async = inspect.iscoroutinefunction(function)
            parameters = Parameters(function, (Context, SyncContext), input_schema)
            wanted = Context if is_async else SyncContext
            if parameters.context_type not in (None, wanted):
                raise TypeError(f"tool {ref}: the context of this function must be a {wanted.__name__}")
            about = {key: value for key, value in members.items() if value is not None}
            about["input_schema"] = parameters.schema()
            if text := description or (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " "):
                about["description"] = text
            self._tools[ref] = Tool(ref, function, parameters, is_async, about)
            return function

        return register

    def run(self, *, stdio: bool = False) -> None:
        """Work until the process is told to end with SIGINT or SIGTERM.

        With ``stdio`` the worker speaks over its standard streams, for a runtime that has started it,
        and works until its input ends. A refusal that another attempt would not change ends the
        process with a message and status 1.
        """
        if not logging.getLogger().handlers and not log.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            log.addHandler(handler)
            log.setLevel(logging.INFO)
        try:
            asyncio.run(self._run_process(stdio))
        except WorkerError as e:
            sys.exit(f"arcp_worker: {e}")
        except KeyboardInterrupt:
            sys.exit(130)

    async def _run_process(self, stdio: bool) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def on_signal() -> None:
            if self._stopping.is_set():
                task.cancel()  # the second signal
            self.stop()

        with contextlib.suppress(NotImplementedError):  # on Windows
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, on_signal)
        self._prepare()
        with contextlib.suppress(asyncio.CancelledError):
            await self.serve(stdio=stdio)

    def _prepare(self) -> None:
        """Make what belongs to the event loop."""
        if not self._started:
            self._started = True
            self._loop = asyncio.get_running_loop()
            self._stopping = asyncio.Event()
            self._registered = asyncio.Event()
            self._up = asyncio.Event()  # the session is established
            self._wake = asyncio.Event()  # there is a frame to send
            self._idle = asyncio.Event()  # there is no call
            self._idle.set()
            self._fatal: asyncio.Future[None] = self._loop.create_future()

    async def serve(self, *, stdio: bool = False) -> None:
        """Work until :meth:`stop` is called, the task is cancelled, or the input ends (``stdio``).

        Raises WorkerError when the runtime refuses the worker. A worker serves once.
        """
        if not self._tools:
            raise ValueError("the worker has no tools: add one with @worker.tool")
        self._prepare()
        self._stdio = stdio
        main = asyncio.ensure_future(self._connections())
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({main, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not main.done():
                await self._drain()
            elif not main.cancelled() and (error := main.exception()):
                raise error
        finally:
            for call in list(self._calls.values()):
                call.drop("the worker has ended")
            handlers = [c.handler for c in self._calls.values() if c.handler and c.tool.is_async]
            for task in (main, stop, *self._tasks):
                task.cancel()
            await asyncio.gather(main, stop, *self._tasks, *handlers, return_exceptions=True)

    def stop(self) -> None:
        """Stop: accept no more jobs, and end when the running ones have ended, after ``grace`` at the
        latest. Call it in the event loop."""
        self._prepare()
        self._stopping.set()

    async def ready(self) -> None:
        """Wait until the tools are registered for the first time."""
        self._prepare()
        await self._registered.wait()

    # Connections.

    async def _connections(self) -> None:
        """Serve one connection after another."""
        delay = MIN_DELAY
        while True:
            link: Link | None = None
            established, reason = False, "the connection was closed"
            try:
                link = StdioLink() if self._stdio else await WebSocketLink.open(self.url, self._ssl)
                await self._serve_link(link)
            except LinkError as e:
                reason = str(e)
            except _SessionEnded:
                reason = ""
            finally:
                established = self._disconnected()
                if link is not None:
                    await link.close()
            if self._stdio:
                return
            if reason and reason != self._said:
                log.warning("no connection to %s: %s; the worker tries again", self.url, reason)
                self._said = reason
            if established:
                delay = MIN_DELAY
            await asyncio.sleep(max(self._retry_after, delay * (0.5 + random.random() / 2)))
            self._retry_after = 0.0
            delay = min(2 * delay, MAX_DELAY)

    async def _serve_link(self, link: Link) -> None:
        """Serve a connection until it ends. The error is the reason."""
        self._silent = 0
        await link.send(self._opening().encode())
        tasks = {asyncio.ensure_future(c) for c in (self._receive_all(link), self._send_all(link), self._beat(link))}
        try:
            await asyncio.wait({*tasks, self._fatal}, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            if self._fatal.done():
                self._fatal.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _credential(self) -> str:
        token = self._token() if callable(self._token) else self._token
        return token or os.environ.get("ARCP_TOKEN") or ""

    def _opening(self) -> Frame:
        """Return the first message of a connection."""
        if self._resume_token:
            return Frame("session.resume", encode({"resume_token": self._resume_token, "last_event_seq": self._last_event}))
        from . import __version__

        auth = {"scheme": "none"} if self._stdio else {"scheme": self._scheme, "token": self._credential()}
        client = {"kind": "arcp-worker-python", "version": __version__}
        return Frame("session.open", encode({"auth": auth, "client": client, "capabilities": {"executes": True, "heartbeat": True}}))

    async def _receive_all(self, link: Link) -> None:
        async for text in link.frames():
            self._silent = 0
            try:
                env = json.loads(text)
            except ValueError:
                raise LinkError("the peer does not send JSON: is the address one of an ARCP runtime?") from None
            try:
                self._receive(link, env)
            except (AttributeError, KeyError, TypeError, ValueError) as e:
                raise LinkError(f"the runtime has sent a message that is not valid: {e!r}") from e

    async def _send_all(self, link: Link) -> None:
        while True:
            if (frame := self._next_frame()) is not None:
                await link.send(frame.encode())
            else:
                self._wake.clear()
                await self._wake.wait()

    def _next_frame(self) -> Frame | None:
        """Take the next frame to send: of the session, then of the calls in turn."""
        if self._control:
            return self._control.popleft()
        while self._link is not None and self._ready:
            call = self._ready.popleft()
            call.ready = False
            if not call.buffer or not call.confirmed:
                continue
            frame = call.buffer.popleft()
            call.room.set()
            if frame.answer is not None:
                call.unanswered[frame.id] = frame
            self._schedule(call)
            return frame
        return None

    def _schedule(self, call: Call) -> None:
        """Have the frames of a call sent."""
        if call.buffer and call.confirmed and not call.ready and self._link is not None:
            call.ready = True
            self._ready.append(call)
            self._wake.set()

    def _put(self, frame: Frame) -> None:
        """Send a frame before those of the calls. Without a session it is lost."""
        if self._link is not None or frame.type == "session.authenticate":
            self._control.append(frame)
            self._wake.set()

    def _established(self, link: Link) -> None:
        """Continue on a connection."""
        if self._said:
            log.info("connected to %s", self.url)
        self._link, self._said = link, ""
        self._up.set()
        for call in list(self._calls.values()):
            if call.done:
                self._confirm(call)  # its outcome has no answer yet
        if self._calls:
            self._spawn(self._drop_unconfirmed(list(self._calls.values())))
        self._wake.set()

    def _disconnected(self) -> bool:
        """Forget the connection. Return whether the session was established on it."""
        established, self._link = self._link is not None, None
        self._up.clear()
        self._control.clear()
        self._ready.clear()
        self._heartbeats.clear()
        for call in self._calls.values():
            call.confirmed = call.ready = False
        return established

    async def _drop_unconfirmed(self, calls: list[Call]) -> None:
        """Drop the calls that the runtime does not dispatch again within two heartbeat intervals: their
        jobs have ended, or run elsewhere."""
        link = self._link
        await asyncio.sleep(2 * self._interval)
        for call in calls:
            if self._link is link and not call.confirmed and self._calls.get(call.dispatch) is call:
                self._drop(call, "the job has ended or runs elsewhere")

    async def _beat(self, link: Link) -> None:
        """Send the heartbeats of jobs, and watch those of the runtime."""
        try:
            await asyncio.wait_for(self._up.wait(), DEFAULT_INTERVAL)
        except asyncio.TimeoutError:
            raise LinkError(f"the runtime has not answered within {DEFAULT_INTERVAL:.0f} s") from None
        while True:
            await asyncio.sleep(max(self._interval / 2, 0.01))  # twice an interval: one may be late
            # Beats are counted, not time: a process that was stopped has not seen what was sent meanwhile.
            self._silent += 1
            if self._silent > MAX_SILENT:
                raise LinkError("the runtime has sent nothing for two heartbeat intervals")
            for call in self._calls.values():
                if call.confirmed and not call.done:
                    call.heartbeats += 1
                    beat = Frame("job.heartbeat", encode({"sequence": call.heartbeats, "state": "running"}), call)
                    self._heartbeats.pop(call.heartbeat, None)
                    self._heartbeats[beat.id] = call
                    call.heartbeat = beat.id
                    self._put(beat)

    # Messages of the runtime.

    def _receive(self, link: Link, env: dict[str, Any]) -> None:
        if not isinstance(env, dict) or not isinstance(env.get("payload"), dict):
            raise LinkError("the peer does not send ARCP messages: is the address one of an ARCP runtime?")
        self._last_event = max(self._last_event, env.get("event_seq") or 0)
        kind, payload = env.get("type"), env["payload"]
        if kind == "session.accepted":
            self._accepted(link, payload)
        elif kind == "session.resumed":
            self._resume_token = payload["resume_token"]
            self._control.extend(self._session_requests.values())
            self._established(link)
        elif kind in ("session.rejected", "session.unauthenticated"):
            self._refused(payload)
        elif kind == "session.challenge":
            key = hashlib.sha256(self._credential().encode()).digest()
            response = hmac.new(key, payload["challenge"].encode(), hashlib.sha256).hexdigest()
            self._put(Frame("session.authenticate", encode({"response": response})))
        elif kind == "session.evicted":
            raise LinkError(f"the session was evicted: {payload.get('code')}: {payload.get('reason')}")
        elif kind == "session.ping":
            self._put(Frame("session.pong", encode({"ping_nonce": payload["nonce"], "received_at": now()}), correlation_id=env["id"]))
        elif kind == "tool.invoke":
            self._dispatch(env)
        elif kind == "cancel":
            if call := self._calls.get(env.get("correlation_id", "")):
                call.cancel(str(payload.get("reason") or "cancelled"))
        elif kind == "interrupt":
            if call := self._calls.get(env.get("correlation_id", "")):
                call.interrupt(env["id"])
        elif kind == "human.input.response":
            self._resume(env)
        elif kind != "job.accepted":
            self._answered(env)

    def _resume(self, env: dict[str, Any]) -> None:
        """Resume the call whose interrupt the message answers."""
        for call in self._calls.values():
            if call.interrupt_id and call.interrupt_id == env.get("correlation_id"):
                call.resume(str(env["payload"]["value"].get("guidance") or ""))

    def _accepted(self, link: Link, payload: dict[str, Any]) -> None:
        """Begin a new session."""
        if not payload.get("capabilities", {}).get("executes"):
            raise WorkerError("PERMISSION_DENIED", "the principal of the token needs the role worker")
        self._resume_token, self._last_event = payload["resume_token"], 0
        self._interval = float(payload.get("heartbeat_interval_sec") or DEFAULT_INTERVAL)
        for frame in self._session_requests.values():  # of the session before
            if frame.answer is not None:
                frame.answer.cancel()
        self._session_requests.clear()
        self._established(link)
        self._spawn(self._register())

    def _refused(self, payload: dict[str, Any]) -> None:
        """Handle the refusal of a session."""
        error = ToolError.from_payload(payload)
        if error.retryable:
            self._retry_after = float((error.details or {}).get("retry_after_seconds") or 0)
            raise LinkError(str(error))
        if self._resume_token:
            self._resume_token = ""
            raise _SessionEnded
        message = error.message
        if error.code == "UNAUTHENTICATED":
            message += "; set token, or the variable ARCP_TOKEN, to a token of the runtime: `arcp dev` prints one"
        raise WorkerError(error.code, message)

    async def _register(self) -> None:
        """Register the tools in a new session."""
        about = {ref: tool.description for ref, tool in self._tools.items()}
        arguments = {"name": self.name, "kind": "worker", "executes": list(self._tools), "concurrency": self.concurrency,
                     "pid": os.getpid(), "capabilities": {"tools": about}}
        delay = MIN_DELAY
        while True:
            try:
                payload = await self._ask_session("tool.invoke", {"tool": "host.register_agent", "arguments": arguments})
                break
            except ToolError as e:
                if not e.retryable:
                    if not self._fatal.done():
                        self._fatal.set_exception(WorkerError(e.code, f"the tools are not registered: {e.message}"))
                    return
                log.warning("the tools are not registered: %s; the worker tries again", e)
            await asyncio.sleep(delay * (0.5 + random.random() / 2))
            delay = min(2 * delay, MAX_DELAY)
        self._agent = payload["value"]["id"]
        log.info("registered %s", ", ".join(self._tools))
        self._registered.set()

    async def _ask_session(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send a request that is about no job, and return the payload of the answer."""
        frame = Frame(kind, encode(payload), answer=self._loop.create_future())
        self._waiting[frame.id] = self._session_requests[frame.id] = frame
        self._put(frame)
        try:
            return await self._answer(frame)
        finally:
            self._session_requests.pop(frame.id, None)

    async def _answer(self, frame: Frame) -> dict[str, Any]:
        """Wait for the answer to a request. A refusal is a ToolError."""
        assert frame.answer is not None
        try:
            env = await frame.answer
        finally:
            self._waiting.pop(frame.id, None)
            if frame.call is not None:
                frame.call.unanswered.pop(frame.id, None)
        if env["type"] in ("nack", "job.failed", "job.cancelled"):
            raise ToolError.from_payload({"code": "CANCELLED", "message": "cancelled"} | env["payload"])
        payload: dict[str, Any] = env["payload"]
        return payload

    def _answered(self, env: dict[str, Any]) -> None:
        """Handle a message that may be an answer."""
        correlation_id = env.get("correlation_id", "")
        if frame := self._waiting.get(correlation_id):
            if frame.answer is not None and not frame.answer.done():
                frame.answer.set_result(env)
        elif env["type"] == "nack" and (call := self._heartbeats.pop(correlation_id, None)):
            if call.confirmed:  # the attempt does not belong to this session any more
                call.confirmed = False
                self._spawn(self._drop_unconfirmed([call]))

    # Jobs.

    def _dispatch(self, env: dict[str, Any]) -> None:
        """Accept or refuse a job."""
        known = self._calls.get(env["id"])
        if known is not None:
            self._acknowledge(env)
            self._confirm(known)
            return
        tool = self._tools.get(env["payload"].get("tool", ""))
        if tool is None:
            self._refuse(env, ToolError("UNIMPLEMENTED", f"the worker does not execute {env['payload'].get('tool')}"))
            return
        for call in list(self._calls.values()):
            if call.job_id == env["job_id"]:
                if call.continues():
                    self._adopt(call, env)
                    return
                self._drop(call, "the job was assigned again")
        if self._stopping.is_set():
            self._refuse(env, ToolError("UNAVAILABLE", "the worker is stopping", retryable=True))
        elif self._handlers >= self.concurrency:
            self._refuse(env, ToolError("RESOURCE_EXHAUSTED", "the worker is busy", retryable=True))
        else:
            self._acknowledge(env)
            call = self._calls[env["id"]] = Call(env, tool)
            self._idle.clear()
            self._handlers += 1
            self._spawn(self._execute(call))

    def _acknowledge(self, env: dict[str, Any]) -> None:
        self._put(Frame("ack", "{}", correlation_id=env["id"], job_id=env["job_id"]))

    def _refuse(self, env: dict[str, Any], error: ToolError) -> None:
        self._put(Frame("nack", encode(error.payload()), correlation_id=env["id"], job_id=env["job_id"]))

    def _adopt(self, call: Call, env: dict[str, Any]) -> None:
        """Continue a call as the next attempt of its job: the runtime has lost the attempt before, but
        this process has not. Its requests are sent again, with new ids."""
        self._put(Frame("tool.error", encode(ToolError("ABORTED", "continued as the next attempt").payload()),
                        correlation_id=call.dispatch, job_id=call.job_id))
        self._acknowledge(env)
        del self._calls[call.dispatch]
        call.dispatch, call.payload = env["id"], env["payload"]
        self._calls[call.dispatch] = call
        frames, call.unanswered = list(call.unanswered.values()), {}
        for frame in frames:
            del self._waiting[frame.id]
            frame.id = new_id()
            self._waiting[frame.id] = call.unanswered[frame.id] = frame
        call.resume("")  # the runtime interrupts the new attempt itself
        call.confirmed = False
        self._confirm(call)
        call.adopted.set()

    def _confirm(self, call: Call) -> None:
        """Send the frames of a call, those without an answer first."""
        if not call.confirmed:
            call.confirmed = True
            call.buffer.extendleft(reversed(call.unanswered.values()))
            call.unanswered.clear()
            self._schedule(call)

    def _drop(self, call: Call, reason: str) -> None:
        """End a call whose outcome the runtime does not wait for."""
        log.warning("job %s: %s", call.job_id, reason)
        call.drop(reason)
        self._forget(call)

    def _forget(self, call: Call) -> None:
        if self._calls.get(call.dispatch) is call:
            del self._calls[call.dispatch]
        if not self._calls:
            self._idle.set()

    async def _execute(self, call: Call) -> None:
        """Execute a call and send its outcome until it is acknowledged."""
        call.handler = asyncio.ensure_future(self._handle(call))
        if call.cancelled:
            call.handler.cancel()
        try:
            await asyncio.wait({call.handler})
        finally:
            self._handlers -= 1
        kind, payload = self._outcome(call)
        call.done, call.succeeded = True, kind == "tool.result"
        if call.dropped:  # the runtime counts the job until there is an outcome
            self._put(Frame(kind, payload, job_id=call.job_id, correlation_id=call.dispatch))
            return
        try:
            await self._finish(call, kind, payload)
        finally:
            self._forget(call)

    async def _finish(self, call: Call, kind: str, payload: str) -> None:
        """Send the outcome of a call. A result that is refused is sent again if the job is dispatched to
        this process again."""
        while True:
            call.adopted.clear()
            try:
                await self._submit(call, kind, payload)
                return
            except ToolError as e:
                if call.dropped:
                    return
                log.warning("job %s: the outcome was refused: %s", call.job_id, e)
                if not call.continues() or self._stopping.is_set():
                    return
            try:
                await asyncio.wait_for(call.adopted.wait(), 2 * self._interval)
            except asyncio.TimeoutError:
                return

    async def _handle(self, call: Call) -> Any:
        """Call the function of the tool."""
        tool, arguments = call.tool, call.payload.get("arguments") or {}
        try:
            values = tool.parameters.bind(arguments)
        except (TypeError, ValueError) as e:
            raise ToolError("INVALID_ARGUMENT", str(e)) from e
        name = tool.parameters.context
        if tool.is_async:
            try:
                return await tool.function(**values, **({name: Context(self, call)} if name else {}))
            except (SystemExit, KeyboardInterrupt) as e:  # would end the event loop
                raise _plain_error(e) from e
        if name:
            values[name] = SyncContext(self, call, self._loop)
        return await self._in_thread(lambda: tool.function(**values), f"arcp-{call.job_id}")

    async def _in_thread(self, function: Callable[[], Any], name: str) -> Any:
        """Run a function in a thread that does not keep the process from ending."""
        done: asyncio.Future[Any] = self._loop.create_future()

        def finish(set_outcome: Callable[[Any], None], outcome: Any) -> None:
            if not done.done():
                set_outcome(outcome)

        def run() -> None:
            try:
                outcome: tuple[Callable[[Any], None], Any] = done.set_result, function()
            except BaseException as e:
                outcome = done.set_exception, _plain_error(e)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(finish, *outcome)

        threading.Thread(target=run, name=name, daemon=True).start()
        return await done

    def _outcome(self, call: Call) -> tuple[str, str]:
        """Return the type and the payload of the last message about a call."""
        assert call.handler is not None
        cancelled = ToolError("CANCELLED", call.reason or "cancelled")
        if call.handler.cancelled():
            return "tool.error", encode((cancelled if call.cancelled else ToolError("UNKNOWN", "the tool has cancelled itself")).payload())
        error = call.handler.exception()
        if error is None:
            try:
                return "tool.result", f'{{"value":{encode(call.handler.result())}}}'
            except (TypeError, ValueError) as e:
                error = ToolError("INTERNAL", f"the result of {call.tool.ref} cannot be sent: {e}")
                log.error("job %s: %s", call.job_id, error.message)
        if call.cancelled or isinstance(error, Cancelled):
            return "tool.error", encode(cancelled.payload())
        if not isinstance(error, ToolError):
            log.error("job %s: %s has failed", call.job_id, call.tool.ref, exc_info=error)
            error = ToolError("UNKNOWN", str(error) or type(error).__name__)
        try:
            return "tool.error", encode(error.payload())
        except (TypeError, ValueError) as e:
            return "tool.error", encode(ToolError("INTERNAL", f"the error of {call.tool.ref} cannot be sent: {e}").payload())

    # Messages about jobs.

    async def _event(self, call: Call, kind: str, payload: dict[str, Any]) -> None:
        """Send an event of a job."""
        frame = Frame(kind, _encode_event(kind, payload), call)
        while len(call.buffer) >= MAX_BUFFERED and not call.dropped:
            call.room.clear()
            await call.room.wait()
        if not call.dropped and not call.done:
            call.buffer.append(frame)
            self._schedule(call)

    async def _request(self, call: Call, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send a request about a job, and return the payload of the answer."""
        text = _encode_event(kind, payload)
        async with call.requests:
            if call.done:
                raise ToolError("FAILED_PRECONDITION", "the job has ended")
            return await self._submit(call, kind, text)

    async def _submit(self, call: Call, kind: str, payload: str) -> dict[str, Any]:
        if call.dropped:
            raise ToolError("FAILED_PRECONDITION", call.reason)
        frame = Frame(kind, payload, call, answer=self._loop.create_future())
        self._waiting[frame.id] = frame
        call.buffer.append(frame)
        self._schedule(call)
        try:
            return await self._answer(frame)
        finally:
            with contextlib.suppress(ValueError):
                call.buffer.remove(frame)  # it was given up before it was sent

    async def _child(self, call: Call, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool for a job. The idempotency key makes a repeated call one child."""
        payload = await self._request(call, "tool.invoke", {"tool": tool, "arguments": arguments, "idempotency_key": new_id()})
        return payload.get("value")

    # The end.

    async def _drain(self) -> None:
        """Unregister the tools, wait for the running jobs, and end the session."""
        if self._link is not None and self._agent:
            await self._try_session("tool.invoke", {"tool": "host.unregister_agent", "arguments": {"agent_id": self._agent}})
        try:
            await asyncio.wait_for(self._idle.wait(), self._grace)
        except asyncio.TimeoutError:
            log.warning("%d jobs have not ended within %g s; they are lost", len(self._calls), self._grace)
        if self._link is not None:
            await self._try_session("session.close", {"reason": "the worker stops", "forget": True})

    async def _try_session(self, kind: str, payload: dict[str, Any]) -> None:
        try:
            await asyncio.wait_for(self._ask_session(kind, payload), STOP_TIMEOUT)
        except (ToolError, asyncio.TimeoutError) as e:
            log.debug("%s: %s", kind, e)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the worker."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _encode_event(kind: str, payload: dict[str, Any]) -> str:
    try:
        return encode(payload)
    except (TypeError, ValueError) as e:
        raise type(e)(f"{kind} cannot be sent: {e}") from None


def _plain_error(e: BaseException) -> Exception:
    """Return an exception that a future accepts, and that ends neither the event loop nor a task."""
    if isinstance(e, Exception) and not isinstance(e, StopIteration):
        return e
    error = RuntimeError(f"the tool has raised {e!r}")
    error.__cause__ = e
    return error


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
