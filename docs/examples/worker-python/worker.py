"""A worker with two tools: text.words counts the words of a text, and text.wait
counts to a number and can go on from where it was."""

import asyncio
import os
import signal
import sys

from arcp import STDIO, Call, Tool, ToolError, Worker


async def words(call: Call) -> dict[str, int]:
    found = call.args["text"].split()
    if not found:
        raise ToolError("INVALID_ARGUMENT", "the text has no words")
    await call.progress(len(found), len(found))
    return {"words": len(found)}


async def wait(call: Call) -> dict[str, int]:
    to, start = call.args.get("to", 10), call.restored or 0
    for n in range(start + 1, to + 1):
        await asyncio.sleep(call.args.get("interval_ms", 100) / 1000)
        await call.checkpoint(n)
        await call.progress(n, to)
    return {"counted": to, "resumed_from": start, "attempt": call.attempt}


WORDS = {
    "description": "counts the words of a text",
    "side_effect": "none",
    "recovery": "rerun",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False},
}
WAIT = {"description": "counts to a number", "side_effect": "none", "recovery": "checkpoint"}


async def main() -> None:
    worker = Worker(
        STDIO if "--stdio" in sys.argv else os.environ.get("ARCP_URL", "ws://127.0.0.1:7777/arcp"), os.environ.get("ARCP_TOKEN", ""), "text worker",
        {"text.words@1.0.0": Tool(words, WORDS), "text.wait@1.0.0": Tool(wait, WAIT)}, concurrency=4)
    task = asyncio.ensure_future(worker.run())
    for end in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(end, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        pass


asyncio.run(main())
