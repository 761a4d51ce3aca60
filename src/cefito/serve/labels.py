"""The back end of Label Studio: steps proposed for films, and runs that learn from corrections.

Its protocol: GET / and /health, POST /setup, /predict, /webhook and /train.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import pickle
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import anyio
import anyio.to_thread
import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, SecretStr
from starlette.requests import Request

from cefito.data.vocabulary import find_task
from cefito.errors import CefitoError, ConfigError, RunError, explained
from cefito.executors.base import Done, Failed, Outcome
from cefito.executors.processes import WorkerProcess
from cefito.inference.next_films import FilmToLabel, LabelledFilms, ordered
from cefito.inference.recordings import Recording
from cefito.runs.corrected import CorrectedFilms, Retraining
from cefito.runs.run import Run
from cefito.serve.app import add_monitoring, scaffold
from cefito.serve.problems import ProblemError
from cefito.serve.service import Service, Watch, open_service
from cefito.serve.settings import ServiceSettings
from cefito.serve.studio import Studio, fetch_film
from cefito.settings import Record
from cefito.tracks import Track
from cefito.tracks.formats.label_studio import Tags, prediction

logger = logging.getLogger(__name__)

_ROUND = 0.2  # seconds between two looks at a training
_LONGEST = 3600.0  # seconds between two attempts at what failed
_KEPT = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
_PASSING = ("busy", "deadline", "gone", "not-ready")  # problems that are not of a film
ProjectId = Annotated[str, AfterValidator(lambda sent: sent.partition(".")[0])]


class _Sent(Record):
    """What Label Studio sends; further entries are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class LabelTask(_Sent):
    """A task: a film to label."""

    id: int | str
    data: dict[str, Any]
    annotations: tuple[dict[str, Any], ...] = ()


class SetupRequest(_Sent):
    """A project that connects."""

    project: ProjectId = ""
    configuration: str = Field(alias="schema")
    hostname: str = ""
    access_token: SecretStr = SecretStr("")


class PredictRequest(_Sent):
    """Tasks of a project to propose steps for."""

    tasks: list[LabelTask] = Field(min_length=1, max_length=10_000)
    label_config: str
    project: ProjectId = ""


class LabelProject(_Sent):
    """The project of an event."""

    id: int
    label_config: str


class LabelEvent(_Sent):
    """Something that happened in a project."""

    action: str
    project: LabelProject | None = None
    task: LabelTask | tuple[LabelTask, ...] = ()
    tasks: tuple[dict[str, Any], ...] = ()
    annotation: dict[str, Any] | tuple[dict[str, Any], ...] = ()
    annotations: tuple[dict[str, Any], ...] = ()


class TrainRequest(_Sent):
    """All annotated tasks of a project, to learn from now."""

    annotations: tuple[LabelTask, ...] = ()
    label_config: str
    project: ProjectId = ""


class LabelStatus(Record):
    """What the back end does."""

    model_config = ConfigDict(protected_namespaces=())

    status: str = "UP"
    model_class: str = "cefito"
    model_version: str = Field(description="In its proposals; it changes with each retraining.")
    corrected: int = Field(description="Films that were corrected.")
    learned: int = Field(description="Films of them that the newest data set has.")
    training: bool = Field(description="Whether it learns now.")
    failed: str = Field(
        description="Why the last retraining failed, or a correction could not be written down."
    )


class Labels:
    """Answers to Label Studio, and the retraining.

    Args:
        service: Service of the run that proposes steps.
        films: The corrected films.
        every: Number of newly corrected films after which a retraining begins; 0 for never.
        studio: The Label Studio server; by default each project names its own when it connects.
        again: Seconds after which what failed is tried again; each time twice as many.
    """

    def __init__(
        self,
        service: Service,
        films: CorrectedFilms,
        *,
        every: int,
        studio: Studio | None,
        again: float = 60.0,
    ) -> None:
        self._service, self._films, self._every, self._again = service, films, every, again
        self._studio, self._studios = studio, dict[str, Studio]()
        self._name = films.start.folder.resolve().name
        self._training, self._failed, self._version = False, "", films.version
        self._asked = False  # whether a retraining was asked for
        self._waiting = deque[Callable[[], None]]()  # changes that could not be written down
        self._changing, self._unwritten = threading.Lock(), ""  # why they could not
        self._compared: tuple[Run, LabelledFilms | None] | None = None  # films of the run
        self._stopped = threading.Event()
        self._wake = asyncio.Event()

    @property
    def version(self) -> str:
        """Name of the version that proposes steps."""
        return f"cefito {self._name} v{self._version}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Retrain beside the service; what is not finished goes on when it begins anew."""
        self._wake.set()
        task = asyncio.create_task(self._retrain())
        try:
            yield
        finally:
            self._stopped.set()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def status(self) -> LabelStatus:
        """Whether it is alive, which version proposes steps, and whether it learns."""
        return LabelStatus(
            model_version=self.version,
            corrected=len(self._films.corrected),
            learned=len(self._films.learned),
            training=self._training,
            failed=self._failed or self._unwritten,
        )

    async def setup(self, body: SetupRequest) -> dict[str, str]:
        """Connect a project: its labels must name steps of the run."""
        tags = Tags.of(body.configuration)
        names = [action.name for action in self._service.models.runs[0].run.taxonomy.actions]
        if not any(tags.label(name) for name in names):
            steps = ", ".join(names[:5])
            problem = f"no label is the name of a step, such as {steps}. Name labels like steps."
            raise ProblemError(problem, "schema")
        token = body.access_token
        if body.hostname.startswith(("http://", "https://")) and token.get_secret_value():
            self._studios[body.project] = Studio(address=body.hostname, token=token)
        return {"model_version": self.version}

    async def predict(self, request: Request, body: PredictRequest) -> dict[str, Any]:
        """Propose the steps of films; films that cannot be read get no proposal."""
        tags, results = Tags.of(body.label_config), list[dict[str, Any] | list[Any]]()
        version, problems = self.version, list[CefitoError | ProblemError]()
        for task in body.tasks:
            try:
                film = await self._recognised(request, task, tags, body.project)
            except (CefitoError, ProblemError) as problem:
                if isinstance(problem, ProblemError) and problem.kind in _PASSING:
                    raise
                problems.append(problem)
                logger.warning("no proposal for task %s: %s", task.id, problem)
                results.append([])  # no prediction, so that it is asked for again
                continue
            asked: Any = {"rate": tags.rate(task.data), "version": version}
            results.append(prediction(film[0].steps, tags, score=1 - film[1], **asked))
        if len(problems) == len(body.tasks):
            raise problems[0]
        return {"results": results, "model_version": version}

    async def webhook(self, body: LabelEvent) -> dict[str, Any]:
        """Write down what was corrected, before the answer."""
        if body.action in _KEPT and body.project is not None:
            tasks = body.task if isinstance(body.task, tuple) else [body.task]
            made = body.annotation if isinstance(body.annotation, tuple) else [body.annotation]
            if len(tasks) != len(made):
                raise ProblemError(f"{len(made)} annotations of {len(tasks)} tasks.", "annotation")
            pairs = list(zip(tasks, made, strict=True))
            await self._keep(str(body.project.id), pairs, body.project.label_config)
        elif body.action in ("ANNOTATIONS_DELETED", "TASKS_DELETED"):
            annotations, films = (
                {entry["id"] for entry in deleted if isinstance(entry.get("id"), int)}
                for deleted in (body.annotations, body.tasks)
            )
            await self._changed(partial(self._films.remove, annotations, films))
        elif body.action == "START_TRAINING" and body.project is not None:
            return await self._train(str(body.project.id), body.project.label_config, ())
        return {"status": "ok", "corrected": len(self._films.corrected)}

    async def train(self, body: TrainRequest) -> dict[str, Any]:
        """Learn from all that was corrected."""
        return await self._train(body.project, body.label_config, body.annotations)

    async def _train(
        self, project: str, configuration: str, tasks: Sequence[LabelTask]
    ) -> dict[str, Any]:
        """Keep annotated tasks, those of the server if none are given, and retrain."""
        studio = self._studio_of(project)
        if not tasks and studio is not None:
            sent = await anyio.to_thread.run_sync(studio.annotated, project)
            with explained("tasks of Label Studio", "not as it writes them", "Check its version."):
                tasks = [LabelTask.model_validate(task) for task in sent]
        pairs = [(task, annotation) for task in tasks for annotation in task.annotations]
        self._asked = True
        await self._keep(project, pairs, configuration)
        return {"status": "ok", "corrected": len(self._films.corrected)}

    async def _keep(
        self, project: str, pairs: Sequence[tuple[LabelTask, dict[str, Any]]], configuration: str
    ) -> None:
        tags, changes = Tags.of(configuration), list[Callable[[], None]]()
        for task, annotation in pairs:
            film = task.model_dump()
            try:
                json.dumps([film, annotation], ensure_ascii=False, allow_nan=False).encode()
            except ValueError as problem:
                detail = f"task {task.id}: holds what JSON cannot ({problem})."
                raise ProblemError(detail, "annotation") from problem
            changes.append(partial(self._films.keep, project, film, annotation, tags))
        await self._changed(*changes)

    async def _changed(self, *changes: Callable[[], None]) -> None:
        """Write changes of corrected films down; on a full disk they wait until there is space."""
        try:
            await anyio.to_thread.run_sync(self._write, changes)
        except RunError as problem:
            waits = f"{problem} The correction is written down as soon as there is space."
            raise ProblemError(waits, kind="not-ready") from problem
        finally:
            self._wake.set()

    def _write(self, changes: Sequence[Callable[[], None]] = ()) -> None:
        """Write changes down, after those that wait."""
        with self._changing:
            self._waiting.extend(changes)
            while self._waiting:
                change = self._waiting.popleft()
                try:
                    change()
                except RunError as problem:
                    self._waiting.appendleft(change)
                    self._unwritten = str(problem)
                    raise
            self._unwritten = ""

    def _studio_of(self, project: str) -> Studio | None:
        return self._studio or self._studios.get(project)

    async def _recognised(
        self, request: Request, task: LabelTask, tags: Tags, project: str
    ) -> tuple[Track, float]:
        """Recognise the steps of a task's film, and say how much its labels are to help."""
        address = task.data.get(tags.entry)
        if not isinstance(address, str):
            detail = f"task {task.id}: its data have no address of a film in '{tags.entry}'."
            raise ProblemError(detail, "tasks")
        rows = await self._rows(address, self._studio_of(project))
        if await request.is_disconnected():  # a quick search may end before it is noticed
            raise ProblemError(kind="gone")
        served, name = self._service.models.runs[0], task.data.get("task")

        def call(_watch: Watch) -> tuple[Track, float]:
            known, run, compared = None, served.run, self._compared
            if compared is None or compared[0] is not run:
                self._compared = compared = run, LabelledFilms.of_run(run)
            labelled = compared[1]
            with suppress(ConfigError):  # a task that is new to the run is recognised
                known = find_task(run.taxonomy, name) if isinstance(name, str) else None
            recording = Recording(address, address, rows, 1.0)
            recognition = recording.recognition(run, task=known)
            ((film, facts),) = ordered([FilmToLabel.of(recording, recognition, labelled)], labelled)
            return film.track, facts.help

        return await self._service.call(request, served, call, expensive=True)

    async def _rows(self, address: str, studio: Studio | None) -> NDArray[np.float32]:
        """Return the rows [n, D] of a film: those that are kept, or it is encoded."""
        most = self._service.limits.upload_bytes
        with TemporaryDirectory(prefix="cefito-") as folder:
            path = Path(folder) / "film"

            def fetched() -> tuple[str, NDArray[np.float32] | None]:
                digest = fetch_film(address, path, studio=studio, most=most)
                return digest, self._films.rows(digest)

            digest, rows = await anyio.to_thread.run_sync(fetched)
            encoded = None
            if rows is None:
                while self._service.encoding is not None and self._service.encoding.loading:
                    await asyncio.sleep(_ROUND)
                with path.open("rb") as film:
                    served = self._service.models.runs[0]
                    rows = encoded = await self._service.observed_film(served, film)
            try:
                await anyio.to_thread.run_sync(self._films.keep_rows, address, digest, encoded)
            except RunError as problem:  # a full disk: the film is encoded again next time
                logger.warning("rows of a film are not kept: %s", problem)
            return rows

    async def _retrain(self) -> None:
        """Train a version whenever enough films were corrected, or one is not finished.

        What failed is tried again after a while.
        """
        failed, at, pause = None, math.inf, self._again  # failed: the version
        while True:
            with anyio.CancelScope(deadline=at):
                await self._wake.wait()
            self._wake.clear()
            late = anyio.current_time() >= at
            with suppress(CefitoError):
                await anyio.to_thread.run_sync(self._write)
            films, number = self._films, self._films.unfinished
            asked, self._asked = self._asked or late, False
            due = films.new > 0 and (asked or 0 < self._every <= films.new)
            if number == failed and (not asked or (due and not late)):
                number = None  # it waits, or more films take its place
            if number is not None or due:
                self._training, self._failed = True, ""
                try:
                    number = await self._made() if number is None else number
                    await self._trained(number)
                except Exception as problem:  # the back end goes on with the version before
                    failed, self._failed = number, str(problem)
                    defect = None if isinstance(problem, CefitoError | OSError) else problem
                    logger.warning("the retraining failed: %s", problem, exc_info=defect)
                finally:
                    self._training = False
            elif late:
                self._failed = ""  # what failed is no longer to be learned
            if not (self._failed or self._unwritten):
                at, pause = math.inf, self._again
                if films.new >= self._every > 0:
                    self._wake.set()
            elif late or at == math.inf:
                at, pause = anyio.current_time() + pause, min(2 * pause, _LONGEST)

    async def _made(self) -> int:
        """Make the data set of a new version; films that nobody has opened are encoded."""
        problems = dict[str, str]()
        for address, project in self._films.unread.items():
            try:
                await self._rows(address, self._studio_of(project))
            except (CefitoError, ProblemError) as problem:
                problems[address] = str(problem)
        return await anyio.to_thread.run_sync(self._films.prepare, problems)

    async def _trained(self, number: int) -> None:
        """Train a version in a process of its own, and let it propose steps."""
        function = Retraining(self._films.folder, self._films.start.folder)
        outcome = await anyio.to_thread.run_sync(
            _in_process, function, number, self._stopped, abandon_on_cancel=True
        )
        if not isinstance(outcome, Done):
            raise RunError(getattr(outcome, "error", "its process was ended"))
        service, run = self._service, self._films.run(number)
        service.settings = service.settings.model_copy(update={"runs": (run,)})
        await anyio.to_thread.run_sync(service.reload)
        self._version = number
        await anyio.to_thread.run_sync(self._films.clear)
        logger.warning("retrained on %d films: %s", len(self._films.learned), self.version)


def _in_process(function: Retraining, number: int, stopped: threading.Event) -> Outcome[None]:
    """Train in another process, which ends with this one, or once it is stopped."""
    worker = WorkerProcess(1)
    try:
        worker.connection.recv_bytes()  # that it is ready
        for message in (function, number):
            worker.connection.send_bytes(ForkingPickler.dumps(message))
        while not worker.connection.poll(_ROUND):
            if stopped.is_set():
                return Failed("the service was ended")
        outcome: Outcome[None] = pickle.loads(worker.connection.recv_bytes())
        return outcome
    except (EOFError, OSError):
        return Failed("its process was ended")
    finally:
        worker.end(patience=0)


def create_label_app(settings: ServiceSettings, films: CorrectedFilms, **how: Any) -> FastAPI:
    """Make the application of the back end.

    Args:
        settings: Settings of the service; its run is that of the newest version.
        films: The corrected films.
        how: Other arguments of `Labels`.

    Raises:
        ConfigError: The run encodes no films.
        RunError: It recognises no steps, or cannot be opened.
    """
    if films.version:
        settings = settings.model_copy(update={"runs": (films.run(films.version),)})
    service = open_service(settings)
    _ = service.models.runs[0].run.own_recogniser  # refuses a run without one
    labels = Labels(service, films, **how)
    app = scaffold(service, labels.running, summary="Steps proposed in Label Studio.")
    for path in ("/", "/health"):
        app.add_api_route(path, labels.status, methods=["GET"], tags=["monitoring"])
    for function in (labels.setup, labels.predict, labels.webhook, labels.train):
        app.add_api_route(f"/{function.__name__}", function, methods=["POST"], tags=["labels"])
    add_monitoring(app, service)
    return app
