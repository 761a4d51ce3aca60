"""CEFITO: task classifier, proposals and energy field, and a search for the best sequences."""
