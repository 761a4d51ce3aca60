"""Presets as TOML files; see `cefito.training.config`."""
