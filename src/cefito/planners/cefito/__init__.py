"""CEFITO: a chain, perhaps an energy field and a task classifier, and a search by them all."""
