"""The digits that are shipped: there without a network, stratified, a part of MNIST, with their licence beside them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deepsup import load_data
from deepsup.trainer.data import KNOWN, check, is_present
from deepsup.trainer.data._known_sets import EMBEDDED

REAL = os.environ.get("DEEPSUP_DATA")
SCRIPT = Path(__file__).parents[3] / "dev" / "make_mnist_mini.py"


def test_they_are_the_default():
    data = load_data()
    assert data.name == "mnist-mini"
    assert data.notes == ()
    assert data.shape == (1, 28, 28)
    assert (len(data.train), len(data.test)) == (1000, 5000)
    # MNIST's own proportions: 5,421 to 6,742 of 60,000, and 892 to 1,135 of 10,000
    assert data.train.counts(10) == [99, 112, 99, 102, 97, 90, 99, 105, 98, 99]
    assert data.test.counts(10) == [490, 568, 516, 505, 491, 446, 479, 514, 487, 504]


def test_they_are_whole_and_small():
    report = check("mnist-mini")
    assert report.exact
    assert sum(path.stat().st_size for path in EMBEDDED.glob("*.gz")) < 1_100_000
    assert "Creative Commons Attribution-Share Alike 3.0" in (EMBEDDED / "ATTRIBUTION.md").read_text()


def test_importing_the_data_does_not_import_torch():
    code = "import sys, deepsup; deepsup.load_data(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not REAL, reason="needs MNIST under DEEPSUP_DATA")
def test_they_are_made_from_mnist_and_the_same_every_time(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPSUP_DATA", str(REAL))
    if not is_present(KNOWN["mnist"]):
        pytest.skip("needs MNIST under DEEPSUP_DATA")
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True)
    for path in EMBEDDED.glob("*.gz"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    mini, full = load_data(), load_data("mnist", download=False)
    held = {image.tobytes() for image in full.train.images}
    assert all(image.tobytes() in held for image in np.ascontiguousarray(mini.train.images))
