"""Tools for agents, asked by a client of the Model Context Protocol: over HTTP and stdio."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from cefito.inference.session import Session
from cefito.serve import mcp
from cefito.serve.mcp import TOOLS
from serve.live_sessions import late
from tiny_runs import next_actions, rows_of

VIDEO = {"id": "world-0036", "step": 1}
TOKEN = "a token of many letters"


@pytest.fixture(scope="module")
def address(place, run_of_lengths, listening):
    """Address of a service of three runs with tools."""
    settings = place.settings(runs=(place.run, place.short, run_of_lengths.folder), mcp=True)
    with listening(settings) as address:
        yield f"{address}/mcp"


def asked(server, *calls):
    """Results of calls of tools, each a name and arguments."""

    async def ask():
        async with Client(server, read_timeout_seconds=120) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(ask)


def value(result):
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def test_tools_are_listed_with_their_schemas(address):
    async def listed():
        async with Client(address) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(listed)}
    assert list(tools) == list(TOOLS)
    for tool in tools.values():
        for schema in (tool.input_schema, tool.output_schema):
            assert not {"$ref", "$defs"} & set(re.findall(r'"([^"]+)":', json.dumps(schema)))
    pin = tools["plan"].input_schema["properties"]["constraints"]["properties"]["pin"]
    assert pin["type"] == "object"
    assert {"video", "constraints", "top_k"} <= set(tools["plan"].input_schema["properties"])
    assert "plans" in tools["plan"].output_schema["properties"]
    assert all(tool.description for tool in tools.values())
    reading = [name for name, tool in tools.items() if tool.annotations.read_only_hint]
    assert reading == ["steps", "videos", "plan", "recognise", "verify", "next_steps"]


def test_tasks_and_their_steps(address, run_of_lengths):
    taxonomy = run_of_lengths.taxonomy
    more = ("steps", {"run": "tea", "task": 3}), ("videos", {"run": "tea", "search": VIDEO["id"]})
    body = {"run": "tea", "video": VIDEO, "top_k": 2}
    more += (("plan", body),)
    every, some, videos, plan = asked(address, ("steps", {"run": "tea"}), *more)
    data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    request = urllib.request.Request(f"{address[:-4]}/v1/plan", data, headers)
    with urllib.request.urlopen(request) as answer:
        assert value(plan)["plans"] == json.load(answer)["plans"]
    with urllib.request.urlopen(f"{address[:-4]}/v1/videos?run=tea&search={VIDEO['id']}") as answer:
        assert value(videos) == json.load(answer)
    for found, tasks, actions in (
        (every, range(len(taxonomy.tasks)), range(len(taxonomy.actions))),
        (some, [3], taxonomy.tasks[3].actions),
    ):
        assert value(found) == {
            "run": "tea",
            "tasks": [{"id": task, "name": taxonomy.tasks[task].name} for task in tasks],
            "steps": [{"id": one, "name": taxonomy.actions[one].name} for one in actions],
        }


def test_next_steps_are_those_of_a_session(address, run_of_lengths, world):
    actions = run_of_lengths.taxonomy.actions
    session = Session(run_of_lengths, task=3)
    first = next_actions(session, 1)[0][0]
    session.done(first)
    body = {"run": "run", "task": 3, "done": [actions[first].name], "top_k": 2}
    many = body | {"done": [first] * 256}  # as many as a request may hold
    scene = {"observation": world.start[2].tolist()}
    bodies = body, {"run": "tea"}, many, body | scene
    plain, refused, long, seen = asked(address, *(("next_steps", one) for one in bodies))
    assert value(long)["next_steps"]
    found = value(plain)
    assert [step["id"] for step in found["next_steps"]] == [
        action for action, _ in next_actions(session, 2)
    ]
    assert found["tasks"][0]["id"] == 3
    session.observe(world.start[2])
    assert [(step["id"], step["probability"]) for step in value(seen)["next_steps"]] == [
        (action, pytest.approx(share, rel=1e-4)) for action, share in next_actions(session, 2)
    ]
    assert value(seen)["next_steps"] != found["next_steps"]
    assert refused.is_error
    assert "a session needs a run of the method any-length" in refused.content[0].text


def test_a_session_takes_rows(place, run_with_recogniser, world, listening):
    """Its state is that over HTTP."""
    rows = [{"at": at, "row": row.tolist()} for at, row in enumerate(rows_of(world, 0)[:200])]
    settings = place.settings(runs=(run_with_recogniser.folder,), mcp=True)
    with listening(settings) as address:
        (opened,) = asked(f"{address}/mcp", ("open_session", {}))
        id_ = value(opened)["id"]
        event = {"id": id_, "rows": rows}
        told, again = asked(f"{address}/mcp", ("add_event", event), ("add_event", event))
        with urllib.request.urlopen(f"{address}/v1/sessions/{id_}") as response:
            assert value(told) == json.load(response)
    assert value(again) == late(value(told))
    assert value(told)["followed"]["done"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sing", {}, "no tool 'sing'; there are steps, videos"),
        ("plan", {"run": "tea"}, "expected exactly one of 'observations' and 'video'"),
        ("plan", {"run": "tea", "nonsense": 1}, "nonsense"),
        ("steps", {"run": "coffee"}, "no run fits"),
        ("steps", {"run": "tea", "task": "no such task"}, "unknown task"),
        ("plan", {"run": "tea", "top_k": "1"}, "The tool's schema describes the fields."),
        ("plan", {"run": "tea", "video": VIDEO, "task": "x"}, "The tool 'steps' lists all names."),
        ("plan", {"run": "tea", "video": {"id": "gone"}}, "The tool 'videos' lists all."),
        ("add_event", {"id": "gone", "done": 0}, "The tool 'open_session' opens one."),
        ("add_event", {"id": "gone"}, "expected exactly one of 'observation'"),
    ],
)
def test_wrong_calls_are_answered_by_a_problem(address, name, arguments, message):
    (found,) = asked(address, (name, arguments))
    assert found.is_error
    problem = json.loads(found.content[0].text)
    assert message in problem["detail"]
    assert problem["type"].startswith("urn:cefito:")


def test_messages_name_tools_instead_of_routes():
    folder = Path(mcp.__file__).parent
    source = "".join(one.read_text(encoding="utf-8") for one in folder.glob("*.py"))
    named = set(re.findall(r"(?:GET|POST|DELETE) /\S+ \w+", source)) - {"GET /docs lists"}
    assert all(any(route.startswith(one) for route in mcp.INSTEAD) for one in named)
    assert len(named) == len(mcp.INSTEAD)


def test_messages_need_the_token_and_keep_the_limits(place, listening):
    settings = place.settings(mcp=True, token=SecretStr(TOKEN), limits={"body_mib": 0.01})

    @asynccontextmanager
    async def transport(token):
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers) as client,
            streamable_http_client(f"{address}/mcp", http_client=client) as streams,
        ):
            yield streams

    with listening(settings) as address:
        (found,) = asked(transport(TOKEN), ("steps", {"run": "tea"}))
        assert value(found)["tasks"]
        for headers, body, status in (
            ({}, b"{}", 401),
            ({"authorization": f"Bearer {TOKEN}"}, b" " * 20_000, 413),
        ):
            headers = headers | {"content-type": "application/json"}
            request = urllib.request.Request(f"{address}/mcp", body, headers)
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request)
            assert caught.value.code == status
            caught.value.close()


def test_there_are_no_tools_unless_they_are_asked_for(client, serving):
    assert client.post("/mcp", json={}).status_code == 404
    assert serving(mcp=True).get("/mcp").status_code == 405


def test_tools_over_stdio(place):
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "cefito", "mcp", str(place.run), "--dataset", str(place.world.folder)],
        env=dict(os.environ),
    )
    plan, refused = asked(server, ("plan", {"video": VIDEO, "top_k": 1}), ("plan", {}))
    (best,) = value(plan)["plans"]
    assert len(best["actions"]) == 3
    assert refused.is_error


NO_MESSAGES = (
    (
        r'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\ud800"}}',
        1,
        -32700,
    ),
    (r'{"jsonrpc": "2.0", "id": "x", "method": "tools/list", "y": "\udc80"}', "x", -32700),
    (r'{"jsonrpc": "2.0", "id": "\ud800", "method": "tools/list"}', None, -32700),
    ('{"jsonrpc": "2.0", "id": 2, "method": ' + "[" * 10_000, None, -32700),
    ('{"jsonrpc": "2.0", "id": 3, "method": ' + "[" * 500 + "]" * 500 + "}", 3, -32700),
    ('{"id": 4}', 4, -32600),
    *(
        (f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/list"}}', None, -32600)
        for number in ("1e400", "1.5", "null", "[1]", "true", "NaN")
    ),
    ('{"id": true}', None, -32600),
    ("[1]", None, -32600),
    ("no JSON", None, -32700),
)


def test_lines_that_hold_no_message_get_an_error(place):
    """The next request is answered as ever; blank lines are passed over."""
    command = [sys.executable, "-m", "cefito", "mcp", str(place.run)]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as process:
        send(process, BEGIN, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert json.loads(process.stdout.readline())["id"] == 0
        for line, number, code in NO_MESSAGES:
            process.stdin.write(b"\n" + line.encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert (answer["id"], answer["error"]["code"]) == (number, code)
        send(process, message(5, "tools/list"))
        assert json.loads(process.stdout.readline())["id"] == 5
        process.stdin.close()
        assert process.wait(300) == 0


SERVER = """
import anyio, sys
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, TextContent
from cefito.cli.console import ReaderGone
from cefito.cli.serve import run_until_ended

async def call(context, params):
    await anyio.sleep(float(params.arguments["seconds"]))
    print("not for the client")
    text = "x" * int(params.arguments.get("letters", 1))
    return CallToolResult(content=[TextContent(text=text)])

async def serve():
    server = Server("slow", on_call_tool=call)
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())

try:
    run_until_ended(serve)
except ReaderGone:
    sys.exit(141)
"""


def message(number, method, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def slow(number, **arguments):
    return message(number, "tools/call", name="wait", arguments=arguments)


BEGIN = message(
    0,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)


@contextmanager
def slow_server(*messages):
    """A server in another process whose calls take as long as they ask; it has begun."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # one in the background, or of nohup, would inherit that signals are ignored
    numbers = (signal.SIGINT, signal.SIGHUP)
    inherited = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    process = subprocess.Popen([sys.executable, "-c", SERVER], **pipes)
    for number, handler in inherited.items():
        signal.signal(number, handler)
    with process:
        send(process, BEGIN, *messages)
        assert json.loads(process.stdout.readline())["id"] == 0
        yield process
        process.kill()


def send(process, *messages):
    for one in messages:
        process.stdin.write(json.dumps(one).encode() + b"\n")
    process.stdin.flush()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.nightly),
        pytest.param(signal.SIGHUP, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_ends_it_whatever_it_does(number):
    with slow_server(slow(1, seconds=60), slow(2, seconds=0, letters=10_000_000)) as process:
        process.stdin.write(b'{"jsonrpc": ')
        process.stdin.flush()
        process.send_signal(number)
        assert process.wait(300) == 128 + number
        said = process.stderr.read()  # the last line may be cut
        assert said.replace(b"not for the client", b"").strip() == b""


@pytest.mark.nightly
def test_a_client_that_reads_no_more_ends_it():
    with slow_server() as process:
        process.stdout.close()
        send(process, slow(1, seconds=0))
        process.stdin.close()
        assert process.wait(300) == 141
        assert process.stderr.read() == b"not for the client\n"
