"""Language models as planners: told in words what our own models recognise, they name the steps."""
