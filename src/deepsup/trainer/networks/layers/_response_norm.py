"""cuda-convnet's cross-map response norm as torch's ``nn.LocalResponseNorm``."""

from torch import nn


def cross_map_norm(size: int = 9, scale: float = 0.001, power: float = 0.75) -> nn.LocalResponseNorm:
    """Return the layer x / (1 + scale/size * sum of x^2 over ``size`` neighbouring maps) ^ power.

    cuda-convnet's parser divides ``scale`` by ``size`` (``layers.py``: ``dic['scale'] /= dic['size']``) and its divisor
    starts from 1 (``minDiv``); torch takes the mean over ``size`` maps, zero-padded, and so divides too. Hence alpha
    is the cfg's scale unchanged, and k is 1. Multiplying by ``size`` here is the usual mistake.
    """
    return nn.LocalResponseNorm(size, alpha=scale, beta=power, k=1.0)
