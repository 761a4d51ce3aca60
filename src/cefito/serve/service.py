"""The life of a request: prepare, queue, await, cancel, answer."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from weakref import WeakValueDictionary

import anyio.to_thread
import numpy as np
import torch
from anyio import CapacityLimiter
from numpy.typing import NDArray
from prometheus_client.registry import Collector
from starlette.requests import Request

from cefito.errors import CefitoError
from cefito.inference.answer import Answer, answers
from cefito.inference.observer import ObservationRecipe
from cefito.planners.queries import Queries
from cefito.runtime import return_memory
from cefito.serve.middleware import Metrics, closing
from cefito.serve.models import Models, Served, open_models
from cefito.serve.problems import ProblemError
from cefito.serve.requests import prepare, to_response
from cefito.serve.scheduler import BusyError, ClosedError, ExpiredError, Scheduler, SearchJob
from cefito.serve.schemas import PlanAnswer, PlanRequest, SavedSession, UploadForm, UploadRequest
from cefito.serve.settings import ServiceSettings
from cefito.serve.supervisor import Peers
from cefito.serve.uploads import Decoder, Encoded, EncodingProcess, Upload, kept

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")
Watch = Callable[[], None]
"""Ends a call whose answer nobody waits for: it raises an exception that `Service.call` expects."""

_PREPARED = 2  # requests prepared at a time
_GRACE = 1.0  # seconds that a search has to notice that it should stop


@dataclass(frozen=True)
class _Call:
    """Other work than a search, for a run."""

    served: Served
    function: Callable[[Watch], Any]


def _solve(jobs: Sequence[SearchJob], stop: Callable[[], bool]) -> Sequence[Any]:
    """Do the work of jobs of one kind; a call is alone."""

    def watch() -> None:
        if stop():
            raise ExpiredError

    if isinstance(call := jobs[0].work, _Call):
        return [call.function(watch)]
    return answers([job.work.asked for job in jobs], stop=stop)


class Service:
    """Opened runs, the scheduler of their searches and the process that encodes uploads.

    Args:
        settings: Settings of the service.
        models: The opened runs.
        metrics: What is counted and measured.
    """

    def __init__(self, settings: ServiceSettings, models: Models, metrics: Metrics) -> None:
        limits = settings.limits
        self.settings, self.limits = settings, limits
        # this process among several; None if it is alone
        self.peers = Peers(settings.processes) if settings.processes > 1 else None
        self.models, self.metrics = models, metrics
        self.scheduler = Scheduler(
            _solve,
            workers=limits.workers,
            queue=limits.queue,
            together=limits.together,
            prepare=lambda: torch.set_num_threads(limits.threads),
        )
        metrics.waiting.set_function(lambda: self.scheduler.waiting)
        metrics.running.set_function(lambda: self.scheduler.running)
        self.encoding: EncodingProcess | None = None  # None if no run takes uploads
        self._loading: EncodingProcess | None = None  # that will take its place
        self._recipes: dict[str, ObservationRecipe] = {}  # whose encoders are loaded
        self._texts: frozenset[str] = frozenset()  # names of those that take goals in words
        self.starting: Future[Any] | None = None  # of the encoding process with the service
        self._prepare_encoding(models.runs)
        self._preparing: CapacityLimiter | None = None  # until it is started
        self._reloading = threading.Lock()
        # runs that kept sessions began with, by their digests, while a session follows them
        self._older: WeakValueDictionary[str, Served] = WeakValueDictionary()
        self.uploads = 0  # being encoded or waiting for it

    def start(self) -> None:
        """Accept requests."""
        self._preparing = CapacityLimiter(_PREPARED)  # belongs to the event loop
        self.scheduler.start()

    def load(self) -> None:
        """Load the encoders before the first upload needs them."""
        self.starting = Future()
        if self.encoding is None:
            self.starting.set_result(None)
        else:
            self.starting = self.encoding.start()

    @property
    def collected(self) -> Collector:
        """Metrics, of all processes."""
        return self.peers or self.metrics.registry

    def _prepare_encoding(self, runs: Sequence[Served]) -> bool:
        """Have the encoders of runs loaded; False if the process of a further one cannot start.

        Once the service is started this waits for it. The encoders that there are go on meanwhile.
        """
        settings, limits, texts, further = self.settings, self.limits, self._texts, {}
        for served in runs:
            if served.video:
                recipe = ObservationRecipe.of(served.run)
                name = recipe.digest if served.text else repr(recipe.made_with)
                further[name] = recipe
                texts |= {name} if served.text else set()
        if further.keys() <= self._recipes.keys():
            return True
        decoder = Decoder(
            recipes := self._recipes | further,
            encoder=None if settings.encoder in ("auto", "own") else settings.encoder,
            weights=settings.weights,
            pixels=int(limits.upload_megapixels * 1e6),
            memory=int(limits.upload_memory_mib * 2**20),
            texts=texts,
        )
        encoding = EncodingProcess(decoder, threads=limits.threads, seconds=limits.upload_seconds)
        if self.starting is not None:
            self._loading = encoding
            if encoding.start().exception() is not None:  # which it has logged
                return False
        old, self.encoding, self._loading = self.encoding, encoding, None
        self._recipes, self._texts = recipes, texts
        if old is not None:
            old.retire()
        return True

    def reload(self) -> None:
        """Open runs and data sets anew; what cannot be opened stays as it was, with a warning.

        Searches and sessions that there are go on with the runs that they began with.
        """
        with self._reloading:
            try:
                models = open_models(self.settings, self.models.runs)
            except (CefitoError, OSError) as problem:
                kept = self.models.versions
                logger.warning("all runs are kept as they were, %s: %s", kept, problem)
                return
            if self._prepare_encoding(models.runs):
                self.models.runs, self.models.names = models.runs, models.names
            elif self.scheduler.open:
                logger.warning("all runs are kept as they were, %s", self.models.versions)
        del models
        release()

    def version(self, saved: SavedSession) -> Served:
        """The run that a kept session began with, opened from where it was; else that of its name.

        Raises:
            ProblemError: The first is gone, and there is none of the name.
        """
        for served in (*self.models.runs, *self._older.values()):
            if (served.name, served.digest) == (saved.run, saved.digest):
                return served
        place = Path(saved.place)
        with suppress(CefitoError, OSError), self._reloading:
            there = bool(saved.place) and place.exists()
            settings = self.settings.model_copy(update={"runs": (place,)})
            for opened in open_models(settings).runs if there else ():
                if opened.digest == saved.digest:
                    older = self._older[saved.digest] = replace(opened, name=saved.run)
                    self._prepare_encoding([older])
                    return older
        return self.models.find(saved.run, saved.horizon)

    def close(self) -> None:
        """Stop all searches and the encoding process."""
        self.scheduler.close()
        for encoding in (self.encoding, self._loading):
            if encoding is not None:
                encoding.close()

    async def plan(self, request: Request, body: PlanRequest) -> PlanAnswer:
        """Answer one query."""
        served = self.models.find(body.run, body.horizon, body.steps)
        goal = await self.observed_text(served, body.goal_text)
        return await self._search(request, body, None, goal, request.state.began)

    async def upload(self, request: Request, form: UploadForm, body: UploadRequest) -> PlanAnswer:
        """Answer a query of two uploaded pictures, or of two seconds of an uploaded video."""
        if body.goal_text is not None and form.model_fields_set & {"goal", "end"}:
            detail = "'goal_text' takes the place of 'goal' and 'end'; leave out one."
            raise ProblemError(detail, "goal_text")
        self.check_upload()
        served = self.models.find(body.run, body.horizon, body.steps)
        if not (served.video if form.video else served.pictures):
            instead = "a video and its times" if served.video else "observations"
            detail = f"the run {served.title} takes no such upload. Send {instead}."
            raise ProblemError(detail, kind="no-encoder")
        observed = await self._encoded(served, form.files, start=form.start, end=form.end)
        goal = await self.observed_text(served, body.goal_text)
        # Encoding has a time limit of its own; the deadline is for the search.
        return await self._search(request, body, observed, goal, time.monotonic())

    async def observed_text(self, served: Served, text: str | None) -> NDArray[np.float32] | None:
        """The observation [E] of a goal in words for a run; None without one."""
        if text is None:
            return None
        if self.encoding is None or not served.text:
            detail = (
                f"the run {served.title} takes no goal in words; it needs features of CLIP's "
                "projected layer, and a service with their encoder. Send an observation."
            )
            raise ProblemError(detail, "goal_text", kind="no-encoder")
        goal: NDArray[np.float32] = (await self._encoded(served, {}, text=text)).goal[0]
        return goal

    async def observed_picture(self, served: Served, picture: bytes) -> NDArray[np.float32]:
        """The row [D] of a picture for a run's recogniser."""
        width = served.run.own_recogniser.width
        if not served.pictures:
            detail = f"the run {served.title} takes no pictures here; no encoder of its features is"
            remedy = "Send rows, or start the service with --encoder."
            raise ProblemError(f"{detail} open. {remedy}", kind="no-encoder")
        encoded = await self._encoded(served, {"picture": BytesIO(picture)})
        row: NDArray[np.float32] = encoded.initial[0]
        if len(row) != width:
            detail = f"the encoder gives {len(row)} numbers a picture; the run {served.title} reads"
            remedy = "Start the service with the encoder of its features."
            raise ProblemError(f"{detail} {width}. {remedy}", kind="no-encoder")
        return row

    async def observed_film(self, served: Served, film: BinaryIO) -> NDArray[np.float32]:
        """The rows [n, D] of a whole film for a run's recogniser, one a second."""
        self.check_upload()
        if not served.video:
            detail = f"the run {served.title} takes no films here; no encoder of its features is"
            raise ProblemError(f"{detail} open. Send features.", kind="no-encoder")
        rows: NDArray[np.float32] = await self._encoded(served, {"video": film}, whole=True)
        return rows

    async def _encoded(self, served: Served, files: Mapping[str, BinaryIO], **what: Any) -> Any:
        """What the encoding process makes of an upload, unless too many wait for it."""
        encoding = self.check_upload()
        if self.uploads >= self.limits.uploads:
            detail = f"{self.uploads} uploads wait to be encoded. Try again in a moment."
            raise ProblemError(detail, headers={"retry-after": "5"}, kind="busy")

        def encode() -> Encoded:
            with kept(files) as paths:
                return encoding(Upload(ObservationRecipe.of(served.run), paths, **what), paths)

        self.uploads += 1
        try:
            return await anyio.to_thread.run_sync(encode)
        finally:
            self.uploads -= 1

    def check_upload(self) -> EncodingProcess:
        """The encoding process, once its encoders are loaded."""
        if self.encoding is None:
            detail = "this service has no encoder for uploads. Send observations."
            raise ProblemError(detail, kind="no-encoder")
        self.check_loaded()
        return self.encoding

    def check_loaded(self) -> None:
        """Refuse to go on while the encoders of uploads are loaded."""
        if self.encoding is not None and self.encoding.loading:
            detail = "loading the encoder of uploads. Try again in a moment."
            raise ProblemError(detail, headers={"retry-after": "2"}, kind="not-ready")

    def check_ready(self) -> None:
        """Refuse until the service accepts requests and the encoders were loaded once."""
        if not self.scheduler.open:
            raise closing()
        if self.starting is None or not self.starting.done():
            self.check_loaded()

    def _deadline(self, began: float, seconds: float | None = None) -> float:
        return began + min(seconds or self.limits.deadline_seconds, self.limits.longest_seconds)

    async def _search(
        self,
        request: Request,
        body: UploadRequest,
        observed: Queries | None,
        goal: NDArray[np.float32] | None,
        began: float,
    ) -> PlanAnswer:
        work = partial(prepare, self.models, self.limits, body, observed, goal)
        prepared = await anyio.to_thread.run_sync(work, limiter=self._preparing)
        job = SearchJob(
            work=prepared,
            kind=prepared.kind,
            expensive=(prepared.operations or 0) > self.limits.cheap_gflop * 1e9,
            deadline=self._deadline(began, body.deadline_seconds),
            client=request.state.client,
        )
        answer: Answer = await self._finished(request, job)
        if answer.search.interrupted and not answer.plans:
            self._count(job, "expired")
            raise _expired(job)
        self._count(job, "answered", answer.evaluated.token_forwards)
        return to_response(job, answer, request.state.began)

    async def call(
        self,
        request: Request,
        served: Served,
        function: Callable[[Watch], _Value],
        *,
        alone: str | None = None,
        expensive: bool = False,
        seconds: float | None = None,
    ) -> _Value:
        """The value of a function, run as a search is; calls of the same `alone` never overlap.

        The function calls what it is given now and then, so that it ends with its request.

        Args:
            request: The HTTP request; if its client leaves, the function is stopped.
            served: Run that the function uses.
            function: Takes a function that it calls now and then.
            alone: Name of calls that never overlap.
            expensive: Whether it takes a place of expensive searches.
            seconds: From now to its deadline; that of the limits by default.
        """
        context = copy_context()  # has the request's id
        job = SearchJob(
            work=_Call(served, lambda watch: context.run(function, watch)),
            kind=None,
            expensive=expensive,
            deadline=self._deadline(time.monotonic(), seconds),
            client=request.state.client,
            alone=alone,
        )
        value: _Value = await self._finished(request, job)
        self._count(job, "answered")
        return value

    async def _finished(self, request: Request, job: SearchJob) -> Any:
        """Run a search, and stop it if the client disconnects or the deadline passes."""
        gone = asyncio.ensure_future(_disconnected(request))
        future = asyncio.wrap_future(job.future)
        left = max(0.0, job.deadline - time.monotonic()) + _GRACE
        try:
            self.scheduler.submit(job)
            await asyncio.wait({future, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if future.done() and not future.cancelled():
                return future.result()
            if not gone.done():
                raise ExpiredError
            self._count(job, "cancelled")
        except BusyError as problem:
            self._count(job, "busy")
            raise self._busy(problem.seconds) from problem
        except ClosedError as problem:
            raise closing() from problem
        except ExpiredError as problem:
            self._count(job, "expired")
            raise _expired(job) from problem
        except Exception as problem:
            refused = isinstance(problem, CefitoError | ProblemError)
            self._count(job, "refused" if refused else "failed")  # the middleware logs a traceback
            raise
        finally:
            job.abandoned = True
            gone.cancel()
            future.cancel()
        raise ProblemError(kind="gone")

    def _busy(self, seconds: float) -> ProblemError:
        """The queue is full for so many seconds."""
        after, waiting = str(min(60, max(1, math.ceil(seconds)))), self.scheduler.waiting
        limit, headers = self.limits.queue, {"retry-after": after}
        detail = f"{waiting} searches wait in a queue of {limit}. Try again in {after} s."
        return ProblemError(detail, headers=headers, waiting=waiting, limit=limit, kind="busy")

    def _count(self, job: SearchJob, outcome: str, tokens: int = 0) -> None:
        served: Served = job.work.served
        self.metrics.searched(served.name, served.run.horizon, outcome, job, tokens)


def open_service(settings: ServiceSettings) -> Service:
    """Open the runs and data sets of a service (CefitoError)."""
    if settings.processes > 1:
        torch.set_num_threads(1)  # a forked process cannot use the threads of its parent
    models = open_models(settings)
    return Service(settings, models, Metrics())


def release() -> None:
    """Collect versions of runs that nothing uses, which hold cycles, and return their memory."""
    gc.collect()
    return_memory()


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _expired(job: SearchJob) -> ProblemError:
    if isinstance(job.work, _Call):  # whose request sets no deadline and no search
        late = "the service is too busy to answer before its deadline. Try again later."
        return ProblemError(late, kind="deadline")
    return ProblemError(
        "no plan was found before the deadline. Allow more seconds, search with 'guided', or "
        "search fewer tasks.",
        "deadline_seconds",
        kind="deadline",
    )
