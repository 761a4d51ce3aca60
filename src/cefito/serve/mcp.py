"""Tools for agents, by the Model Context Protocol: what the routes of the service answer.

Over HTTP, every message is a request of its own, without a session, with the checks of all routes.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import anyio
from anyio.abc import ObjectSendStream
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from cefito.data.vocabulary import find_task
from cefito.errors import CefitoError, complaint
from cefito.files import NOT_JSON
from cefito.inference.outlook import Likely, check_sessions
from cefito.inference.session import Belief, Session
from cefito.serve.problems import ProblemError, to_problem
from cefito.serve.schemas import (
    Done,
    EventRequest,
    Name,
    Named,
    Observation,
    OpenRequest,
    PlaceRequest,
    PlanAnswer,
    PlanRequest,
    ResponseBody,
    RunRequest,
    SessionAnswer,
    SessionRequest,
    VideosAnswer,
    VideosRequest,
)
from cefito.serve.service import Watch
from cefito.serve.sessions import LISTED, Sessions, apply_event, session_goal
from cefito.serve.whole_videos import (
    RecogniseRequest,
    TrackAnswer,
    VerifyAnswer,
    VerifyRequest,
    WholeVideos,
)

_NOTICE = "notifications/"  # the methods of MCP that are no requests begin so


class StepsRequest(RunRequest):
    """The steps of a task."""

    task: Name | None = Field(None, description="By default all tasks.")


class StepsAnswer(ResponseBody):
    """Tasks that a run knows, and their steps."""

    run: str
    tasks: list[Named]
    steps: list[Named]


class NextStepsRequest(SessionRequest):
    """What follows the steps done and the present scene."""

    done: Done | None = Field(None, description="Oldest first; [] for none, null if unknown.")
    observation: Observation | None = Field(None, description="Of the present scene.")
    video: PlaceRequest | None = Field(None, description="Its start is the present scene.")
    top_k: int = Field(LISTED, ge=1, le=100, description="Number of steps and tasks.")


class NextStepsAnswer(Belief):
    """What is done and the likeliest next steps."""

    run: str
    next_steps: list[Likely] = Field(description="Likeliest first.")


async def _steps(sessions: Sessions, _: Request, body: StepsRequest) -> StepsAnswer:
    served = sessions.service.models.find(body.run, body.horizon)
    taxonomy = served.run.taxonomy
    tasks, steps = list(taxonomy.tasks), list(taxonomy.actions)
    if body.task is not None:
        tasks = [taxonomy.tasks[find_task(taxonomy, body.task)]]
        steps = [taxonomy.actions[action] for action in tasks[0].actions]
    return StepsAnswer.model_validate({"run": served.name, "tasks": tasks, "steps": steps})


async def _videos(sessions: Sessions, _: Request, body: VideosRequest) -> VideosAnswer:
    served = sessions.service.models.find(body.run, body.horizon)
    return await anyio.to_thread.run_sync(served.list_videos, body)


async def _next_steps(
    sessions: Sessions, request: Request, body: NextStepsRequest
) -> NextStepsAnswer:
    service = sessions.service
    served = service.models.find(body.run, body.horizon)
    check_sessions(served.run)
    goal = await service.observed_text(served, body.goal_text)

    def look(_: Watch) -> NextStepsAnswer:
        row = session_goal(served, body) if goal is None else goal
        session = Session(served.run, goal=row, task=body.task, done=body.done)
        for source in ("observation", "video"):
            if (seen := getattr(body, source)) is not None:
                apply_event(served, EventRequest(**{source: seen}), session)
        belief = session.belief()
        return NextStepsAnswer(
            **{**dict(belief), "tasks": belief.tasks[: body.top_k]},
            run=served.name,
            next_steps=session.likely_next(body.top_k),
        )

    return await service.call(request, served, look)


class SessionEventRequest(EventRequest):
    """An event of an open session."""

    id: Annotated[str, Field(max_length=100, description="The session's, as its opening answers.")]


def _flat(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """The schema with each definition in the places that refer to it; some clients read no $ref."""
    if isinstance(schema, list):
        return [_flat(inner, definitions) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = schema.get("$defs", definitions) or {}
    name = schema.get("$ref", "").rpartition("/")[2]
    whole = {**definitions.get(name, {}), **schema}
    return {
        key: _flat(value, definitions)
        for key, value in whole.items()
        if key not in ("$ref", "$defs")
    }


@dataclass(frozen=True)
class _Tool:
    description: str
    call: Callable[[Sessions, Request, Any], Awaitable[BaseModel]]
    request: type[BaseModel]
    answer: type[BaseModel]
    changes: bool = False  # the service

    def described(self, name: str) -> Tool:
        return Tool(
            name=name,
            description=self.description,
            input_schema=_flat(self.request.model_json_schema()),
            output_schema=_flat(self.answer.model_json_schema(mode="serialization")),
            annotations=ToolAnnotations(
                read_only_hint=not self.changes,
                idempotent_hint=not self.changes,
                open_world_hint=False,
            ),
        )


TOOLS: Mapping[str, _Tool] = {
    "steps": _Tool(
        "List the tasks that the model can plan and their steps (actions), or one task and its "
        "steps. Ids and names of both are accepted everywhere.",
        *(_steps, StepsRequest, StepsAnswer),
    ),
    "videos": _Tool(
        "List annotated videos of the opened data sets with their steps.",
        *(_videos, VideosRequest, VideosAnswer),
    ),
    "plan": _Tool(
        "Plan the steps between two observations, after steps done, or for a task. Give one "
        "source: a video of an opened data set, observations, or for a run of several lengths a "
        "task or the steps done alone.",
        lambda sessions, request, body: sessions.service.plan(request, body),
        *(PlanRequest, PlanAnswer),
    ),
    "recognise": _Tool(
        "Recognise the steps of a whole video, with their times and probabilities: a video of an "
        "opened data set, or rows of features.",
        lambda sessions, request, body: WholeVideos(sessions.service).recognise(request, body),
        *(RecogniseRequest, TrackAnswer),
    ),
    "verify": _Tool(
        "Say which steps of a video were skipped, out of order, added, repeated or done wrongly, "
        "and which remain. Give one source: a track (names and times of steps, as 'recognise' "
        "answers them), a video of an opened data set, or rows of features.",
        lambda sessions, request, body: WholeVideos(sessions.service).verify(request, body),
        *(VerifyRequest, VerifyAnswer),
    ),
    "next_steps": _Tool(
        "Say which steps probably come next, after the steps done and the present scene. For runs "
        "of several lengths.",
        *(_next_steps, NextStepsRequest, NextStepsAnswer),
    ),
    "open_session": _Tool(
        "Open a session, which follows a procedure from its begin; for runs of several lengths.",
        Sessions.open,
        *(OpenRequest, SessionAnswer, True),
    ),
    "add_event": _Tool(
        "Add to a session what was seen or done, or rows of a video; the state afterwards. While "
        "rows are followed, a step done corrects the step that goes on.",
        lambda sessions, request, body: sessions.change(request, body.id, body),
        *(SessionEventRequest, SessionAnswer, True),
    ),
}
INSTEAD = {  # of routes in messages
    "GET /openapi.json describes the fields.": "The tool's schema describes the fields.",
    "GET /v1/model lists": "The tool 'steps' lists",
    "GET /v1/videos lists": "The tool 'videos' lists",
    "POST /v1/sessions opens": "The tool 'open_session' opens",
}


class ToolServer:
    """The tools of a service over HTTP, as an ASGI application while it is `running`, or stdio."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions, self.service = sessions, sessions.service
        self._server: Server[Any] = Server(
            "cefito",
            version=version("cefito"),
            instructions="Plans of steps in instructional videos. List the steps first.",
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept messages over HTTP."""
        self._manager = StreamableHTTPSessionManager(
            self._server,
            json_response=True,
            stateless=True,
            max_request_body_size=self.service.limits.body_bytes,
        )
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a message."""
        assert self._manager is not None
        await self._manager.handle_request(scope, receive, send)

    async def run_stdio(self) -> None:
        """Answer messages on stdin until it ends; stdout has the answers alone."""
        self.service.start()
        try:
            options = self._server.create_initialization_options()
            async with stdio_server() as (messages, answers), anyio.create_task_group() as tasks:
                accepted, requests = anyio.create_memory_object_stream[Any](0)
                tasks.start_soon(_sorted_out, messages, accepted, answers)
                await self._server.run(requests, answers, options)
                tasks.cancel_scope.cancel()
        finally:
            await anyio.to_thread.run_sync(self.service.close)

    async def _list(
        self,
        context: ServerRequestContext[Any],  # noqa: ARG002
        params: PaginatedRequestParams | None,  # noqa: ARG002
    ) -> ListToolsResult:
        return ListToolsResult(tools=[tool.described(name) for name, tool in TOOLS.items()])

    async def _call(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        request = context.request if isinstance(context.request, Request) else _request()
        try:
            if (tool := TOOLS.get(params.name)) is None:
                raise ProblemError(f"no tool '{params.name}'; there are {', '.join(TOOLS)}.")
            body = tool.request.model_validate(params.arguments or {})
            answer = await tool.call(self.sessions, request, body)
        except (CefitoError, HTTPException, ValidationError) as error:
            problem = json.dumps(to_problem(error, self.service.models.names).document())
            for route, tool_instead in INSTEAD.items():
                problem = problem.replace(route, tool_instead)
            text = TextContent(text=problem)
            return CallToolResult(content=[text], is_error=True)
        value = answer.model_dump(mode="json")
        text = TextContent(text=json.dumps(value, ensure_ascii=False, allow_nan=False))
        return CallToolResult(content=[text], structured_content=value)


async def _sorted_out(messages: Any, accepted: ObjectSendStream[Any], answers: Any) -> None:
    """Pass messages on, and answer lines that hold none, which the server would ignore.

    A request whose id is no text and no whole number is read as a notification of its method.
    """
    async with accepted:
        async for message in messages:
            request = None if isinstance(message, Exception) else message.message
            if isinstance(request, JSONRPCNotification) and not request.method.startswith(_NOTICE):
                fault = "a request has an id, which is text or a whole number"
                error = ErrorData(code=INVALID_REQUEST, message=fault)
                refusal = JSONRPCError(jsonrpc="2.0", id=None, error=error)
                await answers.send(SessionMessage(refusal))
            elif request is not None:
                await accepted.send(message)
            elif (answer := _refusal(message)) is not None:
                await answers.send(SessionMessage(answer))


def _refusal(problem: Exception) -> JSONRPCError | None:
    """The answer to a line that holds no message, with the id of its request; None if blank."""
    first: Any = problem.errors()[0] if isinstance(problem, ValidationError) else {}
    line, number = first.get("input"), None
    code, fault = INVALID_REQUEST, "the line is no message of JSON-RPC 2.0"
    if first.get("type") == "json_invalid":
        code, fault = PARSE_ERROR, complaint(first)
        if not str(line).strip():
            return None
        with suppress(*NOT_JSON):  # it takes halves of surrogates, which stand for no letter
            line = json.loads(str(line))
    if isinstance(line, dict) and isinstance(line.get("id"), int | str):
        number = line["id"]
    if isinstance(number, bool) or not str(number).isprintable():
        number = None
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=fault))


def _request() -> Request:
    """A request of a client that is not connected over HTTP, and never disconnects by itself."""

    async def never() -> Any:
        await anyio.sleep_forever()

    state = {"began": time.monotonic(), "client": ""}
    return Request({"type": "http", "headers": [], "client": None, "state": state}, never)
