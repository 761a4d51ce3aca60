"""What a service says of its runs, its limits and the videos that may be named."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from cefito.data.names import find_task
from cefito.runs.info import versions
from cefito.search.registry import SEARCHES
from cefito.serve.models import Served
from cefito.serve.schemas import (
    LimitsOfModel,
    ModelAnswer,
    Named,
    RunOfModel,
    StepOfVideo,
    TaskOfModel,
    VideoOfAnswer,
    VideosAnswer,
)

if TYPE_CHECKING:
    from cefito.serve.service import Service

__all__ = ["described", "videos_of"]


def described(service: Service) -> ModelAnswer:
    """The runs of a service, its limits and versions."""
    limits = service.limits
    return ModelAnswer(
        runs=[_run(served) for served in service.models.runs],
        searches=sorted(SEARCHES),
        limits=LimitsOfModel(
            top_k=limits.top_k,
            queries=limits.queries,
            gflop=limits.gflop,
            deadline_seconds=limits.deadline_seconds,
            longest_seconds=limits.longest_seconds,
            body_bytes=int(limits.body_mib * 2**20),
            upload_bytes=int(limits.upload_mib * 2**20),
            upload_pixels=int(limits.upload_megapixels * 1e6),
            queue=limits.queue,
        ),
        versions={**versions(), "fastapi": version("fastapi")},
    )


def _run(served: Served) -> RunOfModel:
    run = served.run
    planner, info = run.planner, run.info
    description, abilities = planner.describe(), planner.abilities
    uploads: list[Literal["pictures", "video"]] = []
    if served.pictures:
        uploads.append("pictures")
    if served.video:
        uploads.append("video")
    return RunOfModel(
        name=served.name,
        horizon=run.horizon,
        method=run.method,
        planner=planner.name,
        observation_dim=planner.observation_dim,
        dataset=info.dataset.name,
        fingerprint=info.dataset.fingerprint,
        simulated=info.dataset.simulation is not None,
        seed=info.seed,
        search=None if description.search is None else description.search.model_dump(mode="json"),
        probabilities=description.probabilities,
        constraints=abilities.constraints,
        true_task=abilities.true_task,
        uploads=uploads,
        datasets=[match.dataset.name for match in served.matches],
        versions=info.versions,
        tasks=[
            TaskOfModel(id=task.id, name=task.name, actions=list(task.actions))
            for task in run.taxonomy.tasks
        ],
        actions=[Named(id=action.id, name=action.name) for action in run.taxonomy.actions],
    )


def videos_of(
    served: Served, *, task: str | None, split: str | None, offset: int, limit: int
) -> VideosAnswer:
    """Videos whose task a run knows, in the order of their data sets.

    Args:
        served: The run.
        task: Id or name of the task that they must be of; None for any.
        split: Split that they must be of; None for any.
        offset: How many are passed over.
        limit: Most that are listed.

    Raises:
        ConfigError: No such task.
    """
    run, found, total = served.run, [], 0
    wanted = None if task is None else find_task(run.taxonomy, task)
    for match in served.matches:
        vocabulary = match.vocabulary
        for video in match.dataset.videos:
            known = int(vocabulary.tasks[video.task])
            if known < 0 or wanted not in (None, known) or split not in (None, video.split):
                continue
            total += 1
            if not offset < total <= offset + limit:
                continue
            steps = []
            for step in video.steps:
                action = int(vocabulary.actions[video.task, step.action])
                name = match.dataset.taxonomy.actions[step.action].name
                steps.append(
                    StepOfVideo(
                        id=None if action < 0 else action, name=name, start=step.start, end=step.end
                    )
                )
            found.append(
                VideoOfAnswer(
                    id=video.video_id,
                    dataset=match.dataset.name,
                    split=video.split,
                    task=Named(id=known, name=run.taxonomy.tasks[known].name),
                    steps=steps,
                    first_steps=list(range(len(steps) - run.horizon + 1)),
                )
            )
    return VideosAnswer(run=served.name, horizon=run.horizon, total=total, videos=found)
