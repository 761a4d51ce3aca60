"""The application: every route of the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeVar

import anyio.to_thread
from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from cefito.data.vocabulary import find_task
from cefito.errors import CefitoError
from cefito.report.picture import graph_picture
from cefito.serve.middleware import DOCS, METRICS, UPLOAD, RequestMiddleware, clean_id
from cefito.serve.page.routes import page_router
from cefito.serve.problems import POSSIBLE_PROBLEMS, ProblemError, to_problem
from cefito.serve.schemas import (
    Health,
    ModelAnswer,
    PlanAnswer,
    UploadForm,
    UploadRequest,
    VideosAnswer,
    VideosRequest,
)
from cefito.serve.service import Service, open_service
from cefito.serve.sessions import Sessions
from cefito.serve.settings import ServiceSettings
from cefito.serve.stations import Access
from cefito.serve.whole_videos import (
    RecogniseUploadRequest,
    TrackAnswer,
    VerifyAnswer,
    VerifyUploadRequest,
    VideoForm,
    WholeVideos,
)
from cefito.verification.order_files import graph_text


def create_app(settings: ServiceSettings) -> FastAPI:
    """Open the runs and data sets (CefitoError), and make the application that serves them."""
    service = open_service(settings)
    models = service.models
    sessions, tools = Sessions(service), None
    if settings.mcp:
        from cefito.serve.mcp import ToolServer

        tools = ToolServer(sessions)

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        sessions.resume()
        async with nullcontext() if tools is None else tools.running():
            yield

    app = scaffold(service, running, summary="Plans between two observations.")
    _add_plans(app, service)
    _add_whole_videos(app, WholeVideos(service))
    sessions.add_to(app)
    _add_information(app, service)
    add_monitoring(app, service)
    app.include_router(page_router(models))
    shared = ("cefito.report", "templates")  # look.css
    app.mount("/static", StaticFiles(packages=[("cefito.serve.page", "static"), shared]))
    if tools is not None:
        app.routes.append(Route("/mcp", tools, methods=["POST"]))
    return app


def scaffold(
    service: Service, running: Callable[[], AbstractAsyncContextManager[None]], *, summary: str
) -> FastAPI:
    """Make an application without routes: access, limits and problems of every request.

    Args:
        service: The service, which is started and closed with the application.
        running: Context of what else runs with it.
        summary: What the application does.
    """
    settings, models = service.settings, service.models

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            async with running():
                service.load()
                yield
        finally:
            await anyio.to_thread.run_sync(service.close)

    app = FastAPIOffline(  # FastAPI, whose page of the routes needs no internet
        title="cefito",
        summary=summary,
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
    app.state.access = access = Access(settings)
    app.add_middleware(RequestMiddleware, settings, service.metrics, access)
    app.add_middleware(CorrelationIdMiddleware, validator=None, transformer=clean_id)  # outermost

    async def refuse(request: Request, error: Exception) -> Response:
        content_type = request.headers.get("content-type", "")
        return to_problem(error, models.names, content_type).response()

    for kind in (CefitoError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, refuse)
    return app


def _form(kind: type[BaseModel]) -> dict[str, Any]:
    """The body of an upload, for OpenAPI."""
    parts = {"multipart/form-data": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": parts}}


_Form = TypeVar("_Form", UploadForm, VideoForm)
_Body = TypeVar("_Body", bound=BaseModel)


@asynccontextmanager
async def _parts(
    request: Request, kind: type[_Form], body: type[_Body]
) -> AsyncIterator[tuple[_Form, _Body]]:
    """Read an upload: its form, and the request in it."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise ProblemError("expected multipart/form-data. GET /docs lists its parts.")
    async with request.form(max_files=2, max_fields=3, max_part_size=1 << 18) as parts:
        try:
            form = kind.model_validate(dict(parts))
            asked = body.model_validate(form.request)
        except ValidationError as error:
            raise to_problem(error, {}) from error
        yield form, asked


def _add_plans(app: FastAPI, service: Service) -> None:
    app.add_api_route("/v1/plan", service.plan, methods=["POST"], tags=["plans"])

    @app.post(f"/v1/plan{UPLOAD}", openapi_extra=_form(UploadForm), tags=["plans"])
    async def upload(request: Request) -> PlanAnswer:
        """Plan between two uploaded pictures, or between two seconds of an uploaded video."""
        service.check_upload()  # before the body is read
        async with _parts(request, UploadForm, UploadRequest) as (form, body):
            return await service.upload(request, form, body)


def _add_whole_videos(app: FastAPI, videos: WholeVideos) -> None:
    videos.add_to(app)
    post = partial(app.post, openapi_extra=_form(VideoForm), tags=["videos"])

    @post(f"/v1/recognise{UPLOAD}")
    async def recognise_upload(request: Request) -> TrackAnswer:
        """Recognise the steps of an uploaded video, or of its features."""
        async with _parts(request, VideoForm, RecogniseUploadRequest) as (form, body):
            return await videos.recognised(request, body, form)

    @post(f"/v1/verify{UPLOAD}")
    async def verify_upload(request: Request) -> VerifyAnswer:
        """Recognise and verify the steps of an uploaded video, or of its features."""
        async with _parts(request, VideoForm, VerifyUploadRequest) as (form, body):
            return await videos.verified(request, body, form)


def _add_information(app: FastAPI, service: Service) -> None:
    models = service.models

    @app.get("/v1/model", tags=["models"])
    def model() -> ModelAnswer:
        """List the runs with their tasks and actions, and the limits of the service."""
        return models.describe(service.limits)

    @app.get("/v1/videos", tags=["models"])
    def videos(query: Annotated[VideosRequest, Query()]) -> VideosAnswer:
        """List videos of the opened data sets, with the first steps of their windows."""
        return models.find(query.run, query.horizon).list_videos(query)

    @app.get("/v1/runs/{run:path}/graph", response_class=Response, tags=["models"])
    def graph(
        request: Request,
        run: str,
        horizon: Annotated[int | None, Query(ge=0, le=999_999_999)] = None,
        task: Annotated[str | None, Query(max_length=300, description="All by default.")] = None,
        format: Literal["svg", "json"] | None = None,
    ) -> Response:
        """Show the learned order of a task's steps: SVG, or JSON by `format` or Accept."""
        verifier = models.find(run, horizon).run.own_verifier
        taxonomy = verifier.taxonomy
        chosen = range(len(taxonomy.tasks)) if task is None else [find_task(taxonomy, task)]
        orders = {number: verifier.orders[number] for number in chosen}
        if (format or request.headers.get("accept", "")) in ("json", "application/json"):
            edges = {number: order.edges for number, order in orders.items()}
            optional = {number: order.optional for number, order in orders.items()}
            text = graph_text(edges, taxonomy, "json", optional)
            return Response(text, media_type="application/json")
        return Response(graph_picture(orders, taxonomy), media_type="image/svg+xml")

    @app.get("/health", tags=["monitoring"])
    async def health() -> Health:
        """Whether the process is alive."""
        return Health(status="ok")


def add_monitoring(app: FastAPI, service: Service) -> None:
    """Add the routes of monitors to an application, but /health."""

    @app.get("/ready", tags=["monitoring"])
    async def ready() -> Health:
        """Whether the service accepts requests, and has loaded its encoder of uploads."""
        service.check_ready()
        return Health(status="ready")

    @app.get(METRICS, response_class=Response, tags=["monitoring"])
    def prometheus() -> Response:
        """Prometheus metrics; with several processes, those of each by the label `process`."""
        page = generate_latest(service.collected)
        return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})
