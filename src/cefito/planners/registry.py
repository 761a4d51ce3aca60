"""All methods by their names. To add a method, add its declaration to the list here."""

from __future__ import annotations

from cefito.errors import ConfigError
from cefito.planners.cefito.method import CEFITO
from cefito.planners.crf.method import CHAIN
from cefito.planners.kepp.method import KEPP
from cefito.planners.language_model.method import LANGUAGE_MODELS
from cefito.planners.method import Method
from cefito.planners.mtid.method import MTID
from cefito.planners.p3iv.method import P3IV
from cefito.planners.pdpp.method import PDPP
from cefito.planners.pkg.method import PKG, PKG_BEAM
from cefito.planners.planllm.method import PLANLLM, PLANLLM_LEAKY
from cefito.planners.schema.method import SCHEMA
from cefito.planners.simple.method import FREQUENT, NEAREST
from cefito.planners.viterbi.method import VITERBI

__all__ = ["METHODS", "find_method", "methods_with"]

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        CEFITO,
        CHAIN,
        VITERBI,
        PDPP,
        MTID,
        KEPP,
        SCHEMA,
        PLANLLM,
        PLANLLM_LEAKY,
        P3IV,
        PKG,
        PKG_BEAM,
        *LANGUAGE_MODELS,
        NEAREST,
        FREQUENT,
    )
}
"""All methods by their names, in the order of tables."""


def find_method(name: str) -> Method:
    """Return a method by its name."""
    if name not in METHODS:
        raise ConfigError(f"no method '{name}'; there are {', '.join(METHODS)}.")
    return METHODS[name]


def methods_with(ability: str) -> str:
    """Return the names of the methods with an ability (a field of `Abilities`), for a message."""
    names = (name for name, method in METHODS.items() if getattr(method.planner.abilities, ability))
    return ", ".join(names) or "none"
