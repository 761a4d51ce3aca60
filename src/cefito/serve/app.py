"""The application: every route of the service."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated

from asgi_correlation_id import CorrelationIdMiddleware, correlation_id
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cefito.errors import CefitoError
from cefito.runtime import pick_device
from cefito.serve.middleware import UPLOAD, Metrics, RequestMiddleware, clean_id, closing
from cefito.serve.models import open_models
from cefito.serve.page.routes import page_router
from cefito.serve.problems import MEDIA_TYPE, ProblemError, possible_problems, to_problem
from cefito.serve.schemas import (
    BatchAnswer,
    BatchRequest,
    Health,
    ModelAnswer,
    PlanAnswer,
    PlanRequest,
    UploadForm,
    VideosAnswer,
)
from cefito.serve.service import Service
from cefito.serve.settings import ServiceSettings

__all__ = ["create_app"]

_OTHER = {
    400: "The body cannot be read as its content type.",
    403: "Sent by a page of another site.",
}


def create_app(settings: ServiceSettings) -> FastAPI:
    """Open the runs and data sets (CefitoError), and make the application that serves them."""
    models = open_models(
        settings.runs,
        settings.datasets,
        device=pick_device(settings.device),
        encoder=settings.encoder,
        weights=settings.weights,
    )
    metrics = Metrics()
    service = Service(settings, models, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        import anyio.to_thread

        service.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(service.close)

    app = FastAPI(
        title="cefito",
        summary="Plans between two observations.",
        version=version("cefito"),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,  # to the host that the client names
        separate_input_output_schemas=False,
    )
    app.state.service = service
    app.add_middleware(RequestMiddleware, settings=settings, metrics=metrics)
    app.add_middleware(CorrelationIdMiddleware, validator=None, transformer=clean_id)  # outermost

    async def refuse(_: Request, error: Exception) -> Response:
        problem = to_problem(error, models.names)
        return Response(
            problem.encoded(),
            status_code=problem.status_code,
            headers=problem.headers,
            media_type=MEDIA_TYPE,
        )

    for kind in (CefitoError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, refuse)
    _add_plans(app, service)
    _add_information(app, service, metrics)
    app.include_router(page_router(models))
    return app


def _add_plans(app: FastAPI, service: Service) -> None:
    problems = possible_problems(
        *("invalid", "expensive", "upload", "no-encoder", "slow", "too-large"),
        *("busy", "not-ready", "deadline"),
    )
    problems |= {status: {**problems[422], "description": _OTHER[status]} for status in _OTHER}

    @app.post("/v1/plan", responses=problems, tags=["plans"])
    async def plan(body: PlanRequest, request: Request) -> PlanAnswer:
        """Plan one query."""
        return await service.plan(request, body)

    @app.post("/v1/plan/batch", responses=problems, tags=["plans"])
    async def batch(body: BatchRequest, request: Request) -> BatchAnswer:
        """Plan several queries: an answer or a problem for each, in their order."""
        answers = await service.batch(request, body.queries)
        return BatchAnswer(
            request_id=correlation_id.get() or "",
            answers=answers,
            milliseconds=round(1e3 * (time.monotonic() - request.state.began), 3),
        )

    parts = {"multipart/form-data": {"schema": UploadForm.model_json_schema()}}

    @app.post(
        UPLOAD,
        responses=problems,
        openapi_extra={"requestBody": {"required": True, "content": parts}},
        tags=["plans"],
    )
    async def upload(request: Request) -> PlanAnswer:
        """Plan between two uploaded pictures, or between two seconds of an uploaded video."""
        service.check_upload()  # before the body is read
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise ProblemError("expected multipart/form-data. GET /docs lists its parts.")
        async with request.form(max_files=2, max_fields=3, max_part_size=1 << 18) as given:
            try:
                form = UploadForm.model_validate(dict(given))
            except ValidationError as error:
                raise to_problem(error, {}) from error
            return await service.upload(request, form)


def _add_information(app: FastAPI, service: Service, metrics: Metrics) -> None:
    models = service.models

    @app.get("/v1/model", responses=possible_problems(), tags=["models"])
    def model() -> ModelAnswer:
        """List the runs with their tasks and actions, and the limits of the service."""
        return models.describe(service.limits)

    @app.get("/v1/videos", responses=possible_problems("invalid"), tags=["models"])
    def videos(
        run: Annotated[str | None, Query(max_length=300, description="Name of the run.")] = None,
        horizon: Annotated[int | None, Query(ge=0, le=999_999_999)] = None,
        task: Annotated[
            str | None, Query(max_length=300, description="Id or name of a task.")
        ] = None,
        split: Annotated[str | None, Query(pattern="^(train|val|test)$")] = None,
        offset: Annotated[int, Query(ge=0, le=999_999_999)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> VideosAnswer:
        """List videos of the opened data sets, with the first steps of their windows."""
        served = models.find(run, horizon)
        return served.list_videos(task=task, split=split, offset=offset, limit=limit)

    @app.get("/health", tags=["monitoring"])
    async def health() -> Health:
        """Whether the process is alive."""
        return Health(status="ok")

    @app.get("/ready", responses={503: possible_problems("not-ready")[503]}, tags=["monitoring"])
    async def ready() -> Health:
        """Whether the service accepts requests."""
        if not service.scheduler.open:
            raise closing()
        return Health(status="ready")

    @app.get(
        "/metrics", response_class=Response, responses=possible_problems(), tags=["monitoring"]
    )
    async def prometheus() -> Response:
        """Prometheus metrics."""
        page = generate_latest(metrics.registry)
        return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})
