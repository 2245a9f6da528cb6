"""What the layers of a net know -> two files in its run folder that the figures are drawn from, without torch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from deepsup.insight import Measurement, knowledge
from deepsup.runs.folder import RunFolder
from deepsup.files import whole_file


def record_knowledge(
    run: RunFolder,
    measured: Measurement,
    images: npt.NDArray[np.uint8],
    classes: Sequence[str],
    more: Mapping[str, Any] | None = None,
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> dict[str, Any]:
    """Write ``inside.json`` and ``inside.npz``; return what the first one holds.

    measured: what the net says of the test images [N,C,H,W].
    more, arrays: what else was found, for either file.
    """
    found = knowledge(measured, classes) | dict(more or {})
    mistaken = images[[each["index"] for each in found["mistakes"]]]
    with whole_file(run.folder / "inside.npz") as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, mistakes=np.ascontiguousarray(mistaken), **(arrays or {}))
    run.write_json("inside.json", found)
    return found
