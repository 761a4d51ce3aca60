"""The service on a Ray cluster: replicas of Ray Serve, any of which goes on with any session.

`serve run deploy/ray.yaml` starts it; the file's `args` are fields of `ServiceSettings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from cefito.errors import ConfigError
from cefito.serve.app import create_app
from cefito.serve.settings import ServiceSettings
from cefito.settings import validated

if TYPE_CHECKING:
    from ray.serve import Application

_OTHERS = ("log_format", "processes", "proxies", "session_folder", "token")
"""Settings of a server of its own, or of one machine."""


def application(args: dict[str, Any]) -> Application:
    """Make the application that Ray Serve deploys (ConfigError if settings do not suit it)."""
    from ray import serve

    place = "cefito.serve.ray"
    settings = validated(ServiceSettings, args, place=place)
    if unsuited := [name for name in _OTHERS if name in args]:
        raise ConfigError(f"{place}: '{unsuited[0]}' has no meaning on Ray. Leave it out.")
    if settings.session_store is None:
        remedy = "Give the address of Valkey, such as valkey://10.0.0.5:6379/0"
        raise ConfigError(f"{place}: replicas need a 'session_store'. {remedy}.")
    if settings.stations is None and settings.hosts is None:
        remedy = "Give 'stations', a file of tokens, or 'hosts', the names that need none"
        raise ConfigError(f"{place}: everybody would be admitted. {remedy}.")

    def replica() -> FastAPI:
        return create_app(settings)

    service: Any = serve.deployment(serve.ingress(replica)(), name="service")
    return service.bind()
