"""SCHEMA: states between steps, decoded over the descriptions of all actions, then the actions."""
