"""The proxy between a real client and a real server of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import sys

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from rolecraft.guard import Enforcer, guard_server
from tests.guard.conftest import guard_of

RULES = {"send": [{"when": {"to": {"enum": ["anna"]}}}], "wipe": [{"effect": "forbid"}]}
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}


def bank(made):
    """A server with two tools that notes every call it carries out."""

    async def list_tools(ctx, params):
        return ListToolsResult(tools=[Tool(name=name, input_schema=SCHEMA) for name in ("send", "wipe")])

    async def call_tool(ctx, params):
        made.append((params.name, params.arguments))
        return CallToolResult(content=[TextContent(type="text", text=f"done {params.name}")])

    return Server("bank", on_list_tools=list_tools, on_call_tool=call_tool)


def through(upstream, enforcer, calls):
    """Call tools through the proxy; return the tools listed and the results."""

    async def run():
        async with Client(upstream) as inner, Client(guard_server(inner, enforcer, "clerk")) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            return listed, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_allowed_calls_pass_and_others_never_reach_the_server():
    made = []
    enforcer = Enforcer(guard_of(RULES))
    calls = [("send", {"to": "anna"}), ("send", {"to": "eve"}), ("wipe", {}), ("nothing", {})]
    listed, results = through(bank(made), enforcer, calls)
    assert listed == ["send"]
    assert [result.is_error for result in results] == [False, True, True, True]
    assert results[0].content[0].text == "done send"
    assert "'eve' does not meet enum" in results[1].content[0].text
    assert made == [("send", {"to": "anna"})]
    assert [row["effect"] for row in enforcer.log.rows] == ["allow", "block", "block", "block"]
    assert enforcer.guard.gate.calls == 0


def test_while_a_person_is_asked_other_calls_go_on():
    import time

    made = []
    rules = {"send": [{"when": {"to": {"const": "anna"}}}, {"effect": "forbid", "priority": 2, "fallback": "ask"}]}
    enforcer = Enforcer(guard_of(rules), approve=lambda *_: time.sleep(0.3) or True, patience=5)

    async def run():
        async with Client(bank(made)) as inner, Client(guard_server(inner, enforcer, "clerk")) as client:
            asked = asyncio.create_task(client.call_tool("send", {"to": "eve"}))
            await asyncio.sleep(0.05)
            await client.call_tool("send", {"to": "anna"})
            await asked

    asyncio.run(asyncio.wait_for(run(), 30))
    assert [arguments["to"] for _, arguments in made] == ["anna", "eve"]


SERVER = """
import asyncio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

async def list_tools(ctx, params):
    return ListToolsResult(tools=[Tool(name="send", input_schema={"type": "object"})])

async def call_tool(ctx, params):
    return CallToolResult(content=[TextContent(type="text", text="sent to " + params.arguments["to"])])

async def main():
    server = Server("bank", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
"""


def test_a_server_of_its_own_process_is_guarded_over_stdio(tmp_path):
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    upstream = StdioServerParameters(command=sys.executable, args=[str(script)])
    listed, results = through(upstream, Enforcer(guard_of(RULES)), [("send", {"to": "anna"}), ("send", {"to": "eve"})])
    assert listed == ["send"]
    assert results[0].content[0].text == "sent to anna"
    assert results[1].is_error
