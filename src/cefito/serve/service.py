"""What the routes of the service do: prepare, queue, wait, cancel, answer."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import anyio.to_thread
import torch
from anyio import CapacityLimiter
from pydantic import ValidationError
from starlette.requests import Request

from cefito.errors import CefitoError
from cefito.inference.answer import Answer
from cefito.inference.observer import Recipe
from cefito.planners.queries import Queries
from cefito.serve.metrics import Metrics
from cefito.serve.middleware import request_id_of
from cefito.serve.models import Models, Served
from cefito.serve.problems import Problem, ProblemError, of_error
from cefito.serve.requests import PreparedRequest, answered, job_of, prepare, solve
from cefito.serve.scheduler import BusyError, ClosedError, Engine, ExpiredError, Job
from cefito.serve.schemas import PlanAnswer, PlanRequest, UploadRequest
from cefito.serve.settings import ServiceSettings
from cefito.serve.uploads import (
    Decoder,
    EncodingProcess,
    PicturePair,
    Span,
    as_queries,
    kept,
)

__all__ = ["Service", "first_error"]

_PREPARED = 4  # requests that are checked at a time
_GRACE = 1.0  # seconds that a search has to notice that it should stop

Result = TypeVar("Result")


class Service:
    """Runs that can be asked, and everything that answers for them.

    Args:
        settings: What the operator decided.
        models: The opened runs.
        metrics: Where searches are counted.
    """

    def __init__(self, settings: ServiceSettings, models: Models, metrics: Metrics) -> None:
        self.settings, self.limits = settings, settings.limits
        self.models, self.metrics = models, metrics
        limits, threads = self.limits, self.limits.threads
        self.engine = Engine(
            solve,
            workers=limits.workers,
            queue=limits.queue,
            together=limits.together,
            prepare=lambda: torch.set_num_threads(threads),
        )
        metrics.watch(self.engine)
        self.encoding = self._encoding()
        self._uploads = 0
        self._preparing: CapacityLimiter | None = None

    def start(self) -> None:
        """Begin to take requests."""
        self._preparing = CapacityLimiter(_PREPARED)
        self.engine.start()
        if self.encoding is not None:  # so that the first upload waits less
            self.encoding.start().add_done_callback(_warn)

    def close(self) -> None:
        """End what runs, then everything."""
        self.engine.close(self.limits.drain_seconds)
        if self.encoding is not None:
            self.encoding.close()

    async def plan(self, request: Request, body: PlanRequest) -> PlanAnswer:
        """The answer to one query.

        Raises:
            ProblemError: Why there is none.
        """
        asked = await self._aside(lambda: prepare(self.models, self.limits, body))
        return await self._searched(request, asked, body.deadline_seconds)

    async def batch(self, request: Request, queries: Sequence[Any]) -> list[PlanAnswer | Problem]:
        """An answer or a problem for each query.

        Raises:
            ProblemError: There are too many, or the queue has no room for them.
        """
        if len(queries) > self.limits.queries:
            raise ProblemError(
                422,
                "invalid",
                f"{len(queries)} queries: at most {self.limits.queries} are taken in one batch. "
                "Send several.",
                field="queries",
                numbers={"limit": self.limits.queries},
            )
        read = await self._aside(lambda: [self._read(value) for value in queries])
        jobs: list[Job | ProblemError] = []
        for one in read:
            if isinstance(one, ProblemError):
                jobs.append(one)
                continue
            asked, seconds = one
            jobs.append(job_of(asked, self.limits, self._deadline(request, seconds)))
        real = [job for job in jobs if isinstance(job, Job)]
        if real:
            self._submit(real)
        found: list[PlanAnswer | Problem] = []
        try:
            for job in jobs:
                try:
                    if isinstance(job, ProblemError):
                        raise job
                    answer = await self._awaited(request, job)
                    found.append(self._sent(request, job, answer))
                except ProblemError as problem:
                    found.append(
                        Problem.model_validate(problem.document(request_id_of(request.scope)))
                    )
        finally:
            for job in real:
                job.abandoned = True
        return found

    async def upload(
        self,
        request: Request,
        body: UploadRequest,
        files: dict[str, Any],
        span: tuple[float, float] | None,
    ) -> PlanAnswer:
        """The answer to two uploaded pictures, or to two moments of an uploaded video.

        Args:
            request: The request.
            body: What is asked for.
            files: Opened files: "initial" and "goal", or "video".
            span: The two moments in seconds, of a video.

        Raises:
            ProblemError: Why there is none.
        """
        served = self.models.find(body.run, body.horizon)
        encoding = self._encoder_for(served, pictures=span is None)
        if self._uploads >= self.limits.uploads:
            raise ProblemError(
                429,
                "busy",
                f"{self._uploads} uploads wait to be encoded. Try again in a moment.",
                headers={"retry-after": "5"},
            )
        self._uploads += 1
        try:
            key = self._key(served)

            def encoded() -> Queries:
                with kept(files) as paths:
                    upload = (
                        PicturePair(paths["initial"], paths["goal"])
                        if span is None
                        else Span(paths["video"], *span)
                    )
                    return as_queries(encoding((key, upload)), paths)

            observed = await anyio.to_thread.run_sync(encoded)
        finally:
            self._uploads -= 1
        # To encode has a bound of its own; the deadline is for the search.
        request.scope["state"]["due_from"] = time.monotonic()
        asked = await self._aside(lambda: prepare(self.models, self.limits, body, observed))
        return await self._searched(request, asked, body.deadline_seconds)

    def check_upload(self) -> None:
        """Refuse uploads where nothing encodes them, before they are read.

        Raises:
            ProblemError: There is no encoder.
        """
        if self.encoding is None:
            raise ProblemError(
                422,
                "no-encoder",
                "this service has no encoder for uploads. Send observations, or ask its operator "
                "to start it with one.",
            )

    async def _aside(self, work: Callable[[], Result]) -> Result:
        """Done off the event loop, only so many at a time."""
        return await anyio.to_thread.run_sync(work, limiter=self._preparing)

    def _read(self, value: Any) -> tuple[PreparedRequest, float | None] | ProblemError:
        """One query of a batch."""
        try:
            body = PlanRequest.model_validate(value)
        except ValidationError as problem:
            detail, field = first_error(problem.errors(include_input=False, include_url=False))
            return ProblemError(422, "invalid", detail, field=field)
        try:
            return prepare(self.models, self.limits, body), body.deadline_seconds
        except ProblemError as problem:
            return problem

    async def _searched(
        self, request: Request, asked: PreparedRequest, seconds: float | None
    ) -> PlanAnswer:
        job = job_of(asked, self.limits, self._deadline(request, seconds))
        self._submit([job])
        try:
            answer = await self._awaited(request, job)
        finally:
            job.abandoned = True
        return self._sent(request, job, answer)

    def _deadline(self, request: Request, seconds: float | None) -> float:
        limits = self.limits
        wanted = limits.deadline_seconds if seconds is None else seconds
        state = request.scope["state"]
        began: float = state.get("due_from", state["began"])
        return began + min(wanted, limits.longest_seconds)

    def _submit(self, jobs: Sequence[Job]) -> None:
        try:
            self.engine.submit(jobs)
        except BusyError as problem:
            seconds = min(60, max(1, math.ceil(problem.seconds)))
            for job in jobs:
                self._count(job, "busy")
            raise ProblemError(
                429,
                "busy",
                f"{self.engine.waiting} searches wait, and there is room for {self.limits.queue}. "
                f"Try again in {seconds} s.",
                numbers={"waiting": self.engine.waiting, "limit": self.limits.queue},
                headers={"retry-after": str(seconds)},
            ) from problem
        except ClosedError as problem:
            raise _closing() from problem

    async def _awaited(self, request: Request, job: Job) -> Answer:
        """What came of a search; it is stopped where the client goes away or time is up."""
        answer = asyncio.wrap_future(job.future)
        gone = asyncio.ensure_future(_disconnected(request))
        left = max(0.0, job.deadline - time.monotonic()) + _GRACE
        try:
            await asyncio.wait({answer, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and not answer.cancelled():
                return self._checked(job, answer)
            job.abandoned = True
            if gone.done():
                self._count(job, "cancelled")
                raise ProblemError(499, "gone", "the client has gone.")
            self._count(job, "expired")
            raise _expired()
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                answer.cancel()

    def _checked(self, job: Job, future: asyncio.Future[Any]) -> Answer:
        """The answer of a search that has ended, unless it is an error."""
        try:
            answer: Answer = future.result()
        except CefitoError as problem:
            self._count(job, "refused")
            raise of_error(problem, self.models.names) from problem
        except ExpiredError as problem:
            self._count(job, "expired")
            raise _expired() from problem
        except ClosedError as problem:
            raise _closing() from problem
        except Exception:
            self._count(job, "failed")
            raise
        if answer.search.interrupted and not answer.plans:
            self._count(job, "expired")
            raise _expired()
        self._count(job, "answered", answer.evaluated.token_forwards)
        return answer

    def _sent(self, request: Request, job: Job, answer: Answer) -> PlanAnswer:
        asked: PreparedRequest = job.work
        state = request.scope["state"]
        state.setdefault("noted", {}).update(run=asked.served.name, horizon=asked.run.horizon)
        return answered(
            asked, answer, request_id=state["request_id"], began=state["began"], job=job
        )

    def _count(self, job: Job, outcome: str, tokens: int = 0) -> None:
        asked: PreparedRequest = job.work
        self.metrics.searched(asked.served.name, asked.run.horizon, outcome, job=job, tokens=tokens)

    def _encoding(self) -> EncodingProcess | None:
        settings, limits = self.settings, self.limits
        recipes = {
            self._key(served): Recipe.of(served.run) for served in self.models.runs if served.video
        }
        if not recipes:
            return None
        decoder = Decoder(
            recipes,
            encoder=None if settings.encoder == "own" else settings.encoder,
            weights=settings.weights,
            pixels=int(limits.upload_megapixels * 1e6),
        )
        return EncodingProcess(decoder, threads=limits.threads, seconds=limits.upload_seconds)

    def _encoder_for(self, served: Served, *, pictures: bool) -> EncodingProcess:
        self.check_upload()
        assert self.encoding is not None
        if served.pictures if pictures else served.video:
            return self.encoding
        remedy = "a video and its two times" if served.video else "observations"
        raise ProblemError(
            422,
            "no-encoder",
            f"the encoder of the run {served.title} takes no "
            f"{'pictures' if pictures else 'videos'}. Send {remedy}.",
        )

    @staticmethod
    def _key(served: Served) -> str:
        return f"{served.name} {served.run.horizon}"


def _warn(started: Future[Any]) -> None:
    """Say what went wrong; whoever uploads something then is told as well."""
    if not started.cancelled() and (problem := started.exception()) is not None:
        logging.getLogger(__name__).warning("the encoder of uploads: %s", problem)


async def _disconnected(request: Request) -> None:
    """Wait until the client has gone; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _expired() -> ProblemError:
    return ProblemError(
        504,
        "deadline",
        "no plan was found before the deadline. Allow more seconds, search with 'guided', or "
        "consider fewer tasks.",
        field="deadline_seconds",
    )


def _closing() -> ProblemError:
    return ProblemError(
        503,
        "not-ready",
        "the service is ending. Ask another one, or this one when it has begun anew.",
        headers={"retry-after": "10"},
    )


def first_error(errors: Sequence[Any]) -> tuple[str, str | None]:
    """The first of pydantic's errors in a line, and the field that it is about."""
    # Of a choice between kinds, the names of the kinds stand in the place; the kind that was meant
    # is the one that finds fault with the value, not with its type.
    kinds = ("str", "int", "list[float]", "constrained-str", "constrained-int")

    def place_of(error: Any) -> list[str]:
        parts = [str(part) for part in error["loc"] if part != "body"]
        return [part for part in parts if part not in kinds and not part.startswith("list[")]

    parts = place_of(errors[0])
    alike = [error for error in errors if place_of(error) == parts]
    first = next((error for error in alike if not error["type"].endswith("_type")), errors[0])
    field = ".".join(parts)
    message = first["msg"].removeprefix("Value error, ")
    more = len({tuple(place_of(error)) for error in errors}) - 1
    rest = f" ({more} more)" if more > 0 else ""
    place = f"{field[:200]}: " if field else ""
    return f"{place}{message}{rest}. GET /openapi.json says what is expected.", field[:200] or None
