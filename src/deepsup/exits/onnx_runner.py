"""Classify with early exits, on onnxruntime and numpy alone: images in; labels, confidences and exits out.

This file lies beside the graphs that ``deepsup exits RUN --export DIR`` writes. It needs no torch and no deepsup:

    python DIR/early_exits.py images.npy    # uint8 [N,C,H,W], as the run was trained on
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Array = np.ndarray[Any, Any]


class EarlyExits:
    """The stages of a net as ONNX graphs: a sample leaves at the first exit that is sure of it, the others go on."""

    def __init__(self, folder: str | Path, threads: int = 0) -> None:
        self.about = json.loads((Path(folder) / "exits.json").read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads  # 0: all cores
        self.stages = [
            onnxruntime.InferenceSession(Path(folder) / each["file"], options, providers=["CPUExecutionProvider"])
            for each in self.about["stages"]
        ]

    def __call__(self, images: Array) -> tuple[Array, Array, Array]:
        """Images [N,C,H,W] -> labels [N], confidences [N], and the number of the exit of each [N]."""
        labels, exits = np.zeros(len(images), np.int64), np.zeros(len(images), np.int64)
        confidences, rows, values = np.zeros(len(images), np.float32), np.arange(len(images)), [images]
        for number, (stage, about) in enumerate(zip(self.stages, self.about["stages"], strict=True)):
            if len(rows) == 0:
                break
            names = [each.name for each in stage.get_inputs()]
            scores, *values = stage.run(None, dict(zip(names, values, strict=True)))
            sure = softmax(scores / about["temperature"]).max(1)
            last = about["threshold"] is None
            leave = np.ones(len(rows), bool) if last else sure > about["threshold"]
            gone = rows[leave]
            labels[gone], confidences[gone], exits[gone] = scores[leave].argmax(1), sure[leave], number
            rows, values = rows[~leave], [value[~leave] for value in values]
        return labels, confidences, exits


def softmax(scores: Array) -> Array:
    """Return the softmax of scores [N,K] over the classes."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    chances: Array = powers / powers.sum(1, keepdims=True)
    return chances


def main() -> None:
    """Classify the images of a file; print the class, the confidence and the exit of each."""
    early = EarlyExits(Path(__file__).parent)
    for label, sure, number in zip(*early(np.load(sys.argv[1], allow_pickle=False)), strict=True):
        print(early.about["classes"][label], f"{sure:.3f}", early.about["stages"][number]["exit"])  # noqa: T201


if __name__ == "__main__":
    main()
