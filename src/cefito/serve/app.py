"""The application: every route of the service."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cefito.errors import CefitoError
from cefito.runtime import pick_device
from cefito.serve import docs
from cefito.serve.describe import described, videos_of
from cefito.serve.metrics import CONTENT_TYPE_LATEST, Metrics
from cefito.serve.middleware import RequestMiddleware, problem_bytes, request_id_of
from cefito.serve.models import open_models
from cefito.serve.page.routes import page_router
from cefito.serve.problems import MEDIA_TYPE, Problem, ProblemError, of_error
from cefito.serve.schemas import (
    BatchAnswer,
    BatchRequest,
    Health,
    ModelAnswer,
    PlanAnswer,
    PlanRequest,
    UploadRequest,
    VideosAnswer,
)
from cefito.serve.service import Service, first_error
from cefito.serve.settings import ServiceSettings

__all__ = ["create_app"]

UPLOAD = "/v1/plan/upload"
_FIELDS = ("request", "start", "end")
_KINDS = {
    400: "The body cannot be read as what it says that it is.",
    401: "No valid token.",
    403: "Asked by a page of another site.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    421: "Called by a name that is not the service's own.",
    422: "The request cannot be answered as it is.",
    429: "The queue is full; Retry-After says when to try again.",
    503: "The service takes no requests now.",
    504: "No plan was found before the deadline.",
}


def create_app(settings: ServiceSettings) -> FastAPI:
    """Open the runs and data sets, and make the application that answers for them.

    Raises:
        CefitoError: A run, data set or encoder that cannot be used.
    """
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
        separate_input_output_schemas=False,
    )
    app.state.service = service
    limits, token = settings.limits, settings.token
    app.add_middleware(
        RequestMiddleware,
        metrics=metrics,
        body_bytes=int(limits.body_mib * 2**20),
        upload_bytes=int(limits.upload_mib * 2**20),
        receive_seconds=limits.receive_seconds,
        token=None if token is None else token.get_secret_value(),
        hosts=settings.hosts,
        uploads=(UPLOAD,),
    )
    _handle_errors(app, service)
    _add_plans(app, service)
    _add_models(app, service)
    _add_watching(app, service)
    app.include_router(docs.router)
    app.include_router(page_router(models))
    return app


def _responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for the OpenAPI document."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        code: {"description": _KINDS[code], "model": Problem, "content": {MEDIA_TYPE: schema}}
        for code in (401, 421, *codes)
    }


_SEARCHING = _responses(400, 403, 408, 413, 422, 429, 503, 504)


def _handle_errors(app: FastAPI, service: Service) -> None:
    """Have every error answered by a problem document."""

    def answer(request: Request, refused: ProblemError) -> Response:
        return Response(
            problem_bytes(refused, request_id_of(request.scope)),
            status_code=refused.status,
            headers=refused.headers,
            media_type=MEDIA_TYPE,
        )

    async def refused(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, ProblemError)
        return answer(request, problem)

    async def of_library(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, CefitoError)
        return answer(request, of_error(problem, service.models.names))

    async def invalid(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, RequestValidationError)
        detail, field = first_error(problem.errors())
        return answer(request, ProblemError(422, "invalid", detail, field=field))

    async def by_status(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        limits, upload = service.limits, request.url.path == UPLOAD
        most = int((limits.upload_mib if upload else limits.body_mib) * 2**20)
        refused = {
            400: ProblemError(
                400, "invalid", "the body cannot be read as what it says that it is."
            ),
            404: ProblemError(
                404, "not-found", "there is nothing here. GET /docs shows what there is."
            ),
            405: ProblemError(
                405, "not-found", "not by this method. GET /docs shows what there is."
            ),
            408: ProblemError(
                408,
                "slow",
                f"the body did not arrive within {limits.receive_seconds:g} seconds. Send it "
                "faster, or less.",
            ),
            413: ProblemError(
                413,
                "too-large",
                f"the body is larger than {most:,} bytes. Send less at a time.",
                numbers={"limit": most},
            ),
        }.get(
            problem.status_code, ProblemError(problem.status_code, "invalid", str(problem.detail))
        )
        refused.headers.update(problem.headers or {})
        return answer(request, refused)

    app.add_exception_handler(ProblemError, refused)
    app.add_exception_handler(CefitoError, of_library)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, by_status)


def _add_plans(app: FastAPI, service: Service) -> None:
    @app.post("/v1/plan", responses=_SEARCHING, tags=["plans"])
    async def plan(body: PlanRequest, request: Request) -> PlanAnswer:
        """The best plans between two observations."""
        return await service.plan(request, body)

    @app.post("/v1/plan/batch", responses=_SEARCHING, tags=["plans"])
    async def batch(body: BatchRequest, request: Request) -> BatchAnswer:
        """Several queries at once: an answer or a problem for each, in their order."""
        answers = await service.batch(request, body.queries)
        state = request.scope["state"]
        return BatchAnswer(
            request_id=state["request_id"],
            answers=answers,
            milliseconds=round(1e3 * (time.monotonic() - state["began"]), 3),
        )

    @app.post(
        UPLOAD,
        responses=_SEARCHING,
        openapi_extra={"requestBody": _upload_body()},
        tags=["plans"],
    )
    async def upload(request: Request) -> PlanAnswer:
        """The best plans between two uploaded pictures, or two moments of an uploaded video."""
        service.check_upload()
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise ProblemError(
                422, "invalid", "expected multipart/form-data. GET /docs shows its parts."
            )
        async with request.form(
            max_files=2, max_fields=len(_FIELDS), max_part_size=1 << 18
        ) as form:
            body, files, span = _read_form(dict(form))
            return await service.upload(request, body, files, span)


def _read_form(
    form: dict[str, Any],
) -> tuple[UploadRequest, dict[str, Any], tuple[float, float] | None]:
    """What an upload asks for, its files, and the two moments of a video."""
    files = {name: part.file for name, part in form.items() if isinstance(part, UploadFile)}
    texts = {name: part for name, part in form.items() if isinstance(part, str)}
    strange = set(texts) - set(_FIELDS)
    if strange or set(files) not in ({"initial", "goal"}, {"video"}):
        raise ProblemError(
            422,
            "invalid",
            "expected the files 'initial' and 'goal', or 'video' with 'start' and 'end', and "
            f"'request' if you like; found {', '.join(sorted(map(repr, form))) or 'nothing'}.",
        )
    try:
        body = UploadRequest.model_validate_json(texts.get("request", "{}"))
    except ValidationError as problem:
        detail, field = first_error(problem.errors(include_input=False, include_url=False))
        raise ProblemError(422, "invalid", detail, field=field) from problem
    if "video" not in files:
        if "start" in texts or "end" in texts:
            raise ProblemError(422, "invalid", "'start' and 'end' are for a video. Leave them out.")
        return body, files, None
    return body, files, (_seconds(texts, "start"), _seconds(texts, "end"))


def _seconds(texts: dict[str, str], name: str) -> float:
    try:
        value = float(texts.get(name, ""))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise ProblemError(
            422, "invalid", f"'{name}': expected a second of the video, such as 12.5.", field=name
        )
    return value


def _upload_body() -> dict[str, Any]:
    """What an upload is made of, for the OpenAPI document."""
    file = {"type": "string", "format": "binary"}
    seconds = {"type": "number", "minimum": 0, "maximum": 1e6}
    return {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "initial": {**file, "description": "Picture before the first step."},
                        "goal": {**file, "description": "Picture after the last step."},
                        "video": {**file, "description": "A video, instead of the pictures."},
                        "start": {**seconds, "description": "Second of the first step's begin."},
                        "end": {**seconds, "description": "Second of the last step's end."},
                        "request": {
                            "type": "string",
                            "description": "JSON of what else is asked for: the fields of "
                            "PlanRequest without 'observations' and 'video'.",
                        },
                    },
                }
            }
        },
    }


def _add_models(app: FastAPI, service: Service) -> None:
    @app.get("/v1/model", responses=_responses(), tags=["models"])
    def model() -> ModelAnswer:
        """The runs with their tasks and actions, and what the service does at most."""
        return described(service)

    @app.get("/v1/videos", responses=_responses(422), tags=["models"])
    def videos(
        run: Annotated[str | None, Query(max_length=300)] = None,
        horizon: Annotated[int | None, Query(ge=0, le=999_999_999)] = None,
        task: Annotated[
            str | None, Query(max_length=300, description="Id or name of a task.")
        ] = None,
        split: Annotated[str | None, Query(pattern="^(train|val|test)$")] = None,
        offset: Annotated[int, Query(ge=0, le=999_999_999)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> VideosAnswer:
        """Videos of the opened data sets, with the steps where windows may begin."""
        served = service.models.find(run, horizon)
        return videos_of(served, task=task, split=split, offset=offset, limit=limit)


def _add_watching(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["watching"])
    async def health() -> Health:
        """That the process is there."""
        return Health(status="ok")

    @app.get("/ready", responses={503: _responses(503)[503]}, tags=["watching"])
    async def ready() -> Health:
        """That it takes requests."""
        if not service.engine.open:
            raise ProblemError(
                503,
                "not-ready",
                "the service takes no requests now.",
                headers={"retry-after": "10"},
            )
        return Health(status="ready")

    @app.get("/metrics", response_class=Response, responses=_responses(), tags=["watching"])
    async def metrics() -> Response:
        """What Prometheus gathers."""
        return Response(service.metrics.page(), headers={"content-type": CONTENT_TYPE_LATEST})
