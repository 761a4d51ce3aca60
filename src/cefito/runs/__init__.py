"""Run folders: trained planners with all that is needed to repeat, check, share and use them."""
