"""What each layer knows, drawn: means and deviations over seeds, filled for companions, hollow for plain nets."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from matplotlib.colors import to_hex

from deepsup.trainer.report._layer_figures import draw_layers, layer_lines, probed_pairs
from deepsup.trainer.report._read import Comparison, RunRecord, read_comparison, read_run
from deepsup.trainer.report._style import PAPER, PLAIN, SUPERVISED

TAPS = tuple(f"conv{n}" for n in range(1, 7))


def probed(folder: Path, errors: dict[str, float], output: float, companions: dict[str, float]) -> RunRecord:
    """Write what inspect would have found into a run folder."""
    found = json.loads((folder / "insight.json").read_text())
    found["probes"] = {tap: {"error": error} for tap, error in errors.items()}
    found["layers"] = {tap: {"error": error} for tap, error in (companions | {"output": output}).items()}
    (folder / "insight.json").write_text(json.dumps(found))
    return read_run(folder)


@pytest.fixture
def pair(make_run: Callable[..., Path]) -> dict[str, list[RunRecord]]:
    """Five seeds of a plain net and of one with six companions, every number another one."""
    runs: dict[str, list[RunRecord]] = {"CNN-SVM": [], "DSN-SVM": []}
    for seed in range(5):
        for method, taps in (("CNN-SVM", ()), ("DSN-SVM", TAPS)):
            shift = seed**2 + (10 if taps else 0)
            errors = {tap: 50.0 - 3 * place + shift for place, tap in enumerate(TAPS)}
            own = {tap: 60.0 - 2 * place + shift for place, tap in enumerate(taps)}
            runs[method].append(probed(make_run(f"{method}{seed}", taps, seed=seed), errors, 5.0 + shift, own))
    return runs


def drawn(axes: Any) -> dict[str, Any]:
    """Return label -> line, whiskers."""
    return {each.get_label(): each for each in axes.containers}


@pytest.mark.parametrize("wide", [True, False])
def test_means_and_deviations_over_seeds(pair: dict[str, list[RunRecord]], wide: bool) -> None:
    drawing = draw_layers(pair, wide=wide)
    assert drawing is not None
    axes = drawing.figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == [*TAPS, "output"]
    lines = drawn(axes)
    kinds = {
        "CNN-SVM: plain net": ("CNN-SVM", "probes", (*TAPS, "output")),
        "DSN-SVM: trained with companions": ("DSN-SVM", "probes", (*TAPS, "output")),
        "DSN-SVM: its companions": ("DSN-SVM", "layers", TAPS),
    }
    assert lines.keys() == kinds.keys()
    for label, (method, key, layers) in kinds.items():
        errors = [
            [run.insight["layers" if layer == "output" else key][layer]["error"] for run in pair[method]]
            for layer in layers
        ]
        line, _, (whiskers,) = lines[label].lines
        assert list(line.get_ydata()) == pytest.approx([mean(each) for each in errors])
        ends = [sorted(point[1] for point in segment) for segment in whiskers.get_segments()]
        wanted = [[mean(each) - stdev(each), mean(each) + stdev(each)] for each in errors]
        assert ends == [pytest.approx(each) for each in wanted]


def test_filled_is_with_companions_and_hollow_is_plain(pair: dict[str, list[RunRecord]]) -> None:
    drawing = draw_layers(pair)
    assert drawing is not None
    for label, container in drawn(drawing.figure.axes[0]).items():
        line = container.lines[0]
        look = (to_hex(line.get_color()), to_hex(line.get_markerfacecolor()))
        assert look == ((PLAIN, PAPER) if label.startswith("CNN") else (SUPERVISED, SUPERVISED)), label


def test_one_seed_has_no_whiskers(pair: dict[str, list[RunRecord]]) -> None:
    drawing = draw_layers({method: runs[:1] for method, runs in pair.items()})
    assert drawing is not None
    assert all(not container.has_yerr for container in drawn(drawing.figure.axes[0]).values())


def test_only_runs_that_were_inspected_count(pair: dict[str, list[RunRecord]]) -> None:
    for run in pair["DSN-SVM"][1:]:
        del run.insight["probes"]
    lines = layer_lines(pair["DSN-SVM"])
    assert {len(errors) for line in lines.values() for errors in line.values()} == {1}
    del pair["DSN-SVM"][0].insight["probes"]
    lines = layer_lines(pair["DSN-SVM"])
    assert lines.keys() == {"companion"}
    assert list(lines["companion"]) == [*TAPS, "output"]


def test_nothing_known_nothing_drawn(make_run: Callable[..., Path]) -> None:
    assert draw_layers({"DSN-SVM": [read_run(make_run("mine", seen=False))]}) is None
    assert draw_layers({}) is None


def test_the_pair_with_most_seeds_comes_first(make_comparison: Callable[..., Path]) -> None:
    comparison = read_comparison(make_comparison())
    assert list(probed_pairs(comparison)) == ["Softmax", "SVM"]
    comparison.runs["CNN-Softmax"][0].insight.pop("probes")
    assert list(probed_pairs(comparison)) == ["SVM", "Softmax"]
    comparison.runs["CNN-Softmax"][1].insight.pop("probes")
    assert list(probed_pairs(comparison)) == ["SVM"]
    assert probed_pairs(Comparison("none", Path(), {}, {})) == {}
