"""The energy field: a small causal transformer predicts the goal that a sequence leads to.

The energy of the sequence is the distance of that prediction from the observed goal (paper, Sec.
3.2).
"""
