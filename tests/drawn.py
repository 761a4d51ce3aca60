"""Random tensors, and modules whose weights are away from their special beginnings."""

import torch

from cefito.runtime import generator_for


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator_for("cpu", seed))


def stirred(module, scale=0.2):
    for place, parameter in enumerate(module.parameters()):
        parameter.data += scale * drawn(*parameter.shape, seed=100 + place)
    return module
