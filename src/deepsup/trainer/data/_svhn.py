"""Read SVHN .mat files: X [32,32,3,N] and y [N,1], where 10 stands for the digit 0; labels become digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepsup.errors import DataError
from deepsup.trainer.data._dataset import Part
from deepsup.trainer.data._mat import NotMatlab, read_mat
from deepsup.trainer.data._storage import md5_of_file


def read_svhn(path: Path) -> tuple[Part, dict[Path, str]]:
    """Read one split and the digest of its file."""
    again = f"move {path.name} away and get it again"
    try:
        arrays = read_mat(path)
    except NotMatlab as error:
        raise DataError(f"{path}: not a readable MATLAB file ({error}); {again}") from error
    if not {"X", "y"} <= arrays.keys():
        raise DataError(
            f"{path}: holds {', '.join(map(repr, arrays)) or 'nothing'}; expected the variables X and y; {again}"
        )
    x, y = arrays["X"], arrays["y"]
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8:
        raise DataError(f"{path}: X is {x.dtype} {list(x.shape)}; expected uint8 [32,32,3,N]; {again}")
    if y.shape != (x.shape[3], 1):
        raise DataError(f"{path}: {x.shape[3]:,} images but y is {list(y.shape)}; expected [{x.shape[3]},1]; {again}")
    wrong = np.flatnonzero(~np.isin(y[:, 0], np.arange(1, 11)))
    if len(wrong):
        raise DataError(f"{path}: label {y[wrong[0], 0]} at index {wrong[0]:,}; expected 1 to 10 (10 is the digit 0)")
    images = np.ascontiguousarray(x.transpose(3, 0, 1, 2))  # [N,32,32,3]
    return Part(images.transpose(0, 3, 1, 2), y[:, 0].astype(np.int64) % 10), {path: md5_of_file(path)}
