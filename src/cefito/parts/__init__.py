"""Folders of finished runs: records, digests, and parts that are opened when used."""
