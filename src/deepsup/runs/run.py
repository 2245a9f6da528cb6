"""A run folder in; its trained net, ready for images, out.

N images, C channels, H height, W width.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepsup.errors import DataError
from deepsup.preprocess import Normalizer, to_tensor
from deepsup.runs.evaluate import predict
from deepsup.runs.folder import RunFolder
from deepsup.runs.model import load_model, preprocessing, read_model
from deepsup.supervision import DeeplySupervised


@dataclass(frozen=True, eq=False)
class Preprocess:
    """Turns images as they come into what the net of a run was trained on."""

    normalize: Normalizer
    shape: tuple[int, ...]
    """Of one image: [C,H,W]."""

    def __call__(self, images: Tensor | npt.NDArray[np.uint8]) -> Tensor:
        """[N,C,H,W] uint8 -> float32, normalised with what the run learned from its training images."""
        if not isinstance(images, Tensor | np.ndarray) or images.dtype not in (torch.uint8, np.uint8):
            kind = getattr(images, "dtype", type(images).__name__)
            raise DataError(f"images are {kind}; expected a uint8 array or tensor [N,C,H,W], values 0 to 255")
        if tuple(images.shape[1:]) != self.shape:
            raise DataError(
                f"images are {list(images.shape)}; expected [N,{','.join(map(str, self.shape))}]; resize them"
            )
        return self.normalize(images if isinstance(images, Tensor) else to_tensor(images))


class Run(RunFolder):
    """A run folder: its records, and the net that was trained in it.

    ``Run("runs/mine")`` opens one that is there; nothing is read before it is asked for. A run that was trained with a
    network of your own needs it: ``Run("runs/mine", network=MyNet)``. The name in the run is never imported.
    """

    def load(self) -> DeeplySupervised:
        """Return the trained net with its companions: on the CPU, in evaluation mode."""
        return load_model(self).net

    @cached_property
    def preprocess(self) -> Preprocess:
        """What makes the net's input out of uint8 images [N,C,H,W]: ``net(run.preprocess(images))``."""
        about, tensors = read_model(self)
        return Preprocess(preprocessing(about, tensors), tuple(about["shape"]))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the scores."""
        return tuple(read_model(self)[0]["classes"])

    def predict(self, files: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        """Return ``label``, ``confidence`` and what the ``companions`` say, for each image file."""
        return predict(self, files)
