"""The worker against a runtime that the test plays."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
import unittest
from typing import Any

from arcp_worker import Context, SyncContext, ToolError, Worker, WorkerError
from arcp_worker._call import MAX_BUFFERED

from support import PlayedRuntime, Peer, running, soon


class ProtocolTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.runtime = await self.enterAsync(PlayedRuntime())
        self.worker = Worker(self.runtime.url, token="secret", name="test", concurrency=2)
        self.started = 0  # calls of held
        self.release = asyncio.Event()

        @self.worker.tool("held")
        async def held(ctx: Context) -> int:
            self.started += 1
            await self.release.wait()
            return ctx.attempt

        @self.worker.tool("echo")
        async def echo(**arguments: Any) -> Any:
            return arguments

    async def enterAsync(self, context: Any) -> Any:
        value = await context.__aenter__()
        self.addAsyncCleanup(context.__aexit__, None, None, None)
        return value

    async def open(self, interval: float = 30) -> Peer:
        self.task = await self.enterAsync(running(self.worker))
        peer = await self.runtime.accept()
        self.opening = await peer.open(interval)
        return peer

    async def held(self, interval: float = 30) -> Peer:
        """Open a session, and dispatch a job that waits."""
        peer = await self.open(interval)
        await peer.dispatch("held@1.0.0")
        ack = await peer.receive("ack")
        self.assertEqual((ack["correlation_id"], ack["job_id"]), ("msg_d1", "job_1"))
        return peer

    async def again(self, peer: Peer) -> Peer:
        """Cut the connection, and resume the session on the next."""
        peer.ws.transport.abort()
        peer = await self.runtime.accept()
        env = await peer.resume()
        self.assertEqual(env["payload"], {"resume_token": "resume-1", "last_event_seq": 2})
        return peer

    async def test_opening(self) -> None:
        await self.open()
        self.assertEqual(self.opening["payload"]["auth"], {"scheme": "bearer", "token": "secret"})
        self.assertEqual(self.opening["payload"]["capabilities"], {"executes": True, "heartbeat": True})
        await soon(self.worker.ready())

    async def test_result(self) -> None:
        peer = await self.open()
        await peer.dispatch("echo@1.0.0", {"a": 1})
        await peer.receive("ack")
        result = await peer.receive("tool.result")
        self.assertEqual(result["payload"], {"value": {"a": 1}})
        self.assertEqual((result["job_id"], result["correlation_id"]), ("job_1", "msg_d1"))

    async def test_repeated_dispatch_runs_once(self) -> None:
        peer = await self.held()
        await peer.dispatch("held@1.0.0")
        await peer.receive("ack")
        self.release.set()
        result = await peer.receive("tool.result")
        await peer.send("ack", {}, correlation_id=result["id"])
        self.assertEqual(self.started, 1)

    async def test_result_is_sent_again_with_its_id(self) -> None:
        peer = await self.held()
        self.release.set()
        first = await peer.receive("tool.result")
        peer = await self.again(peer)
        second = await peer.receive("tool.result")
        self.assertEqual((second["id"], second["payload"], second["correlation_id"]), (first["id"], first["payload"], "msg_d1"))
        await peer.send("ack", {}, correlation_id=second["id"])
        await peer.dispatch("echo@1.0.0", job="job_2", id="msg_d2")
        await peer.receive("ack")  # and not the result once more
        self.assertEqual(self.started, 1)

    async def test_frames_wait_for_the_dispatch(self) -> None:
        gate = asyncio.Event()

        @self.worker.tool("reports")
        async def reports(ctx: Context) -> None:
            await gate.wait()
            await ctx.progress(1, 2)
            await ctx.checkpoint({"at": 1}, "one")

        peer = await self.open()
        await peer.dispatch("reports@1.0.0")
        await peer.receive("ack")
        peer.ws.transport.abort()
        peer = await self.runtime.accept()
        gate.set()  # what follows is sent before the session is resumed
        await peer.resume()
        await peer.dispatch("reports@1.0.0")
        await peer.receive("ack")
        self.assertEqual((await peer.receive("job.progress"))["payload"], {"current": 1, "total": 2})
        checkpoint = await peer.receive("job.checkpoint")
        self.assertEqual(checkpoint["payload"], {"data": {"at": 1}, "label": "one"})
        peer.ws.transport.abort()
        peer = await self.runtime.accept()
        await peer.resume("resume-3")
        await peer.dispatch("reports@1.0.0")
        await peer.receive("ack")
        again = await peer.receive("job.checkpoint")
        self.assertEqual(again["id"], checkpoint["id"])
        await peer.send("ack", {}, correlation_id=again["id"])
        self.assertEqual((await peer.receive("tool.result"))["payload"], {"value": None})

    async def test_next_attempt_continues_the_running_one(self) -> None:
        peer = await self.again(await self.held())
        await peer.dispatch("held@1.0.0", id="msg_d2", attempt=2)
        self.assertEqual((await peer.receive("tool.error"))["correlation_id"], "msg_d1")
        self.assertEqual((await peer.receive("ack"))["correlation_id"], "msg_d2")
        self.release.set()
        result = await peer.receive("tool.result")
        self.assertEqual((result["correlation_id"], result["payload"]["value"], self.started), ("msg_d2", 2, 1))

    async def test_next_attempt_has_the_result(self) -> None:
        peer = await self.held()
        self.release.set()
        first = await peer.receive("tool.result")
        peer = await self.again(peer)
        refused = await peer.receive("tool.result")
        self.assertEqual(refused["id"], first["id"])
        await peer.send("nack", {"code": "FAILED_PRECONDITION", "message": "no", "retryable": False}, correlation_id=refused["id"])
        await peer.dispatch("held@1.0.0", id="msg_d2", attempt=2)
        await peer.receive("tool.error")
        await peer.receive("ack")
        result = await peer.receive("tool.result")
        self.assertEqual((result["correlation_id"], self.started), ("msg_d2", 1))
        self.assertNotEqual(result["id"], first["id"])

    async def test_next_attempt_after_a_failure_runs(self) -> None:
        times = 0

        @self.worker.tool("fails")
        async def fails() -> int:
            nonlocal times
            times += 1
            if times == 1:
                raise ToolError("UNAVAILABLE", "not yet", retryable=True, details={"n": 1})
            return times

        peer = await self.open()
        await peer.dispatch("fails@1.0.0")
        await peer.receive("ack")
        error = await peer.receive("tool.error")
        self.assertEqual(error["payload"], {"code": "UNAVAILABLE", "message": "not yet", "retryable": True, "details": {"n": 1}})
        await peer.dispatch("fails@1.0.0", id="msg_d2", attempt=2)  # before the ack of the failure
        await peer.receive("ack")
        self.assertEqual((await peer.receive("tool.result"))["payload"], {"value": 2})

    async def test_job_that_runs_elsewhere_is_cancelled(self) -> None:
        ended = asyncio.Event()

        @self.worker.tool("waits")
        async def waits() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        peer = await self.open(interval=0.1)
        await peer.dispatch("waits@1.0.0")
        await peer.receive("ack")
        beat = await peer.receive("job.heartbeat")
        await peer.send("nack", {"code": "FAILED_PRECONDITION", "message": "no", "retryable": False}, correlation_id=beat["id"])
        # The runtime is silent from here on: keep the connection with pings.
        while not ended.is_set():
            await peer.send("session.ping", {"nonce": "n", "sent_at": "2030-01-01T00:00:00Z"})
            await peer.ws.recv()

    async def test_heartbeats(self) -> None:
        peer = await self.held(interval=0.1)
        first, second = await peer.receive("job.heartbeat"), await peer.receive("job.heartbeat")
        self.assertEqual([first["payload"]["sequence"], second["payload"]["sequence"]], [1, 2])
        self.assertEqual((first["job_id"], first["correlation_id"]), ("job_1", "msg_d1"))

    async def test_silent_runtime(self) -> None:
        peer = await self.open(interval=0.05)
        await peer.closed()
        await (await self.runtime.accept()).resume()

    async def test_ping(self) -> None:
        peer = await self.open()
        id = await peer.send("session.ping", {"nonce": "n1", "sent_at": "2030-01-01T00:00:00Z"})
        pong = await peer.receive("session.pong")
        self.assertEqual((pong["payload"]["ping_nonce"], pong["correlation_id"]), ("n1", id))

    async def test_challenge(self) -> None:
        await self.enterAsync(running(self.worker))
        peer = await self.runtime.accept()
        await peer.receive("session.open")
        await peer.send("session.challenge", {"challenge": "c1"})
        want = hmac.new(hashlib.sha256(b"secret").digest(), b"c1", hashlib.sha256).hexdigest()
        self.assertEqual((await peer.receive("session.authenticate"))["payload"], {"response": want})

    async def test_refused_credentials(self) -> None:
        task = await self.enterAsync(running(self.worker))
        peer = await self.runtime.accept()
        await peer.receive("session.open")
        await peer.send("session.unauthenticated", {"code": "UNAUTHENTICATED", "message": "the token is wrong", "retryable": False})
        with self.assertRaisesRegex(WorkerError, "UNAUTHENTICATED: the token is wrong; set token") as caught:
            await soon(task)
        self.assertEqual(caught.exception.code, "UNAUTHENTICATED")

    async def test_missing_role(self) -> None:
        task = await self.enterAsync(running(self.worker))
        peer = await self.runtime.accept()
        await peer.receive("session.open")
        await peer.send("session.accepted", {"session_id": "sess_1", "resume_token": "r", "capabilities": {}})
        with self.assertRaisesRegex(WorkerError, "PERMISSION_DENIED: .* role worker"):
            await soon(task)

    async def test_refused_registration(self) -> None:
        task = await self.enterAsync(running(self.worker))
        peer = await self.runtime.accept()
        await peer.receive("session.open")
        await peer.send("session.accepted", {"session_id": "sess_1", "resume_token": "r", "capabilities": {"executes": True}})
        env = await peer.receive("tool.invoke")
        await peer.send("job.failed", {"code": "UNAVAILABLE", "message": "full", "retryable": True}, correlation_id=env["id"])
        env = await peer.receive("tool.invoke")  # it is asked again
        await peer.send("job.failed", {"code": "ALREADY_EXISTS", "message": "held exists", "retryable": False}, correlation_id=env["id"])
        with self.assertRaisesRegex(WorkerError, "ALREADY_EXISTS: the tools are not registered: held exists"):
            await soon(task)

    async def test_busy_runtime(self) -> None:
        await self.enterAsync(running(self.worker))
        peer = await self.runtime.accept()
        await peer.receive("session.open")
        with self.assertLogs("arcp_worker", "WARNING") as logs:
            await peer.send("session.rejected", {"code": "RESOURCE_EXHAUSTED", "message": "full", "retryable": True})
            await (await self.runtime.accept()).open()
        self.assertEqual(logs.output, [f"WARNING:arcp_worker:no connection to {self.runtime.url}: RESOURCE_EXHAUSTED: full; the worker tries again"])

    async def test_session_that_has_ended(self) -> None:
        peer = await self.held()
        peer.ws.transport.abort()
        peer = await self.runtime.accept()
        await peer.receive("session.resume")
        await peer.send("session.rejected", {"code": "DATA_LOSS", "message": "no", "retryable": False})
        peer = await self.runtime.accept()
        await peer.open(token="resume-9")
        await peer.dispatch("held@1.0.0", id="msg_d2", attempt=2)  # the job has waited for a worker
        await peer.receive("tool.error")
        await peer.receive("ack")
        self.release.set()
        await peer.receive("tool.result")
        self.assertEqual(self.started, 1)

    async def test_cancel(self) -> None:
        peer = await self.held()
        await peer.send("cancel", {"target": "job", "target_id": "job_1", "reason": "enough"}, correlation_id="msg_d1")
        error = await peer.receive("tool.error")
        self.assertEqual(error["payload"], {"code": "CANCELLED", "message": "enough", "retryable": False})

    async def test_cancel_of_a_thread(self) -> None:
        begun = threading.Event()

        @self.worker.tool("thread")
        def thread(ctx: SyncContext) -> None:
            begun.set()
            while not ctx.wait_cancelled(60):
                pass
            ctx.log("it does not come to this")

        peer = await self.open()
        await peer.dispatch("thread@1.0.0")
        await peer.receive("ack")
        await asyncio.to_thread(begun.wait)
        await peer.send("cancel", {"target": "job", "target_id": "job_1"}, correlation_id="msg_d1")
        self.assertEqual((await peer.receive("tool.error"))["payload"]["code"], "CANCELLED")

    async def test_refusals(self) -> None:
        peer = await self.held()
        await peer.dispatch("other@1.0.0", job="job_2", id="msg_d2")
        self.assertEqual((await peer.receive("nack"))["payload"]["code"], "UNIMPLEMENTED")
        await peer.dispatch("held@1.0.0", job="job_3", id="msg_d3")
        await peer.receive("ack")
        await peer.dispatch("held@1.0.0", job="job_4", id="msg_d4")
        nack = await peer.receive("nack")
        self.assertEqual((nack["payload"]["code"], nack["payload"]["retryable"]), ("RESOURCE_EXHAUSTED", True))

    async def test_results_that_cannot_be_sent(self) -> None:
        values = {"set": {1}, "nan": float("nan"), "large": "x" * (5 << 20), "surrogate": "\ud800"}

        @self.worker.tool("odd")
        async def odd(which: str) -> Any:
            return values[which]

        peer = await self.open()
        for n, which in enumerate(values):
            await peer.dispatch("odd@1.0.0", {"which": which}, job=f"job_{n}", id=f"msg_d{n}")
            await peer.receive("ack")
            error = await peer.receive("tool.error")
            self.assertIn("the result of odd@1.0.0 cannot be sent", error["payload"]["message"])
            await peer.send("ack", {}, correlation_id=error["id"])

    async def test_exceptions(self) -> None:
        @self.worker.tool("divides")
        async def divides(by: int) -> float:
            return 1 / by

        peer = await self.open()
        await peer.dispatch("divides@1.0.0", {"by": 0})
        await peer.receive("ack")
        self.assertEqual((await peer.receive("tool.error"))["payload"], {"code": "UNKNOWN", "message": "division by zero", "retryable": False})
        await peer.dispatch("divides@1.0.0", {"to": 0}, job="job_2", id="msg_d2")
        await peer.receive("ack")
        self.assertEqual((await peer.receive("tool.error"))["payload"]["code"], "INVALID_ARGUMENT")

    async def test_exceptions_that_are_no_errors(self) -> None:
        raised = [StopIteration(7), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]

        @self.worker.tool("sync")
        def sync(n: int) -> None:
            raise raised[n]

        @self.worker.tool("async")
        async def coroutine(n: int) -> None:
            raise raised[n]

        peer = await self.open()
        for n, error in enumerate(raised):
            for tool in ("sync", "async"):
                with self.subTest(tool=tool, error=error):
                    job = f"{tool}_{n}"
                    await peer.dispatch(f"{tool}@1.0.0", {"n": n}, job=f"job_{job}", id=f"msg_{job}")
                    await peer.receive("ack")
                    outcome = await peer.receive("tool.error")
                    self.assertEqual((outcome["job_id"], outcome["payload"]["code"]), (f"job_{job}", "UNKNOWN"))
                    await peer.send("ack", {}, correlation_id=outcome["id"])
                    if isinstance(error, (SystemExit, KeyboardInterrupt)):
                        self.assertEqual(outcome["payload"]["message"], f"the tool has raised {error!r}")
        await peer.dispatch("echo@1.0.0", {"a": 1})  # the worker goes on
        await peer.receive("ack")
        self.assertEqual((await peer.receive("tool.result"))["payload"], {"value": {"a": 1}})

    async def test_description(self) -> None:
        @self.worker.tool("described", timeout=2, start_timeout=0.5, interruptible=True, max_response_bytes=4 << 20)
        def described() -> None: ...

        await self.enterAsync(running(self.worker))
        peer = await self.runtime.accept()
        session = await peer.receive("session.open")
        await peer.send("session.accepted", {"session_id": "sess_1", "resume_token": "resume-1", "heartbeat_interval_sec": 30,
                                             "capabilities": {"executes": True}}, correlation_id=session["id"])
        tools = (await peer.register())["payload"]["arguments"]["capabilities"]["tools"]
        self.assertEqual(tools["described@1.0.0"], {
            "timeout_ms": 2000, "start_timeout_ms": 500, "interruptible": True, "max_response_bytes": 4 << 20,
            "input_schema": tools["described@1.0.0"]["input_schema"]})
        self.assertEqual(set(tools["echo@1.0.0"]), {"input_schema"})

    async def test_interrupt(self) -> None:
        gate = threading.Event()

        @self.worker.tool("async_steps", interruptible=True)
        async def async_steps(ctx: Context) -> Any:
            before = await ctx.safe_point()
            await ctx.progress(0)
            await self.release.wait()
            await ctx.progress(1)
            return [before, await ctx.safe_point(), await ctx.safe_point()]

        @self.worker.tool("sync_steps", interruptible=True)
        def sync_steps(ctx: SyncContext) -> Any:
            before = ctx.safe_point()
            ctx.progress(0)
            gate.wait()
            ctx.progress(1)
            return [before, ctx.safe_point(), ctx.safe_point()]

        peer = await self.open()
        for tool in ("async_steps", "sync_steps"):
            for end in ("continue", "cancel"):
                with self.subTest(tool=tool, end=end):
                    self.release.clear()
                    gate.clear()
                    job, dispatch = f"job_{tool}_{end}", f"msg_{tool}_{end}"
                    await peer.dispatch(f"{tool}@1.0.0", job=job, id=dispatch)
                    await peer.receive("ack")
                    await peer.receive("job.progress")  # after the first safe point
                    interrupt = await self.interrupt(peer, dispatch)
                    self.release.set()
                    gate.set()
                    await peer.receive("job.progress")
                    await self.pong(peer)  # and no outcome
                    if end == "cancel":
                        await peer.send("cancel", {"target": "job", "target_id": job, "reason": "enough"}, correlation_id=dispatch)
                        outcome = await peer.receive("tool.error")
                        self.assertEqual(outcome["payload"], {"code": "CANCELLED", "message": "enough", "retryable": False})
                    else:
                        await self.answer(peer, "msg_other", "wrong")
                        await self.pong(peer)
                        await self.answer(peer, interrupt, "faster")
                        outcome = await peer.receive("tool.result")
                        self.assertEqual(outcome["payload"]["value"], ["", "faster", ""])
                    await peer.send("ack", {}, correlation_id=outcome["id"])

    async def test_interrupt_of_a_lost_attempt(self) -> None:
        @self.worker.tool("steps", interruptible=True)
        async def steps(ctx: Context) -> Any:
            await self.release.wait()
            return await ctx.safe_point()

        peer = await self.open()
        await peer.dispatch("steps@1.0.0")
        await peer.receive("ack")
        await self.interrupt(peer, "msg_d1")
        await peer.dispatch("steps@1.0.0", id="msg_d2", attempt=2)
        await peer.receive("tool.error")  # of the first attempt
        await peer.receive("ack")
        interrupt = await self.interrupt(peer, "msg_d2")
        self.release.set()
        await self.pong(peer)
        await self.answer(peer, interrupt, "go")
        self.assertEqual((await peer.receive("tool.result"))["payload"]["value"], "go")

    async def interrupt(self, peer: Peer, dispatch: str) -> str:
        """Interrupt a job, and return the id of the interrupt when the worker has it."""
        id = await peer.send("interrupt", {"target": "job", "target_id": "job_1", "prompt": "stop"}, correlation_id=dispatch)
        await self.pong(peer)
        return id

    async def answer(self, peer: Peer, interrupt: str, guidance: str) -> None:
        value = {"action": "continue", "guidance": guidance}
        await peer.send("human.input.response", {"value": value, "responded_at": "2030-01-01T00:00:00Z"}, correlation_id=interrupt)

    async def pong(self, peer: Peer) -> None:
        """Wait until the worker has read what it was sent."""
        await peer.send("session.ping", {"nonce": "n", "sent_at": "2030-01-01T00:00:00Z"})
        await peer.receive("session.pong")

    async def test_events_wait_while_there_is_no_connection(self) -> None:
        sent = 0

        @self.worker.tool("chatters")
        async def chatters(ctx: Context) -> None:
            nonlocal sent
            await self.release.wait()
            for sent in range(1, 2 * MAX_BUFFERED + 1):
                await ctx.progress(sent)

        peer = await self.open()
        await peer.dispatch("chatters@1.0.0")
        await peer.receive("ack")
        peer.ws.transport.abort()
        peer = await self.runtime.accept()
        self.release.set()
        await peer.resume()  # the job's frames wait for its dispatch
        await peer.send("session.ping", {"nonce": "n", "sent_at": "2030-01-01T00:00:00Z"})
        await peer.receive("session.pong")
        self.assertLessEqual(sent, MAX_BUFFERED + 1)
        await peer.dispatch("chatters@1.0.0")
        await peer.receive("ack")
        for n in range(1, 2 * MAX_BUFFERED + 1):
            self.assertEqual((await peer.receive("job.progress"))["payload"], {"current": n})
        await peer.receive("tool.result")

    async def test_child(self) -> None:
        @self.worker.tool("asks")
        async def asks(ctx: Context) -> Any:
            try:
                return await ctx.call("other", {"n": 1})
            except ToolError as e:
                return e.code

        peer = await self.open()
        for n, (kind, payload, want) in enumerate([
            ("job.completed", {"value": 7}, 7),
            ("job.failed", {"code": "PERMISSION_DENIED", "message": "no", "details": {"code": "LEASE_SUBSET_VIOLATION"}}, "LEASE_SUBSET_VIOLATION"),
            ("job.cancelled", {"reason": "enough"}, "CANCELLED"),
        ]):
            await peer.dispatch("asks@1.0.0", job=f"job_{n}", id=f"msg_d{n}")
            await peer.receive("ack")
            call = await peer.receive("tool.invoke")
            self.assertEqual((call["payload"]["tool"], call["payload"]["arguments"], call["job_id"]), ("other", {"n": 1}, f"job_{n}"))
            await peer.send("job.accepted", {"job_id": "job_c"}, correlation_id=call["id"])
            await peer.send(kind, payload, correlation_id=call["id"])
            result = await peer.receive("tool.result")
            self.assertEqual(result["payload"]["value"], want)
            await peer.send("ack", {}, correlation_id=result["id"])

    async def test_stop(self) -> None:
        peer = await self.held()
        self.worker.stop()
        unregister = await peer.receive("tool.invoke")
        self.assertEqual(unregister["payload"], {"tool": "host.unregister_agent", "arguments": {"agent_id": "agent-1"}})
        await peer.dispatch("echo@1.0.0", job="job_2", id="msg_d2")
        self.assertEqual((await peer.receive("nack"))["payload"]["code"], "UNAVAILABLE")
        await peer.send("job.completed", {"value": None}, correlation_id=unregister["id"])
        self.release.set()
        result = await peer.receive("tool.result")
        await peer.send("ack", {}, correlation_id=result["id"])
        close = await peer.receive("session.close")
        self.assertTrue(close["payload"]["forget"])
        await peer.send("session.closed", {}, correlation_id=close["id"])
        await soon(self.task)

    async def test_stop_with_a_job_that_does_not_end(self) -> None:
        self.worker._grace = 0.01
        peer = await self.held()
        self.worker.stop()
        unregister = await peer.receive("tool.invoke")
        await peer.send("job.completed", {"value": None}, correlation_id=unregister["id"])
        close = await peer.receive("session.close")  # and no outcome: the job is lost
        await peer.send("session.closed", {}, correlation_id=close["id"])
        await soon(self.task)

    async def test_peer_that_is_no_runtime(self) -> None:
        await self.enterAsync(running(self.worker))
        with self.assertLogs("arcp_worker", "WARNING") as logs:
            for text in ("hello", "[]", '{"type":"session.accepted","payload":{"capabilities":{"executes":true}}}'):
                peer = await self.runtime.accept()
                await peer.receive("session.open")
                await peer.ws.send(text)
                await peer.closed()
            await self.runtime.accept()
        self.assertIn("is the address one of an ARCP runtime?", logs.output[0])


if __name__ == "__main__":
    unittest.main()
