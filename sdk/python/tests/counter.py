"""A worker that counts, with checkpoints. It is killed in a test."""

import asyncio
import sys

from arcp_worker import Context, Worker

worker = Worker(name="counter")


@worker.tool("text.count", recovery="checkpoint")
async def count(ctx: Context, to: int) -> dict[str, object]:
    print("the tool begins")  # standard output is not that of the protocol
    start = ctx.restored or 0
    for n in range(start + 1, to + 1):
        await ctx.checkpoint(n)
        await ctx.progress(n, to)
        if n == 2 and ctx.attempt == 1 and to > 2:
            await ctx.emit("waiting", {})
            await asyncio.Event().wait()  # until the process is killed
    return {"counted": to, "start": start, "attempt": ctx.attempt}


worker.run(stdio="--stdio" in sys.argv)
