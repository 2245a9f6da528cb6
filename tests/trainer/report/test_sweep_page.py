"""The page about a sweep: the winners, the defaults and every trial in its place; missing parts leave it whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepsup.errors import RunError
from deepsup.trainer.report import write_report
from deepsup.trainer.report._read import read_sweep
from deepsup.trainer.report._sweep_figures import best_so_far, draw_importance, draw_search, draw_slice
from deepsup.trainer.studies._sweep_summary import verdict


def trial(method: str, number: int, error: float | None, **settings: Any) -> dict[str, Any]:
    state = "complete" if error is not None else "pruned"
    return {"method": method, "number": number, "state": state, "validation_error": error, "settings": settings,
            "seconds": 3.0, "epochs": 2}  # fmt: skip


@pytest.fixture
def make_sweep(tmp_path: Path) -> Callable[..., Path]:
    def make(interval: tuple[float, float] | None = (-0.9, -0.1), tested: bool = True) -> Path:
        points = [(8.0, "linear"), (6.5, "<b>"), (None, "linear"), (7.0, "cut")]
        ours = [trial("supervised", n, error, lr=0.01 * (n + 1), schedule=schedule, hidden=[64] * (n % 2))
                for n, (error, schedule) in enumerate(points)]  # fmt: skip
        plain = [trial("plain", n, error, lr=0.01 * (n + 1)) for n, error in enumerate([9.0, 8.5, 8.75, 9.5, 1.0])]
        final = {"errors": [5.0, 6.0], "mean": 5.5, "deviation": 0.7} if tested else {}
        shared = {"trials": 4, "states": {"complete": 4}, "seconds": 12.0, "importance": {"lr": 0.75, "schedule": 0.25}}
        methods = {
            "supervised": {
                **shared, **final, "validation_error": 6.5, "settings": ours[1]["settings"], "defaults_error": 8.0
            },
            "plain": {**shared, **final, "validation_error": 8.5, "settings": {"lr": 0.02}, "defaults_error": 9.0},
        }  # fmt: skip
        table = {
            "best": {"method": "supervised", "validation_error": 6.5, "settings": ours[1]["settings"]},
            "methods": methods, "trials": ours + plain, "validation_images": 500,
            "space": {
                "lr": {"low": 0.01, "high": 0.1, "log": True}, "schedule": ["linear", "<b>"], "hidden": [[], [64]]
            },
            "config": {"data": "mnist-mini", "epochs": 3},
        }  # fmt: skip
        if tested:
            table["difference"] = {"mean": -0.5, "interval": interval, "p": 0.01}
            if interval is not None:
                table["verdict"] = verdict("supervised", interval)
            table["best"]["config"] = "runs/sweep/best.yaml"
        folder = tmp_path / "swept"
        folder.mkdir(exist_ok=True)
        (folder / "sweep.json").write_text(json.dumps(table))
        return folder

    return make


def test_everything_is_on_the_page(make_sweep: Callable[..., Path]) -> None:
    folder = make_sweep()
    page = write_report([folder]).read_text()
    assert "went from an error of 8.00 % at the defaults to 6.50 %" in page
    assert "companions help (95 % interval of the difference -0.90 to -0.10 points, 2 seeds)" in page
    assert "<b>" not in page.split("</header>")[1]
    assert f"<span>--config</span> <span>{folder}/best.yaml</span>" in page  # a moved sweep has its own
    assert {path.stem for path in (folder / "plots").glob("*.svg")} == {
        "search", "importance-supervised", "importance-plain", "slice-lr", "slice-schedule", "slice-hidden"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((-0.5, 0.5), "not a significant difference"),
        ((0.1, 0.9), "undecided: the validation images chose the supervised net"),
        (None, "one seed cannot show"),
    ],
)
def test_what_the_difference_means(interval: Any, said: str, make_sweep: Callable[..., Path]) -> None:
    assert said in write_report([make_sweep(interval)]).read_text()


def test_a_sweep_that_is_not_tested_yet_beside_a_run(
    make_sweep: Callable[..., Path], make_run: Callable[..., Path], tmp_path: Path
) -> None:
    page = write_report([make_sweep(tested=False), make_run("mine")], tmp_path / "page.html").read_text()
    assert "The winners have not been tested." in page
    assert "Side by side: swept, mine" in page
    assert "swept: result" in page


def test_figures_count_as_many_trials_of_each_net(make_sweep: Callable[..., Path]) -> None:
    """The fifth trial of the plain net, the best of all, has no counterpart: it does not count."""
    sweep = read_sweep(make_sweep())
    assert best_so_far(sweep.counted("plain")) == [9.0, 8.5, 8.5, 8.5]
    assert best_so_far(sweep.counted("supervised")) == [8.0, 6.5, 6.5, 6.5]
    assert draw_search(sweep).alt.endswith("with companions 6.50 % after 4, plain 8.50 % after 4.")
    assert "lr 75 %" in draw_importance(sweep, "plain").alt
    (axes,) = draw_slice(sweep, "lr").figure.axes
    points = [line.get_xydata().tolist() for line in axes.get_lines()]
    assert points[0] == [[0.01, 8.0], [0.02, 6.5], [0.04, 7.0]]
    assert [len(each) for each in points] == [3, 4]
    assert draw_slice(sweep, "hidden").figure.axes[0].get_xlim() == (-0.5, 1.5)
    sweep.table["space"]["alpha"] = {"low": 0.1, "high": 1.0, "log": True}
    for each in sweep.table["trials"]:
        each["settings"]["alpha"] = []  # the default of the layers' own kind, which is no number
    assert draw_slice(sweep, "alpha") is None


@pytest.mark.parametrize("change", [{"methods": {}}, {"trials": [{}]}, {"space": 3}])
def test_a_damaged_record_is_one_line(change: dict[str, Any], make_sweep: Callable[..., Path]) -> None:
    folder = make_sweep()
    table = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps(table | change))
    with pytest.raises(RunError, match=r"cannot read .*sweep.json: "):
        write_report([folder])
