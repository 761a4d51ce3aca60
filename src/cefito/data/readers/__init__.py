"""Readers of public and own annotations, and the preparation of data sets from them.

A reader gives a `Source`; `assemble` finds the features of its videos, observes their steps and
writes the data set. `custom` and `captaincook4d` also accept finished observations.
"""
