"""Uses the server with the reference client of MCP for Python, unmodified. Argument: the server's address."""

import asyncio
import json
import sys
import urllib.request

from mcp import Client
from mcp_types import ElicitResult

SERVER = sys.argv[1]
FORM = '!tool ask_person {"question": "Which one?", "kind": "choice", "options": ["red", "blue"]}'


def publish(name, spec):
    body = json.dumps({"name": name, "spec": spec}).encode()
    head = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{SERVER}/v1/agents", body, head)).read()


asked = []


async def answer(_context, params):
    asked.append(params.message)
    schema = params.requested_schema
    schema = schema if isinstance(schema, dict) else schema.model_dump(by_alias=True)
    assert schema["properties"]["answer"]["enum"] == ["red", "blue"], schema
    return ElicitResult(action="accept", content={"answer": "blue"})


async def use(mode, version):
    asked.clear()
    rounds = []

    async def progress(done, _total, message):
        rounds.append((done, message))

    async with Client(f"{SERVER}/mcp", mode=mode, elicitation_callback=answer) as client:
        assert client.protocol_version == version, client.protocol_version
        assert client.server_info.name == "mainspring"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["py-echo"].input_schema["required"] == ["message"], tools
        assert tools["py-form"].output_schema["type"] == "object", tools
        said = await client.call_tool("py-echo", {"message": "hello"})
        assert not said.is_error and said.content[0].text == "hello", said
        session = said.meta["mainspring/session_id"]
        said = await client.call_tool("py-echo", {"message": "more", "session_id": session})
        assert said.meta["mainspring/session_id"] == session, said
        said = await client.call_tool("py-form", {"message": "fill it in"})
        assert isinstance(said.structured_content["n"], int), said
        said = await client.call_tool("py-echo", {"message": FORM}, progress_callback=progress)
        assert asked == ["Which one?"], asked
        assert "blue" in said.content[0].text, said
        # Rounds that ended meanwhile are told of by the last one.
        assert rounds == sorted(rounds) and all(said == f"round {done:.0f}" for done, said in rounds), rounds
        said = await client.call_tool("py-echo", {"message": "!fail 400"})
        assert said.is_error, said
        said = await client.call_tool("py-echo", {"message": "x", "session_id": "ses_nonsense"})
        assert said.is_error and "session" in said.content[0].text, said
        listed = (await client.list_resources()).resources
        uri = f"mainspring://sessions/{session}"
        assert uri in [str(resource.uri) for resource in listed], listed
        read = (await client.read_resource(uri)).contents[0].text
        assert [message["role"] for message in json.loads(read)["messages"]] == ["user", "assistant"] * 2, read
        # Whoever stops waiting cancels.
        slow = asyncio.create_task(client.call_tool("py-echo", {"message": f"{mode} !sleep 60s"}))
        await until_status("running")
        slow.cancel()
        await until_status("cancelled")


async def until_status(status):
    for _ in range(200):
        newest = json.load(urllib.request.urlopen(f"{SERVER}/v1/sends?limit=1"))["data"][0]
        if newest["status"] == status:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the send is {newest['status']}, not {status}")


async def main():
    publish("py-echo", {"model": "demo", "tools": ["ask_person"]})
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    publish("py-form", {"model": "demo", "output_schema": schema})
    await use("auto", "2026-07-28")
    await use("legacy", "2025-11-25")


asyncio.run(main())
