"""The worker against a process of `arcp serve`, which the variable ARCP_BIN names."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any

from arcp_worker import Context, SyncContext, ToolError, Worker, WorkerError

from support import PROGRAMS, TOKEN, Client, Program, Runtime, needs_arcp, running, soon


@dataclasses.dataclass
class Point:
    x: float
    y: float


@needs_arcp
class RuntimeTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.runtime = await self.enterAsync(Runtime())
        self.client = await self.enterAsync(Client(self.runtime.url))

    async def enterAsync(self, context: Any) -> Any:
        value = await context.__aenter__()
        self.addAsyncCleanup(context.__aexit__, None, None, None)
        return value

    def worker(self, **options: Any) -> Worker:
        return Worker(self.runtime.url, **({"token": TOKEN} | options))

    async def run_worker(self, worker: Worker) -> asyncio.Task[None]:
        task: asyncio.Task[None] = await self.enterAsync(running(worker))
        await soon(worker.ready())
        return task

    async def test_results_events_and_failures(self) -> None:
        worker = self.worker(concurrency=2)

        @worker.tool("text.reverse")
        async def reverse(ctx: Context, text: str, times: int = 1) -> str:
            await ctx.log("begins", attempt=ctx.attempt)
            await ctx.progress(1, 2, units="texts")
            await ctx.metric("texts", 1)
            await ctx.emit("half", {"done": 1})
            return text[::-1] * times

        @worker.tool("geometry.mirror")
        def mirror(ctx: SyncContext, points: list[Point]) -> list[Point]:
            ctx.progress(len(points))
            return [Point(-p.x, p.y) for p in points]

        @worker.tool("text.fail")
        async def fail(code: str) -> None:
            raise ToolError(code, "it fails", details={"n": 1})

        @worker.tool("text.twice")
        async def twice(ctx: Context, text: str) -> str:
            return str(await ctx.call("text.reverse", {"text": text, "times": 2}))

        await self.run_worker(worker)
        job = await self.client.submit("text.reverse", {"text": "abc"})
        self.assertEqual(await job.value(), "cba")
        kinds = [e["type"] for e in job.events]
        self.assertEqual(kinds[-5:], ["log", "job.progress", "metric", "event.emit", "job.completed"])
        self.assertEqual(job.events[-4]["payload"]["percent"], 50)
        self.assertEqual(await self.client.call("geometry.mirror", {"points": [{"x": 1, "y": 2}]}), [{"x": -1, "y": 2}])
        failure = await (await self.client.submit("text.fail", {"code": "OUT_OF_RANGE"})).failure()
        self.assertEqual((failure["code"], failure["message"], failure["details"]), ("OUT_OF_RANGE", "it fails", {"n": 1}))
        failure = await (await self.client.submit("text.reverse", {"text": 1})).failure()
        self.assertEqual(failure["code"], "INVALID_ARGUMENT")
        child = await self.client.submit("text.twice", {"text": "ab"}, lease_request={"tool.call": ["text.reverse"]})
        self.assertEqual(await child.value(), "baba")

    async def test_interrupt(self) -> None:
        worker = self.worker()

        @worker.tool("steps", interruptible=True)
        async def steps(ctx: Context) -> Any:
            await ctx.progress(1)
            while not (guidance := await ctx.safe_point()):
                await asyncio.sleep(0.01)
            return guidance

        await self.run_worker(worker)
        job = await self.client.submit("steps")
        await job.reach("job.progress")
        await self.client.interrupt(job)
        await self.client.guide(job, await job.reach("human.input.request"), "faster")
        self.assertEqual(await job.value(), "faster")

    async def test_large_result(self) -> None:
        worker = self.worker()

        @worker.tool("large")
        async def large(size: int) -> str:
            return "x" * size

        @worker.tool("larger", max_response_bytes=4 << 20)
        async def larger(size: int) -> str:
            return "x" * size

        await self.run_worker(worker)
        failure = await (await self.client.submit("large", {"size": 2 << 20})).failure()
        self.assertEqual(failure["message"], f"the result has {(2 << 20) + 2} bytes; the tool's limit is {1 << 20} (max_response_bytes)")
        self.assertEqual(len(await self.client.call("larger", {"size": 2 << 20})), 2 << 20)

    async def test_cancel(self) -> None:
        worker = self.worker()
        ended = asyncio.Event()

        @worker.tool("waits.async")
        async def waits(ctx: Context) -> None:
            try:
                await ctx.progress(1)
                await asyncio.Event().wait()
            finally:
                ended.set()

        @worker.tool("waits.thread")
        def thread(ctx: SyncContext) -> None:
            ctx.progress(1)
            while not ctx.wait_cancelled(60):
                pass
            ctx.check()

        await self.run_worker(worker)
        for tool in ("waits.async", "waits.thread"):
            job = await self.client.submit(tool)
            await job.reach("job.progress")
            await self.client.cancel(job)
            self.assertEqual((await job.reach("job.cancelled"))["payload"]["code"], "CANCELLED")
        await soon(ended.wait())

    async def test_killed_runtime_and_a_running_job(self) -> None:
        worker = self.worker()
        effects, release = 0, asyncio.Event()

        @worker.tool("effect", recovery="rerun")
        async def effect(ctx: Context) -> int:
            nonlocal effects
            effects += 1
            await ctx.progress(1)
            await release.wait()
            await ctx.progress(2)
            return effects

        await self.run_worker(worker)
        job = await self.client.submit("effect")
        await job.reach("job.progress")
        await self.runtime.kill()
        await self.runtime.start()
        await job.reach("job.started")  # the next attempt: the worker is connected again
        release.set()
        self.assertEqual(await job.value(), 1)
        self.assertEqual(effects, 1)
        self.assertIn({"current": 2}, [e["payload"] for e in job.events if e["type"] == "job.progress"])

    async def test_killed_runtime_and_a_result(self) -> None:
        worker = self.worker()
        effects, release, returns = 0, asyncio.Event(), asyncio.Event()

        @worker.tool("effect", recovery="rerun")
        async def effect(ctx: Context) -> int:
            nonlocal effects
            effects += 1
            await ctx.progress(1)
            await release.wait()
            returns.set()
            return effects

        await self.run_worker(worker)
        job = await self.client.submit("effect")
        await job.reach("job.progress")
        await self.runtime.kill()
        release.set()
        await soon(returns.wait())  # there is no runtime to send the result to
        await self.runtime.start()
        self.assertEqual(await job.value(), 1)
        self.assertEqual(effects, 1)

    async def test_lost_connection(self) -> None:
        worker = self.worker()
        release = asyncio.Event()

        @worker.tool("waits")
        async def waits(ctx: Context) -> int:
            await ctx.progress(1)
            await release.wait()
            await ctx.checkpoint({"n": 1})
            return ctx.attempt

        await self.run_worker(worker)
        job = await self.client.submit("waits")
        await job.reach("job.progress")
        with self.assertLogs("arcp_worker", "INFO") as logs:
            worker._link._ws.transport.abort()  # type: ignore[union-attr]
            release.set()
            self.assertEqual(await job.value(), 1)  # the same attempt
        self.assertEqual(len(logs.output), 2, logs.output)

    async def test_killed_worker(self) -> None:
        first = await self.enterAsync(Program("counter.py", ARCP_URL=self.runtime.url, ARCP_TOKEN=TOKEN))
        await first.says("registered text.count@1.0.0")
        job = await self.client.submit("text.count", {"to": 4})
        await job.reach("event.emit")
        first.process.kill()
        second = await self.enterAsync(Program("counter.py", ARCP_URL=self.runtime.url, ARCP_TOKEN=TOKEN))
        await second.says("registered text.count@1.0.0")
        self.assertEqual(await job.value(), {"counted": 4, "start": 2, "attempt": 2})

    async def test_two_workers_share_jobs(self) -> None:
        both = asyncio.Semaphore(0)
        names = []

        def add(name: str) -> Worker:
            worker = self.worker(name=name)

            @worker.tool("shared")
            async def shared() -> str:
                names.append(name)
                if len(names) == 2:
                    both.release()
                    both.release()
                await both.acquire()
                return name

            return worker

        await self.run_worker(add("one"))
        await self.run_worker(add("two"))
        jobs = [await self.client.submit("shared") for _ in range(2)]
        self.assertEqual({await job.value() for job in jobs}, {"one", "two"})

    async def test_concurrency(self) -> None:
        worker = self.worker(concurrency=3)
        running_now, most, full, release = 0, 0, asyncio.Event(), asyncio.Event()

        @worker.tool("counts")
        async def counts() -> None:
            nonlocal running_now, most
            running_now += 1
            most = max(most, running_now)
            if running_now == 3:
                full.set()
            await release.wait()
            running_now -= 1

        await self.run_worker(worker)
        jobs = [await self.client.submit("counts") for _ in range(8)]
        await soon(full.wait())
        release.set()
        for job in jobs:
            await job.value()
        self.assertEqual(most, 3)

    async def test_stop(self) -> None:
        worker = self.worker()
        begun, release = asyncio.Event(), asyncio.Event()

        @worker.tool("waits")
        async def waits() -> str:
            begun.set()
            await release.wait()
            return "done"

        task = await self.run_worker(worker)
        job = await self.client.submit("waits")
        await soon(begun.wait())
        worker.stop()
        release.set()
        self.assertEqual(await job.value(), "done")
        await soon(asyncio.wait_for(task, None))
        self.assertEqual((await self.client.call("host.agents"))["items"], [])

    async def test_refused_token(self) -> None:
        program = await self.enterAsync(Program("counter.py", ARCP_URL=self.runtime.url, ARCP_TOKEN="wrong"))
        line = await program.says("UNAUTHENTICATED")
        self.assertIn("`arcp dev` prints one", line)
        self.assertEqual(await soon(program.process.wait()), 1)

    async def test_another_description(self) -> None:
        first, second = self.worker(), self.worker()
        first.tool("same", description="one")(lambda: None)
        second.tool("same", description="two")(lambda: None)
        await self.run_worker(first)
        with self.assertRaisesRegex(WorkerError, "FAILED_PRECONDITION: the tools are not registered"):
            await soon(second.serve())


@needs_arcp
class ProcessTest(unittest.IsolatedAsyncioTestCase):
    async def test_runtime_that_starts_later(self) -> None:
        runtime = Runtime()
        program = Program("counter.py", ARCP_URL=runtime.url, ARCP_TOKEN=TOKEN)
        async with program:
            first = await program.says(f"no connection to {runtime.url}")
            async with runtime:
                await program.says("connected to")
                await program.says("registered")
                async with Client(runtime.url) as client:
                    self.assertEqual((await client.call("text.count", {"to": 1}))["counted"], 1)
                program.process.terminate()
                self.assertEqual(await soon(program.process.wait()), 0)
        self.assertIn("tries again", first)

    async def test_started_by_the_runtime(self) -> None:
        with tempfile.TemporaryDirectory() as dir:
            config = pathlib.Path(dir) / "arcp.yaml"
            entry = {"worker": {"name": "counter", "command": [sys.executable, str(PROGRAMS / "counter.py"), "--stdio"], "env": ["PYTHONPATH"]},
                     "allow": ["text.*"]}
            config.write_text(json.dumps({"tools": [entry]}))
            async with Runtime("--config", str(config)) as runtime, Client(runtime.url) as client:
                self.assertEqual(await client.call("text.count", {"to": 2}), {"counted": 2, "start": 0, "attempt": 1})
                job = await client.submit("text.count", {"to": 3})
                await job.reach("event.emit")
                await client.cancel(job)
                await job.reach("job.cancelled")


if __name__ == "__main__":
    unittest.main()
