"""ViterbiPlanNet: a network's emissions, decoded over the transitions of the training windows."""
