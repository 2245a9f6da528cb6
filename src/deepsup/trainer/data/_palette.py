"""The colours of the classes in masks that are written and shown."""

import numpy as np
import numpy.typing as npt

from deepsup.trainer.data._dataset import IGNORED

_COLOURS = (
    (0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (213, 94, 0),
    (240, 228, 66), (148, 103, 189), (140, 86, 75), (127, 127, 127), (188, 189, 34),
)  # fmt: skip


def palette() -> npt.NDArray[np.uint8]:
    """Return the colour of each class number [256,3]: 0 is black, 255 (ignored) white, others repeat after a while."""
    table = [(0, 0, 0), *(_COLOURS[number % len(_COLOURS)] for number in range(255))]
    table[IGNORED] = (255, 255, 255)
    return np.array(table, np.uint8)
