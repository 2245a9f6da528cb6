"""Write what the layers of a net know to two files of its run folder, from which figures are drawn without torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from deepsup.insight import Measurement, layer_insight
from deepsup.io import whole_file
from deepsup.trainer.runs._folder import RunFolder


def write_insight(
    run: RunFolder,
    measured: Measurement,
    images: npt.NDArray[np.uint8],
    classes: Sequence[str],
    more: Mapping[str, Any] | None = None,
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> dict[str, Any]:
    """Write ``insight.json`` and ``insight.npz``; return the contents of the former.

    measured: the scores of the net on the test ``images`` [N,C,H,W].
    more, arrays: further entries of the two files.
    """
    record = layer_insight(measured, classes) | dict(more or {})
    mistaken = images[[each["index"] for each in record["mistakes"]]]
    with whole_file(run.folder / "insight.npz") as file:
        np.savez_compressed(file, allow_pickle=False, mistakes=np.ascontiguousarray(mistaken), **(arrays or {}))
    run.write_json("insight.json", record, indent=None)  # 2,000 classes: 36 MB in place of 156 MB
    return record
