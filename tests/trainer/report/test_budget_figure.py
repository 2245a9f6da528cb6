"""The figure of the budget curves: the curves that were given, and the two distances where they are."""

from pathlib import Path

import pytest

from deepsup.trainer.report import draw_record
from deepsup.trainer.report._budget_figure import draw_budgets, epochs_at

CURVES = {
    "CNN-Softmax": {"15": [40.0, 44.0], "30": [20.0, 22.0], "60": [10.0, 11.0]},
    "DSN-Softmax": {"15": [20.0, 22.0], "30": [10.0, 11.0], "60": [8.0, 8.8]},
}


def record(**distances: dict) -> dict:
    panel = {"title": "softmax", "curves": CURVES, **distances}
    readings = [{"row": name, **each} for name, each in distances.items()]
    return {"target": "budget", "title": "A title", "rows": [], "readings": readings,
            "figure": {"kind": "budgets", "panels": [panel]}}  # fmt: skip


def test_curves_have_a_dot_per_seed_and_both_distances_are_told(tmp_path: Path) -> None:
    better = {"values": [0.8], "interval": [0.7, 0.9]}
    faster = {"values": [0.5], "interval": None, "common": [10.5, 21.0]}
    given = record(better=better, faster=faster)
    drawing = draw_budgets(given)
    assert drawing is not None
    axes = drawing.figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["CNN-Softmax"].get_xdata()) == [15, 30, 60]
    assert list(lines["DSN-Softmax"].get_ydata()) == pytest.approx([440**0.5, 110**0.5, 70.4**0.5])
    dots = [line for line in axes.lines if line.get_marker() == "_"]
    assert sum(len(line.get_ydata()) for line in dots) == 12
    words = [text.get_text() for text in axes.texts]
    assert any("faster: 0.50 of the epochs" in each for each in words)
    assert any("better:\n0.80 of the\nerror\n(95 % 0.70 to 0.90)" in each for each in words)
    path = draw_record(given, tmp_path)
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_a_twin_there_is_nothing_to_draw() -> None:
    empty = record()
    empty["figure"]["panels"] = []
    assert draw_budgets(empty) is None


def test_a_level_is_found_on_straight_lines_of_the_logarithms() -> None:
    assert epochs_at(20.0, {15: 40.0, 60: 10.0}) == pytest.approx(30.0)
    assert epochs_at(50.0, {15: 40.0, 60: 10.0}) == 15.0
    assert epochs_at(5.0, {15: 40.0, 60: 10.0}) == 60.0
