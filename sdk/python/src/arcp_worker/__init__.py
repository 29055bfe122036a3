"""Workers for an ARCP runtime.

A worker is a program that registers tools with a runtime and executes their jobs::

    from arcp_worker import Context, Worker

    worker = Worker("ws://127.0.0.1:7777/arcp", token="...", name="texts")

    @worker.tool("text.reverse")
    async def reverse(ctx: Context, text: str) -> str:
        await ctx.progress(1, 2)
        return text[::-1]

    worker.run()
"""

from ._context import Context, SyncContext
from ._errors import Cancelled, ToolError, WorkerError
from ._worker import Worker

__all__ = ["Cancelled", "Context", "SyncContext", "ToolError", "Worker", "WorkerError", "__version__"]

__version__ = "0.1.0"
