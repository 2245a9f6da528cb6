"""Full MNIST in (any source of ``load_data``), the four files of mnist-mini out: 1,000 + 5,000 digits, stratified.

    python dev/make_mnist_mini.py [FOLDER]

Without a folder it rewrites the ones that deepsup ships; the same bytes come out every time.
"""

import gzip
import sys
from pathlib import Path

from deepsup.trainer.data import Part, load_data, subset
from deepsup.trainer.data._idx import pack_idx
from deepsup.trainer.data._known_sets import EMBEDDED

SEED = 2014


def make(folder: Path) -> None:
    """Draw the digits in the classes' own proportions, in MNIST's order, and write them."""
    data = load_data("mnist")
    for prefix, part, n in (("train", data.train, 1_000), ("t10k", data.test, 5_000)):
        write(folder, prefix, subset(part, n, SEED))


def write(folder: Path, prefix: str, part: Part) -> None:
    """Write one part as MNIST's own files are named."""
    for kind, values in (("images-idx3", part.images[:, 0]), ("labels-idx1", part.labels.astype("uint8"))):
        (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(pack_idx(values), 9, mtime=0))


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else EMBEDDED)
