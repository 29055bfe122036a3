"""The Python client of MCP, as mcp_interop_test.go uses it: it lists the tools that a
command offers, calls one of them and prints both as one JSON object."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        result = await session.call_tool("demo.echo", {"text": "hello"})
        print(json.dumps({"tools": [t.name for t in tools], "echo": result.model_dump(mode="json", by_alias=True)}))


asyncio.run(main())
