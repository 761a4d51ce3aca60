"""The pages at `/` and `/session`, and frames and films of videos."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Query
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from cefito.data.annotations import Video
from cefito.data.vocabulary import nfc
from cefito.encoders.frames import thumbnails
from cefito.errors import CefitoError
from cefito.report.frames import EACH, VideoFiles, find_video_files
from cefito.runs.run import Run
from cefito.search import constraints
from cefito.serve.models import Models, Served
from cefito.serve.problems import ProblemError

_KEPT = 512  # frames in memory, each of at most `_MOST` bytes
_MOST = 2 * EACH
_SIDE = 256  # pixels of a frame's longer side
_LANGUAGES = "en", "de", "es", "fr", "zh", "ja"
_COOKIE = "cefito-language"
# by page, what the numbers on it mean
_NUMBERS = {
    "plan": "place probability energy task length videos second gap milliseconds tokens sequences",
    "session": "probability task length next inferred mistake videos second",
}
_MOST_ACCEPTED = 50  # languages of a browser that are read
_INPUT = re.compile(r"([^{}]*)\{(\d)\}([^{}]*$)?")  # with the words around it
_INPUT_PLACE = re.compile(r"\{\d\}")

Text = Annotated[str, Query(max_length=300)]
Whole = Annotated[int, Query(ge=0, le=999_999_999)]


def page_router(models: Models) -> APIRouter:
    """The routes of the pages of a service with these runs and data sets."""
    router = APIRouter(include_in_schema=False)
    frames = _Frames(models)

    @router.get("/")
    def page(request: Request) -> HTMLResponse:
        return _rendered("plan", request, runs=models.runs)

    @router.get("/session")
    def session(request: Request) -> HTMLResponse:
        runs = [served for served in models.runs if served.run.planner.abilities.any_length]
        return _rendered("session", request, runs=runs)

    @router.get("/frame")
    async def frame(
        run: Text,
        horizon: Whole,
        dataset: Text,
        video: Text,
        step: Whole,
        side: Literal["start", "end"],
        length: Whole | None = None,
    ) -> Response:
        last = step + (horizon if length is None else length) - 1
        wanted = run, horizon, dataset, video, step, last, side == "end"
        picture = await anyio.to_thread.run_sync(frames.picture, *wanted, limiter=frames.limiter)
        if picture is None:
            return Response(status_code=204)
        return Response(
            picture, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"}
        )

    @router.get("/film")
    def film(run: Text, horizon: Whole, dataset: Text, video: Text) -> Response:
        film_video = frames.film(run, horizon, dataset, video)
        return Response(status_code=204) if film_video is None else FileResponse(film_video[0])

    return router


def _rendered(page: str, request: Request, *, runs: Sequence[Served]) -> HTMLResponse:
    language = _language(request.cookies.get(_COOKIE), request.headers.get("accept-language", ""))
    messages = messages_in(language)

    def t(key: str, **values: Any) -> Markup:
        return escape(messages[key]).format(**values)

    environment = Environment(
        loader=PackageLoader("cefito.serve.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"t": t, "steps_of": partial(_steps_of, t)}
    text = environment.get_template(f"{page}.html.j2").render(
        page=page,
        language=language,
        languages={code: messages_in(code)["language"] for code in _LANGUAGES},
        version=version("cefito"),
        numbers=_NUMBERS[page].split(),
        runs=runs,
        constraints=constraint_forms(language) if page == "plan" else (),
    )
    return HTMLResponse(text, headers={"vary": "accept-language, cookie"})


def _language(chosen: str | None, accepted: str) -> str:
    """The language that was chosen, else the first one that the browser prefers, else English."""
    if chosen in _LANGUAGES:
        return chosen
    ranked = []
    for place, entry in enumerate(accepted.split(",")[:_MOST_ACCEPTED]):
        tag, _, quality = entry.strip().partition(";q=")
        with suppress(ValueError):
            ranked.append((-float(quality or 1), place, tag.partition("-")[0].lower()))
    codes = (code for share, _, code in sorted(ranked) if share < 0 and code in _LANGUAGES)
    return next(codes, _LANGUAGES[0])


@cache
def messages_in(language: str) -> Mapping[str, str]:
    """The messages of a language by their keys."""
    path = files("cefito.serve.page").joinpath("static", "messages", f"{language}.json")
    messages: dict[str, str] = json.loads(path.read_text("utf-8"))
    return messages


def _steps_of(t: Callable[..., str], run: Run) -> str:
    first, _, last = run.steps.partition("-")
    return t("range", first=first, last=last) if last else first


@cache
def constraint_forms(language: str) -> list[dict[str, Any]]:
    """The forms that add a constraint: its words, with inputs in their places.

    Where the messages lack its words, those of its declaration stand, in English.
    `shape` is of its value in a request: map, list or value; `kinds` are of the parts of an entry:
    step, action or number; `inputs` are the label of each input and the part that it gives.
    """
    forms, messages = [], messages_in(language)
    for kind, how in constraints.declared().values():
        parts = constraints.entry_parts(kind)
        actions = (constraints.OneAction, constraints.EachAction)
        names = {constraints.Step: "step", **dict.fromkeys(actions, "action")}
        kinds = [
            names.get(part_kind, "number")
            for part_kind in parts or (kind,)
            if part_kind is not bool
        ]
        about = messages.get(f"about.{how.option}", how.description)
        declared = how.words.format(*(f"{{{place}}}" for place in range(len(kinds))))
        words = messages.get(f"constraint.{how.option}", declared)
        inputs = [
            (f"{before.strip()} … {after.strip()}".strip(), int(place))
            for before, place, after in _INPUT.findall(words)
        ]
        shape = "map" if constraints.by_step(kind) else "list" if parts else "value"
        shown = {"words": _INPUT_PLACE.sub("…", words), "about": about, "declared": declared}
        forms.append({"how": how, **shown, "shape": shape, "kinds": kinds, "inputs": inputs})
    return forms


class _Frames:
    """Files of videos of the opened data sets, and frames; one is decoded at a time, then cached.

    Files are found by the ids of the data set. Text of a client is compared with these ids, and is
    never a path.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._files: dict[tuple[Path, str], VideoFiles] = {}  # by folder and fingerprint
        self.limiter = anyio.CapacityLimiter(1)
        self._decoded = lru_cache(_KEPT)(_decoded)

    def film(self, run: str, horizon: int, dataset: str, video: str) -> tuple[Path, Video] | None:
        """The file of a video and the video; None if the data set of the run has none."""
        try:
            served = self._models.find(run, horizon)
        except ProblemError:
            return None
        for match, index in served.videos.get(nfc(video), ()):
            opened = match.dataset
            if opened.name == dataset:
                key = opened.folder, opened.fingerprint
                if key not in self._files:
                    self._files[key] = find_video_files(opened)
                opened_video = opened.videos[index]
                path = self._files[key].paths.get(opened_video.video_id)
                return (path, opened_video) if path is not None and path.is_file() else None
        return None

    def picture(
        self, run: str, horizon: int, dataset: str, video: str, step: int, last: int, goal: bool
    ) -> bytes | None:
        """The frame where a window begins or ends, as JPEG; None if it cannot be shown."""
        film = self.film(run, horizon, dataset, video)
        if film is None or not 1 <= step <= last <= len(film[1].steps):
            return None
        path, steps = film[0], film[1].steps
        time = steps[last - 1].end if goal else steps[step - 1].start
        return self._decoded(path, path.stat().st_mtime_ns, max(0.0, time))


def _decoded(path: Path, _: int, time: float) -> bytes | None:
    """A frame of a file, as it is since its last change; None if it cannot be read."""
    try:
        ((_second, picture),) = thumbnails(path, [time], most=_MOST, side=_SIDE)
    except CefitoError:  # the page shows the second alone
        return None
    return picture
