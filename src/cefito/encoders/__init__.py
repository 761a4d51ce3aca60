"""Encoders: pretrained models that turn names, pictures and videos into vectors.

They need extra packages, which are imported only when a model is loaded.
"""
