"""Bars of a record: as long as the means, with whiskers as long as the deviations, where there is one."""

from typing import Any

import pytest

from deepsup.trainer.report._record_figure import draw_bars, draw_panels


def record(**ours: tuple[float, float | None]) -> dict[str, Any]:
    """Return as much of a record as its figure needs: rows with mean and deviation."""
    return {
        "target": "made-up",
        "title": "Made up",
        "rows": [{"row": name, "mean": mean, "deviation": deviation} for name, (mean, deviation) in ours.items()],
        "figure": {
            "kind": "bars",
            "y": "test error, %",
            "bars": {name: {"paper": 9.0, "ours": mean} for name, (mean, _) in ours.items()},
        },
    }


def containers(made: dict[str, Any]) -> list[Any]:
    """Return the paper's bars and ours."""
    drawing = draw_bars(made)
    assert drawing is not None
    return [each for each in drawing.figure.axes[0].containers if each.get_label() in ("paper", "ours")]


def test_whiskers_reach_from_mean_minus_to_mean_plus_deviation() -> None:
    paper, ours = containers(record(first=(8.0, 0.5), second=(7.0, 0.25)))
    assert [bar.get_width() for bar in paper] == [9.0, 9.0]
    assert [bar.get_width() for bar in ours] == [8.0, 7.0]
    assert paper.errorbar is None  # the paper tells no deviation
    ends = [sorted(point[0] for point in line) for line in ours.errorbar.lines[2][0].get_segments()]
    assert ends == [pytest.approx([7.5, 8.5]), pytest.approx([6.75, 7.25])]


def test_one_seed_has_no_whiskers() -> None:
    _, ours = containers(record(first=(8.0, None)))
    assert ours.errorbar is None


def test_one_seed_beside_several_has_no_cap_that_reads_as_a_deviation_of_zero() -> None:
    _, ours = containers(record(first=(8.0, 0.5), second=(7.0, None)))
    assert ours.errorbar.lines[1] == ()
    start, end = ours.errorbar.lines[2][0].get_segments()[1]
    assert start[0] == end[0] == 7.0


def test_long_labels_leave_room_for_the_bars() -> None:
    """Half of the figure at least; no label is cut, and the words between two commas stay on one line if they fit."""
    names = [
        "greedy pre-training, 12 layers, no norm layers, sgd, 500 digits",
        "a part of many words without any comma",
    ]
    drawing = draw_bars(record(**dict.fromkeys(names, (8.0, 0.5))))
    assert drawing is not None
    drawing.figure.draw_without_rendering()
    (axes,) = drawing.figure.axes
    assert axes.get_position().width > 0.5
    labels = [label.get_text().replace("\xa0", " ") for label in axes.get_yticklabels()]
    assert [label.replace("\n", " ") for label in labels] == names
    lines = labels[0].split("\n")
    assert [len(label.split("\n")) for label in labels] == [2, 2]
    assert all(line.endswith(",") for line in lines[:-1])


def test_a_seed_that_diverged_is_in_the_whisker_as_it_is_in_the_mean() -> None:
    """Its value is not known: it counts as guessing. A whisker of negative length would end a study of hours."""
    rows = [{"row": "a", "mean": 33.0, "deviation": 49.4, "values": [4.0, None, 5.0], "guessing": 90.0},
            {"row": "b", "mean": 5.0, "deviation": 1.0, "values": [4.0, 5.0, 6.0], "guessing": 90.0}]  # fmt: skip
    line = {"x": [0.1, 0.3], "y": [33.0, 5.0], "look": "CNN-Softmax"}
    panel = {"x": "learning rate", "y": "test error, %", "log": True, "lines": {"CNN-Softmax": line}}
    drawing = draw_panels({"target": "t", "title": "T", "rows": rows}, [panel])
    (bars,) = drawing.figure.axes[0].containers
    ends = [sorted(point[1] for point in segment) for segment in bars.lines[2][0].get_segments()]
    assert ends == [[4.0, 90.0], [4.0, 6.0]]


def test_a_single_point_beside_a_line_of_its_method_is_a_large_mark_without_a_name() -> None:
    """Fig. 2b: full width at 500 digits, half width at all sizes. The legend leaves room for the lines."""
    methods = ("CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM")
    lines = {name: {"x": [250, 500], "y": [9.0, 5.0], "look": name} for name in methods}
    lines |= {f"{name}, full width": {"x": [500], "y": [4.0], "look": name} for name in methods}
    panel = {"x": "training digits", "y": "test error, %", "log": True, "lines": lines}
    drawing = draw_panels({"target": "t", "title": "T", "rows": []}, [panel])
    drawing.figure.draw_without_rendering()
    (axes,) = drawing.figure.axes
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == list(methods)
    assert axes.get_position().height > 0.4
