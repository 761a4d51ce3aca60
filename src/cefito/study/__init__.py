"""Studies: planners trained and scored on equal terms, with the paper's tables and figures."""
