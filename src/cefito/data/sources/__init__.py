"""Where data come from: one file a source, each turns what it finds into a prepared data set."""

from cefito.data.sources.custom import prepare_custom

__all__ = ["prepare_custom"]
