"""A guard in front of a server of the Model Context Protocol: a proxy that lists its tools and passes allowed calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rolecraft.errors import MissingDependencyError
from rolecraft.guard._decision import Decision, ToolCall
from rolecraft.guard._enforcer import Enforcer
from rolecraft.guard._values import NotPlain, plain_arguments

if TYPE_CHECKING:
    from mcp import Client
    from mcp import ClientSession as Session
    from mcp.server.lowlevel import Server


def guard_server(upstream: Client | Session, enforcer: Enforcer, principal: str, *, name: str = "") -> Server[Any]:
    """Return an MCP server that stands in front of another one.

    It lists the tools that the policy may allow at all, passes calls that the guard allows, and answers all others with
    an error that says why, so that the agent can go on within its rights. Only tools are passed on, neither resources
    nor prompts.

    Args:
        upstream: A connected client of the server to guard.
        enforcer: Decides and logs.
        principal: Id of the role that calls.
        name: What the server calls itself.

    Returns:
        A low-level server, to be run over stdio or HTTP, or connected to in memory.

    Raises:
        MissingDependencyError: If `mcp` is not installed.
    """
    try:
        import mcp_types as types
        from anyio import to_thread
        from mcp import ClientSession
        from mcp.server.lowlevel import Server
    except ImportError:
        raise MissingDependencyError("guarding an MCP server needs mcp: pip install 'rolecraft[guard]'") from None

    async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        if isinstance(upstream, ClientSession):
            listed = await upstream.list_tools(params=params)
        else:
            listed = await upstream.list_tools(cursor=params.cursor if params is not None else None)
        rules = getattr(enforcer.guard, "rules", None)
        if rules is None:
            return listed
        known = {tool for tool, entries in rules(principal).items() if any(rule.effect == "allow" for rule in entries)}
        return listed.model_copy(update={"tools": [tool for tool in listed.tools if tool.name in known]})

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> Any:
        try:
            call = ToolCall(params.name, plain_arguments(params.arguments or {}))
        except NotPlain as error:
            refused = Decision("block", "arguments", str(error))
            enforcer.log.add(principal, ToolCall(params.name, {}), refused, 0.0)
            return _refusal(types, refused)
        gate = enforcer.gate
        if gate is not None:
            await to_thread.run_sync(gate.acquire)
        try:  # asking a person may take long: the check runs in a thread, so that other calls go on
            decision = await to_thread.run_sync(enforcer.check, principal, call)
            if not decision.allowed:
                return _refusal(types, decision)
            return await upstream.call_tool(call.name, dict(call.arguments))
        finally:
            if gate is not None:
                gate.release()

    return Server(name or "rolecraft-guard", on_list_tools=list_tools, on_call_tool=call_tool)


def _refusal(types: Any, decision: Decision) -> Any:
    text = f"Blocked by {decision.rule}: {decision.reason}. Go on with the task by other tools or arguments."
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
