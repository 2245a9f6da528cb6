"""Normalization, fitted on the training part, and augmentation of whole batches."""

from deepsup.trainer.preprocess._augment import AUGMENTATIONS, Augment, Draw
from deepsup.trainer.preprocess._normalize import NORMALIZATIONS, Normalizer, fit, to_tensor
from deepsup.trainer.preprocess._steps import GCN, LCN, ZCA, Standardize

__all__ = [
    "AUGMENTATIONS",
    "GCN",
    "LCN",
    "NORMALIZATIONS",
    "ZCA",
    "Augment",
    "Draw",
    "Normalizer",
    "Standardize",
    "fit",
    "to_tensor",
]
