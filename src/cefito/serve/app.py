"""The application: every route of the service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from enum import Enum
from importlib.metadata import version
from typing import Annotated, Any

from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI, Query
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cefito.errors import CefitoError
from cefito.serve.metrics import Metrics
from cefito.serve.middleware import DOCS, UPLOAD, RequestMiddleware, clean_id
from cefito.serve.page.routes import page_router
from cefito.serve.problems import POSSIBLE_PROBLEMS, ProblemError, to_problem
from cefito.serve.schemas import (
    EventRequest,
    Health,
    ModelAnswer,
    PlanAnswer,
    PlanRequest,
    RowsRequest,
    SessionAnswer,
    SessionRequest,
    UploadForm,
    UploadRequest,
    VideosAnswer,
)
from cefito.serve.service import Service, open_service
from cefito.serve.sessions import LISTED, Sessions
from cefito.serve.settings import ServiceSettings

At = Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False, description="Time in seconds.")]
SessionId = Annotated[str, PathParameter(max_length=100, description="Of an open session.")]


def create_app(settings: ServiceSettings) -> FastAPI:
    """Open the runs and data sets (CefitoError), and make the application that serves them."""
    service = open_service(settings)
    models, metrics = service.models, service.metrics
    sessions, tools = Sessions(service), None
    if settings.mcp:
        from cefito.serve.mcp import ToolServer

        tools = ToolServer(sessions)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        import anyio.to_thread

        service.start()
        try:
            async with nullcontext() if tools is None else tools.running():
                yield
        finally:
            await anyio.to_thread.run_sync(service.close)

    app = FastAPIOffline(  # FastAPI, whose page of the routes needs no internet
        title="cefito",
        summary="Plans between two observations.",
        version=version("cefito"),
        docs_url=DOCS,
        redoc_url=None,
        swagger_ui_parameters={"validatorUrl": None},
        lifespan=lifespan,
        redirect_slashes=False,  # to the host that the client names
        separate_input_output_schemas=False,
        responses=POSSIBLE_PROBLEMS,
    )
    app.state.service = service
    app.add_middleware(RequestMiddleware, settings=settings, metrics=metrics)
    app.add_middleware(CorrelationIdMiddleware, validator=None, transformer=clean_id)  # outermost

    async def refuse(request: Request, error: Exception) -> Response:
        content_type = request.headers.get("content-type", "")
        return to_problem(error, models.names, content_type).response()

    for kind in (CefitoError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, refuse)
    _add_plans(app, service)
    _add_sessions(app, sessions)
    _add_information(app, service, metrics)
    app.include_router(page_router(models))
    if tools is not None:
        app.routes.append(Route("/mcp", tools, methods=["POST"]))
    return app


_PARTS = {"multipart/form-data": {"schema": UploadForm.model_json_schema()}}
_FORM: dict[str, Any] = {"requestBody": {"required": True, "content": _PARTS}}  # for OpenAPI

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PICTURE: dict[str, Any] = {"requestBody": {"required": True, "content": {"image/jpeg": _BINARY}}}


def _add_plans(app: FastAPI, service: Service) -> None:
    @app.post("/v1/plan", tags=["plans"])
    async def plan(body: PlanRequest, request: Request) -> PlanAnswer:
        """Plan one query."""
        return await service.plan(request, body)

    @app.post(f"/v1/plan{UPLOAD}", openapi_extra=_FORM, tags=["plans"])
    async def upload(request: Request) -> PlanAnswer:
        """Plan between two uploaded pictures, or between two seconds of an uploaded video."""
        service.check_upload()  # before the body is read
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise ProblemError("expected multipart/form-data. GET /docs lists its parts.")
        async with request.form(max_files=2, max_fields=3, max_part_size=1 << 18) as given:
            try:
                form = UploadForm.model_validate(dict(given))
                body = UploadRequest.model_validate(form.request)
            except ValidationError as error:
                raise to_problem(error, {}) from error
            return await service.upload(request, form, body)


def _add_sessions(app: FastAPI, sessions: Sessions) -> None:
    tags: list[str | Enum] = ["sessions"]

    @app.post("/v1/sessions", status_code=201, tags=tags)
    async def open_session(body: SessionRequest, request: Request) -> SessionAnswer:
        """Open a session, which follows a procedure from its begin."""
        return await sessions.open(request, body)

    @app.get("/v1/sessions/{id}", tags=tags)
    async def session(
        id: SessionId,
        request: Request,
        top_k: Annotated[
            int, Query(ge=1, le=10_000, description="Number of tasks, next steps and plans.")
        ] = LISTED,
        steps: Annotated[
            int | None, Query(ge=1, le=9999, description="Length of the plans; any without it.")
        ] = None,
    ) -> SessionAnswer:
        """The present state of a session."""
        return await sessions.state(request, id, top_k, steps)

    @app.delete("/v1/sessions/{id}", status_code=204, tags=tags)
    async def close_session(id: SessionId) -> None:
        """End a session."""
        sessions.close(id)

    @app.post("/v1/sessions/{id}/events", tags=tags)
    async def change(id: SessionId, body: EventRequest, request: Request) -> SessionAnswer:
        """Add an observation or a step done, or undo the last of them; the state afterwards."""
        return await sessions.change(request, id, body)

    @app.post("/v1/sessions/{id}/rows", tags=tags)
    async def rows(id: SessionId, body: RowsRequest, request: Request) -> SessionAnswer:
        """Add rows of a video, whose steps need no boundaries; the state afterwards."""
        return await sessions.change(request, id, EventRequest(rows=body.rows))

    @app.post("/v1/sessions/{id}/pictures", openapi_extra=_PICTURE, tags=tags)
    async def picture(id: SessionId, request: Request, at: At) -> SessionAnswer:
        """Add a picture of a camera or a video as the row of its second; the state afterwards."""
        return await sessions.picture(request, id, at)

    @app.get(
        "/v1/sessions/{id}/events",
        response_class=StreamingResponse,
        responses={
            200: {"description": "Server-sent events.", "content": {"text/event-stream": {}}},
        },
        tags=tags,
    )
    async def follow(id: SessionId, request: Request) -> StreamingResponse:
        """Follow a session: an event `state` with its state now and after each event, then `end`.

        A comment comes when there is nothing to say for long.
        """
        live = sessions.find(id)
        request.state.stream = True
        return StreamingResponse(
            sessions.stream(live),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},  # nginx passes each event on at once
        )


def _add_information(app: FastAPI, service: Service, metrics: Metrics) -> None:
    models = service.models

    @app.get("/v1/model", tags=["models"])
    def model() -> ModelAnswer:
        """List the runs with their tasks and actions, and the limits of the service."""
        return models.describe(service.limits)

    @app.get("/v1/videos", tags=["models"])
    def videos(
        run: Annotated[str | None, Query(max_length=300, description="Name of the run.")] = None,
        horizon: Annotated[int | None, Query(ge=0, le=999_999_999)] = None,
        task: Annotated[
            str | None, Query(max_length=300, description="Id or name of a task.")
        ] = None,
        split: Annotated[str | None, Query(pattern="^(train|val|test)$")] = None,
        offset: Annotated[int, Query(ge=0, le=999_999_999)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
        search: Annotated[
            str | None,
            Query(
                max_length=300,
                description="Words that the id, the task or the steps hold. The video of this id "
                "comes first, then test, val and train.",
            ),
        ] = None,
        windows: Annotated[bool, Query(description="Only videos with windows.")] = False,
    ) -> VideosAnswer:
        """List videos of the opened data sets, with the first steps of their windows."""
        return models.find(run, horizon).list_videos(
            task=task, split=split, offset=offset, limit=limit, search=search, windows=windows
        )

    @app.get("/health", tags=["monitoring"])
    async def health() -> Health:
        """Whether the process is alive."""
        return Health(status="ok")

    @app.get("/ready", tags=["monitoring"])
    async def ready() -> Health:
        """Whether the service accepts requests, and has loaded its encoder of uploads."""
        service.check_ready()
        return Health(status="ready")

    @app.get("/metrics", response_class=Response, tags=["monitoring"])
    async def prometheus() -> Response:
        """Prometheus metrics."""
        page = generate_latest(metrics.registry)
        return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})
