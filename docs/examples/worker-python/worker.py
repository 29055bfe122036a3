import sys

from arcp_worker import Context, Worker

worker = Worker(name="texts", concurrency=4)


@worker.tool("text.words", side_effect="none", recovery="rerun")
async def words(ctx: Context, text: str) -> dict[str, int]:
    """Counts the words of a text."""
    await ctx.progress(1, 1)
    return {"words": len(text.split())}


worker.run(stdio="--stdio" in sys.argv)
