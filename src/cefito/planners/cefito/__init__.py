"""CEFITO: a chain, an energy field, perhaps a task classifier, and a search by them all."""
