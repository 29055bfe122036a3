"""Drives an ARCP server with the published Python client.

The arguments are the URL of the server, a token and the token of another principal. Each
step prints one line: its name and, if it failed, why. The line `kill` asks for the server
to be killed and started again; a line on standard input says that it was.
"""

import asyncio
import json
import sys
import uuid

from arcp import (
    AgentNotAvailableError,
    AgentVersionNotAvailableError,
    ARCPError,
    BudgetExhaustedError,
    CancelledError,
    ClientInfo,
    DuplicateKeyError,
    InvalidRequestError,
    JobNotFoundError,
    ListJobsFilter,
    ResumeWindowExpiredError,
    SessionResume,
    TransportClosed,
    UnauthenticatedError,
    WebSocketTransport,
)
from arcp.client import ARCPClient

# A step takes so long only if it hangs.
STEP_SECONDS = 120

MIB = 1 << 20


class Recording:
    """A transport that records the frames that it receives."""

    def __init__(self, inner):
        self.inner = inner
        self.frames = []

    async def send(self, envelope):
        await self.inner.send(envelope)

    async def recv(self):
        frame = await self.inner.recv()
        self.frames.append(frame)
        return frame

    async def close(self):
        await self.inner.close()

    @property
    def is_closed(self):
        return self.inner.is_closed

    def abort(self):
        """Ends the TCP connection without a close frame."""
        self.inner._conn.transport.abort()

    def seqs(self):
        return [f["event_seq"] for f in self.frames if "event_seq" in f]


class Yielding(WebSocketTransport):
    """A transport that lets callers take their answers before the next frame."""

    async def recv(self):
        await asyncio.sleep(0)
        return await super().recv()


class Server:
    def __init__(self, url, token, other):
        self.url, self.token, self.other = url, token, other

    async def transport(self):
        return Recording(await WebSocketTransport.connect(self.url))

    def client(self, token=None, **options):
        info = ClientInfo(name="interop", version="1")
        return ARCPClient(client=info, token=token or self.token, **options)

    async def connect(self, token=None, **options):
        client = self.client(token, **options)
        transport = await self.transport()
        await client.connect(transport)
        return client, transport

    async def resume(self, session, token, after, **options):
        client = self.client(**options)
        transport = await self.transport()
        await client.resume(
            transport,
            resume=SessionResume(session_id=session, resume_token=token, last_event_seq=after),
        )
        return client, transport


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


async def raises(kind, awaitable):
    """Returns the error of a call that must fail with one."""
    try:
        got = await awaitable
    except kind as err:
        return err
    except ARCPError as err:
        raise AssertionError(f"{type(err).__name__} ({err.message}), want {kind.__name__}") from err
    raise AssertionError(f"no error but {got!r:.200}, want {kind.__name__}")


async def until(condition, message):
    """Waits until a condition holds; the step's time bounds it."""
    while not condition():
        await asyncio.sleep(0.01)
    _ = message


async def connect(server):
    client, transport = await server.connect()
    welcome = client.welcome
    expect(welcome.session_id and welcome.resume_token, f"welcome: {welcome}")
    expect(welcome.resume_window_sec > 0, f"resume_window_sec: {welcome.resume_window_sec}")
    expect(set(client.negotiated_features) == set(client.features), f"negotiated {client.negotiated_features}")
    agents = {a.name: a for a in welcome.capabilities.agents}
    expect("1.0.0" in agents["demo.echo"].versions, f"agents: {sorted(agents)}")
    expect(agents["demo.echo"].default == "1.0.0", f"default: {agents['demo.echo']}")
    await client.close()


async def wrong_token(server):
    client = server.client("no such token")
    err = await raises(UnauthenticatedError, client.connect(await server.transport()))
    expect(err.message, "the error has no message")


async def result(server):
    client, transport = await server.connect()
    value = {"text": "grüße", "list": [1, 2.5, None, True]}
    trace = uuid.uuid4().hex
    job = await client.submit(agent="demo.echo", input=value, trace_id=trace)
    expect(job.agent_ref == "demo.echo@1.0.0", f"agent: {job.agent_ref}")
    expect(job.trace_id == trace, f"trace_id: {job.trace_id}")
    got = await job.done
    expect(got.final_status == "success" and got.result == value, f"result: {got}")
    legacy = await client.submit(agent="demo.echo@0.9.0", input=value)
    expect((await legacy.done).result == {"legacy": value}, "the version was not chosen")
    expect(transport.seqs() == list(range(1, len(transport.seqs()) + 1)), f"event_seq: {transport.seqs()}")
    await client.close()


async def concurrent(server):
    client, transport = await server.connect()
    jobs = await asyncio.gather(*(client.submit(agent="demo.echo", input={"n": n}) for n in range(200)))
    results = await asyncio.gather(*(wait(job) for job in jobs))
    expect([r.result["n"] for r in results] == list(range(200)), "results of other jobs")
    expect(len({job.job_id for job in jobs}) == 200, "jobs share an id")
    expect(transport.seqs() == list(range(1, len(transport.seqs()) + 1)), "event_seq has gaps")
    await client.close()


async def wait(job):
    return await job.done


async def failure(server):
    client, _ = await server.connect()
    codes = ["PERMISSION_DENIED", "JOB_NOT_FOUND", "TIMEOUT", "INVALID_REQUEST", "BUDGET_EXHAUSTED"]
    for code in codes:
        job = await client.submit(agent="demo.fail", input={"code": code, "message": "as asked"})
        err = await raises(ARCPError, wait(job))
        expect(err.code == code and err.message == "as asked", f"{code}: {err.code} {err.message}")
    await client.close()


async def unknown_agent(server):
    client, _ = await server.connect()
    running = await client.submit(agent="demo.sleep", input={"ms": 300})
    await refused(AgentNotAvailableError, client, agent="demo.nothing")
    await refused(AgentVersionNotAvailableError, client, agent="demo.echo@7.7.7")
    await refused(InvalidRequestError, client, agent="demo.sleep", input={"ms": "long"})
    expect((await running.done).result == {"slept_ms": 300}, "a refusal has ended another job")
    await client.close()


async def refused(kind, client, **submit):
    """A submit is refused at once, or accepted and failed."""

    async def attempt():
        return await (await client.submit(**submit)).done

    await raises(kind, attempt())


async def cancel(server):
    client, _ = await server.connect()
    job = await client.submit(agent="demo.sleep", input={"ms": 600_000})
    await client.cancel_job(job.job_id, reason="enough")
    await raises(CancelledError, wait(job))
    await client.close()


async def deadline(server):
    client, _ = await server.connect()
    job = await client.submit(agent="demo.sleep", input={"ms": 600_000}, max_runtime_sec=1)
    err = await raises(ARCPError, wait(job))
    expect(err.code == "TIMEOUT", f"code: {err.code}")
    await client.close()


async def events(server):
    client, _ = await server.connect()
    job = await client.submit(agent="demo.progress", input={"steps": 3, "interval_ms": 0})
    seen = [event async for event in job.events()]
    progress = [event["body"] for event in seen if event["kind"] == "progress"]
    expect([(p["current"], p["total"]) for p in progress] == [(1, 3), (2, 3), (3, 3)], f"progress: {progress}")
    expect(all(event["ts"].endswith("Z") for event in seen), f"ts: {seen}")
    job = await client.submit(agent="demo.emit", input={"count": 5, "bytes": 10})
    logs = [event["body"] async for event in job.events() if event["kind"] == "log"]
    expect([log["attributes"]["n"] for log in logs] == [0, 1, 2, 3, 4], f"log: {logs}")
    expect(all(len(log["message"]) == 10 and log["level"] in ("debug", "info", "warn", "error") for log in logs), f"log: {logs}")
    await client.close()


async def idempotency(server):
    key = uuid.uuid4().hex
    first, _ = await server.connect()
    one = await first.submit(agent="demo.echo", input={"a": 1, "b": 2}, idempotency_key=key)
    await one.done
    second, _ = await server.connect()
    two = await second.submit(agent="demo.echo", input={"b": 2, "a": 1}, idempotency_key=key)
    expect(one.job_id == two.job_id, f"{one.job_id} and {two.job_id}")
    expect((await two.done).result == {"a": 1, "b": 2}, "the retry has another result")
    await refused(DuplicateKeyError, second, agent="demo.echo", input={"c": 3}, idempotency_key=key)
    other, _ = await server.connect(server.other)
    three = await other.submit(agent="demo.echo", input={"a": 1, "b": 2}, idempotency_key=key)
    expect(three.job_id != one.job_id, "keys of two principals are one")
    for client in (first, second, other):
        await client.close()


async def listing(server):
    client, _ = await server.connect()
    jobs = [await client.submit(agent="demo.echo@0.9.0", input={"n": n}) for n in range(5)]
    for job in jobs:
        await job.done
    mine = {job.job_id for job in jobs}
    seen, cursor = [], None
    while True:
        page = await client.list_jobs(filter=ListJobsFilter(agent="demo.echo@0.9.0", status=("success",)), limit=2, cursor=cursor)
        expect(len(page.jobs) <= 2, f"a page of {len(page.jobs)}")
        seen += [entry.job_id for entry in page.jobs]
        expect(all(e.agent == "demo.echo@0.9.0" and e.status == "success" for e in page.jobs), f"page: {page}")
        cursor = page.next_cursor
        if cursor is None:
            break
    expect(len(seen) == len(set(seen)), "a job is listed twice")
    expect(mine <= set(seen), "a job is not listed")
    other, _ = await server.connect(server.other)
    foreign = {entry.job_id for entry in (await other.list_jobs(limit=1000)).jobs}
    expect(not foreign & mine, "another principal sees the jobs")
    await client.close()
    await other.close()


async def subscription(server):
    owner, _ = await server.connect()
    job = await owner.submit(agent="demo.count", input={"to": 20, "interval_ms": 100})
    watcher, transport = await server.connect()
    await watcher.subscribe(job.job_id, history=True)
    await asyncio.gather(wait(job), until(lambda: ended(transport, job.job_id), "the end of the job"))
    frames = [f for f in transport.frames if f.get("job_id") == job.job_id]
    expect(frames[0]["type"] == "job.subscribed", f"first frame: {frames[0]}")
    current = [f["payload"]["body"]["current"] for f in frames if f["type"] == "job.event" and f["payload"]["kind"] == "progress"]
    expect(current == list(range(1, 21)), f"progress: {current}")
    expect(transport.seqs() == list(range(1, len(transport.seqs()) + 1)), f"event_seq: {transport.seqs()}")
    other, _ = await server.connect(server.other)
    await raises(JobNotFoundError, other.subscribe(job.job_id))
    for client in (owner, watcher, other):
        await client.close()


async def unsubscribe(server):
    owner, _ = await server.connect()
    job = await owner.submit(agent="demo.count", input={"to": 1_000_000, "interval_ms": 10})
    watcher, transport = await server.connect()
    subscription = await watcher.subscribe(job.job_id)
    await anext(subscription.handle.events())
    await watcher.unsubscribe(job.job_id)
    await watcher.list_jobs(limit=1)  # answered after the unsubscribe
    await owner.cancel_job(job.job_id)
    await raises(CancelledError, wait(job))
    await (await watcher.submit(agent="demo.echo")).done  # its events come after those of the other job
    expect(not ended(transport, job.job_id), "the end of the job arrives after the subscription")
    for client in (owner, watcher):
        await client.close()


async def ended_job(server):
    owner, _ = await server.connect()
    job = await owner.submit(agent="demo.progress", input={"steps": 50, "interval_ms": 0})
    await job.done
    watcher = server.client()
    await watcher.connect(await Yielding.connect(server.url))
    handle = (await watcher.subscribe(job.job_id, history=True)).handle
    current = [event["body"]["current"] async for event in handle.events() if event["kind"] == "progress"]
    expect(current == list(range(1, 51)), f"progress: {current}")
    expect((await handle.done).result == {"steps": 50}, "the end of the job has not its result")
    for client in (owner, watcher):
        await client.close()


def ended(transport, job):
    return any(f["type"] in ("job.result", "job.error") and f.get("job_id") == job for f in transport.frames)


async def broken_socket(server):
    client, before = await server.connect(auto_ack=True)
    welcome = client.welcome
    job = await client.submit(agent="demo.count", input={"to": 40, "interval_ms": 50})
    await until(lambda: len(before.seqs()) >= 10, "ten events")
    before.abort()
    await raises(TransportClosed, wait(job))
    after = before.seqs()[-1]
    resumed, rest = await server.resume(welcome.session_id, welcome.resume_token, after)
    expect(resumed.session_id == welcome.session_id, f"session: {resumed.session_id}")
    expect(resumed.welcome.resume_token != welcome.resume_token, "the token was not rotated")
    await until(lambda: ended(rest, job.job_id), "the end of the job")
    whole = before.seqs() + rest.seqs()
    expect(whole == list(range(1, len(whole) + 1)), f"event_seq: {whole}")
    await raises(ResumeWindowExpiredError, server.resume(welcome.session_id, "no such token", 0))
    await resumed.close()


async def killed_server(server):
    client, before = await server.connect()
    welcome = client.welcome
    job = await client.submit(agent="demo.count", input={"to": 40, "interval_ms": 50})
    await until(lambda: len(before.seqs()) >= 10, "ten events")
    print("kill", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await raises(TransportClosed, wait(job))
    after = before.seqs()[-1]
    resumed, rest = await server.resume(welcome.session_id, welcome.resume_token, after)
    await until(lambda: ended(rest, job.job_id), "the end of the job")
    whole = before.seqs() + rest.seqs()
    expect(whole == list(range(1, len(whole) + 1)), f"event_seq: {whole}")
    result = next(f for f in rest.frames if f["type"] == "job.result")
    expect(result["payload"]["result"]["count"] == 40, f"result: {result}")
    await resumed.close()


async def large_result(server, size):
    client, transport = await server.connect()
    value = {"text": "é" + "a" * size}
    job = await client.submit(agent="demo.echo", input=value)
    data = await job.collect_chunks()
    got = await job.done
    expect(got.result is None and got.result_id, f"result: {got.result!r:.100}")
    expect(len(data) == got.result_size, f"{len(data)} bytes, result_size {got.result_size}")
    expect(json.loads(data) == value, "the chunks differ from the value")
    await client.close()


async def budget(server):
    client, _ = await server.connect()
    job = await client.submit(
        agent="demo.spend",
        input={"currency": "USD", "amount": "0.40", "times": 5},
        lease_request={"cost.budget": ["USD:1.00"], "tool.call": ["**"]},
    )
    spent = [event["body"] async for event in job.events() if event["kind"] == "metric"]
    await raises(BudgetExhaustedError, wait(job))
    costs = [metric["value"] for metric in spent if metric["name"].startswith("cost.") and metric["unit"] == "USD"]
    expect(0.40 in costs, f"metrics: {spent}")
    await client.close()


async def step(name, outcome):
    try:
        await asyncio.wait_for(outcome, STEP_SECONDS)
    except TimeoutError:
        print(f"{name}: takes longer than {STEP_SECONDS} s", flush=True)
    except Exception as err:  # every failure is reported in a line of its own
        print(f"{name}: {type(err).__name__}: {str(err)!r:.600}", flush=True)
    else:
        print(name, flush=True)


async def main(url, token, other):
    server = Server(url, token, other)
    await step("connect", connect(server))
    await step("wrong token", wrong_token(server))
    await step("result", result(server))
    await step("concurrent", concurrent(server))
    await step("failure", failure(server))
    await step("unknown agent", unknown_agent(server))
    await step("cancel", cancel(server))
    await step("deadline", deadline(server))
    await step("events", events(server))
    await step("idempotency", idempotency(server))
    await step("listing", listing(server))
    await step("subscription", subscription(server))
    await step("unsubscribe", unsubscribe(server))
    await step("subscription to an ended job", ended_job(server))
    await step("budget", budget(server))
    await step("result of 1 MiB", large_result(server, MIB))
    await step("result of 20 MiB", large_result(server, 20 * MIB))
    await step("broken socket", broken_socket(server))
    await step("killed server", killed_server(server))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: drive.py URL TOKEN OTHER_TOKEN")
    asyncio.run(main(*sys.argv[1:]))
