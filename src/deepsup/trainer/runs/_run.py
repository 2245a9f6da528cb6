"""A run folder in; its trained net, ready for images, out.

N images, C channels, H height, W width.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepsup.errors import DataError
from deepsup.io import below, one_line, write_whole
from deepsup.supervision import CARD, DeeplySupervised, card_of, local_folder, make_folder, push
from deepsup.trainer.preprocess import Normalizer, to_tensor
from deepsup.trainer.runs._evaluate import predict
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._model import load_model, load_preprocessing, read_model

KEPT = ("config.yaml", "environment.json", "metrics.jsonl", "result.json", "split.json", "model.safetensors")
"""The files of a run that ``save_pretrained`` copies."""


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
        return Preprocess(*load_preprocessing(self))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the scores."""
        return tuple(read_model(self)[0]["classes"])

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Copy what is needed to read, evaluate and predict to a folder, with a model card; no checkpoints."""
        result = self.result  # says so if the run is not finished
        place = make_folder(folder)
        for name in KEPT:
            if (self.folder / name).is_file():
                write_whole(place / name, own_file(self.folder, name).read_bytes())
        lines = [
            f"network {self.config.network.name}, data {Path(self.config.data.source).name}",
            f"{len(self.classes)} classes",
            f"test error {result['error']:.2f} %" if result["error"] is not None else "no test error",
        ]
        code = 'from deepsup import Run\n\nrun = Run.from_pretrained("FOLDER OR NAME")\nrun.predict(["image.png"])'
        write_whole(
            place / CARD, card_of(f"{one_line(self.name)}, a run of deepsup", list(map(one_line, lines)), code).encode()
        )

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], network: Callable[..., Any] | None = None, **hub: Any
    ) -> "Run":
        """Open a run that ``save_pretrained`` wrote, and check that it loads. No code of the folder is run.

        folder: a folder, or owner/name on the Hugging Face Hub; ``hub`` are options such as ``revision`` and ``token``.
        network: what makes the network of a run that was trained with one of your own.
        """
        run = cls(local_folder(folder, KEPT, **hub), network=network)
        load_model(run)
        return run

    def push_to_hub(
        self, repo_id: str, *, private: bool = False, token: str | None = None, message: str = "Upload with deepsup"
    ) -> str:
        """Save and upload the run to the Hugging Face Hub as ``owner/name``; return its URL."""
        return push(self.save_pretrained, repo_id, private=private, token=token, message=message)

    def predict(
        self,
        files: Sequence[str | os.PathLike[str]],
        out: str | os.PathLike[str] | None = None,
        *,
        tta: str | None = None,
        amp: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return ``label``, ``confidence`` and what the ``companions`` say, for each image file.

        A run with a score per pixel writes a mask for each file to the folder ``out``. ``tta`` and ``amp`` replace the
        run's own test-time augmentation and the precision in which it measures errors.
        """
        return predict(self, files, out, tta=tta, amp=amp)


def own_file(folder: Path, name: str) -> Path:
    """Return a file of a run to hand on; refuse a link, which could bring a file of the reader's own along.

    The cache of the hub consists of links to ``blobs`` beside its snapshots.
    """
    path, here = folder / name, folder.resolve()
    if path.is_symlink() and path.resolve().parent != here.parent.parent / "blobs":
        return below(folder, name)
    return path
