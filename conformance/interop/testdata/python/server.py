"""Serves the runtime of the published package on a loopback port, or on standard input and output:

    server.py ws ADDRESS TOKEN=PRINCIPAL...
    server.py stdio TOKEN=PRINCIPAL...

The WebSocket server listens at ws://ADDRESS/arcp. The agents do what the conformance checks
expect of the demo tools of the same name.
"""

import asyncio
import json
import sys

from arcp import (
    InvalidRequestError,
    RuntimeInfo,
    StdioTransport,
    error_from_payload,
    serve_websocket,
)
from arcp.runtime import ARCPRuntime, StaticBearerVerifier


FRAME_LIMIT = 8 << 20  # in bytes
CHUNK = 256 << 10  # in characters


async def echo(arguments, ctx):
    """Returns the arguments, in chunks if they are large."""
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    if len(text) <= CHUNK:
        return arguments
    async with ctx.stream_result() as stream:
        for start in range(0, len(text), CHUNK):
            await stream.write(text[start : start + CHUNK])


async def legacy_echo(arguments, ctx):
    return {"legacy": arguments}


def number(arguments, name, default=None):
    value = arguments.get(name, default)
    if not isinstance(value, int):
        raise InvalidRequestError(f"{name} is not a number")
    return value


async def sleep(arguments, ctx):
    ms = number(arguments, "ms")
    await ctx.status("sleeping")
    await asyncio.sleep(ms / 1000)
    return {"slept_ms": ms}


async def stubborn(arguments, ctx):
    ms = number(arguments, "ms")
    until = asyncio.get_running_loop().time() + ms / 1000
    while (left := until - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            pass
    return {"stubborn_ms": ms}


async def emit(arguments, ctx):
    count, size = number(arguments, "count"), number(arguments, "bytes")
    await asyncio.sleep(number(arguments, "delay_ms", 0) / 1000)
    for n in range(count):
        await ctx.log("info", "x" * size, {"n": n})
        await asyncio.sleep(number(arguments, "interval_ms", 0) / 1000)
    return {"emitted": count}


async def progress(arguments, ctx):
    steps = number(arguments, "steps")
    for n in range(steps):
        await ctx.progress(n + 1, total=steps)
        await asyncio.sleep(number(arguments, "interval_ms") / 1000)
    return {"steps": steps}


async def fail(arguments, ctx):
    raise error_from_payload({"retryable": None, **arguments})


async def access(arguments, ctx):
    ctx.authorize(arguments["namespace"], arguments["target"])
    return {"allowed": True}


async def model(arguments, ctx):
    ctx.authorize_model(arguments["model"])
    return {"allowed": True}


async def spend(arguments, ctx):
    for _ in range(number(arguments, "times")):
        ctx.authorize("tool.call", "spend")
        await ctx.metric(
            {"name": "cost.demo", "value": arguments["amount"], "unit": arguments["currency"]}
        )
    return {"spent": number(arguments, "times")}


async def panic(arguments, ctx):
    raise RuntimeError("the agent crashes")


def runtime(credentials):
    principals = dict(pair.split("=", 1) for pair in credentials)
    served = ARCPRuntime(
        runtime=RuntimeInfo(name="arcp-python", version="1.1.3"),
        bearer=StaticBearerVerifier(principals),
    )
    served.register_agent_version("echo", "1.0.0", echo)
    served.register_agent_version("echo", "0.9.0", legacy_echo)
    for agent in (sleep, stubborn, emit, progress, fail, access, model, spend, panic):
        served.register_agent_version(agent.__name__, "1.0.0", agent)
    return served


async def main(mode, *arguments):
    if mode == "stdio":
        await runtime(arguments).accept(await StdioTransport.from_std_streams())
        return
    address, *credentials = arguments
    host, port = address.rsplit(":", 1)
    server = await serve_websocket(
        runtime(credentials).accept, host=host, port=int(port), path="/arcp", max_size=FRAME_LIMIT
    )
    async with server:
        await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
