"""Runs: trained planners with all that is needed to repeat, check, share and ask them."""
