"""A service of two small runs: CEFITO at T = 3 and the most frequent sequences at T = 2."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from cefito.data import PreparedDataset, cut_windows
from cefito.serve import service, uploads
from cefito.serve.app import create_app
from cefito.serve.process import listen, make_server
from cefito.serve.settings import Limits, ServiceSettings
from cefito.serve.uploads import EncodingProcess
from tiny_runs import TINY_RUN, small_run


@dataclass(frozen=True)
class Place:
    """A data set and runs for a service."""

    world: PreparedDataset
    run: Path  # of horizon 3
    short: Path  # of horizon 2, of a method without a search

    def observations(self, row: int = 0) -> dict[str, list[float]]:
        """Observations of a test window, for JSON."""
        windows = cut_windows(self.world, horizon=3, split="test")
        return {
            name: getattr(windows, name)[row].astype(np.float64).tolist()
            for name in ("initial", "goal")
        }

    def settings(self, **changes: Any) -> ServiceSettings:
        """Settings of a service of both runs."""
        limits = Limits(**changes.pop("limits", {}))
        given = {"runs": (self.run, self.short), "datasets": (self.world.folder,), **changes}
        return ServiceSettings(**given, limits=limits)


@pytest.fixture(scope="session")
def place(world, tmp_path_factory) -> Place:
    folder = tmp_path_factory.mktemp("served")
    settings = TINY_RUN | {"chain.members": 1, "search.fitting_windows": 5}
    small_run(world, folder / "tea", "cefito+chain", overrides=settings)
    small_run(world, folder / "short", "frequent", overrides=settings, shared=True, horizon=2)
    return Place(world, folder / "tea", folder / "short")


@pytest.fixture(scope="module")
def serving(place) -> Iterator[Callable[..., TestClient]]:
    """Make clients of services with other settings; all are closed with the module."""
    clients: list[TestClient] = []

    def make(**changes: Any) -> TestClient:
        client = TestClient(create_app(place.settings(**changes)), raise_server_exceptions=False)
        clients.append(client.__enter__())
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


class EncodingHere(EncodingProcess):
    """Encodes in this process, which need not load torch once more."""

    def __init__(self, function: Any, **given: Any) -> None:
        super().__init__(function, **given)
        self.function, self.seconds = function, given["seconds"]

    def start(self) -> Future[Any]:
        return self._thread.submit(self._encode, None)

    def _encode(self, upload: Any) -> Any:
        return self.function(upload)


@pytest.fixture(scope="module")
def encoding_here() -> Iterator[None]:
    """Services of the module encode uploads in this process, whose memory is not bounded."""
    image = pytest.importorskip("PIL.Image")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploads, "limit_memory", lambda _: None)
        patch.setattr(service, "EncodingProcess", EncodingHere)
        patch.setattr(image, "MAX_IMAGE_PIXELS", image.MAX_IMAGE_PIXELS)  # decoders set it
        yield


@pytest.fixture(scope="module")
def client(serving) -> TestClient:
    """A client of a service with the default settings."""
    return serving()


def _await_ready(address: str) -> None:
    """Wait until a service has loaded its encoder."""
    for _ in range(1200):
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(f"{address}/ready").close()
            return
        time.sleep(0.1)
    pytest.fail("the service was not ready in two minutes")


@contextmanager
def _listening(settings: ServiceSettings, **config: Any) -> Iterator[str]:
    server = make_server(create_app(settings), settings)
    vars(server.config).update(config)
    with listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        until = time.monotonic() + 30
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            _await_ready(address)
            yield address
        finally:
            server.should_exit = True
            thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(scope="session")
def listening() -> Callable[..., AbstractContextManager[str]]:
    """Run a service in a thread, by its settings, perhaps others of uvicorn; its address."""
    return _listening


@pytest.fixture(scope="module")
def address(place) -> Iterator[str]:
    """Address of a service of one run, behind a proxy on this machine."""
    with _listening(place.settings(runs=(place.run,), proxies=("127.0.0.1",))) as address:
        yield address
