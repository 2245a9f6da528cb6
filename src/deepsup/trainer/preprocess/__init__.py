"""Normalization, fitted on the training part, and augmentation of whole batches."""

from deepsup.trainer.preprocess.augment import AUGMENTATIONS as AUGMENTATIONS
from deepsup.trainer.preprocess.augment import Augment, Draw
from deepsup.trainer.preprocess.normalize import NORMALIZATIONS as NORMALIZATIONS
from deepsup.trainer.preprocess.normalize import Normalizer, fit, to_tensor
from deepsup.trainer.preprocess.steps import GCN, LCN, ZCA, Standardize

__all__ = ["GCN", "LCN", "ZCA", "Augment", "Draw", "Normalizer", "Standardize", "fit", "to_tensor"]
