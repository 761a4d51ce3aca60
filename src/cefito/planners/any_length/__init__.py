"""Plans of any length in a range, with or without a goal, after steps done before."""
