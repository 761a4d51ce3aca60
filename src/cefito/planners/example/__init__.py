"""A planner in one file, and a package made of it for a planner of one's own."""
