"""Labels of runs on one page: no two are the same, and what differs is what they say."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deepsup.trainer.report import write_report
from deepsup.trainer.report._labels import labelled
from deepsup.trainer.report._read import read_run

Make = Callable[..., Path]


def labels(*folders: Path) -> list[str]:
    return [run.label for run in labelled([read_run(folder) for folder in folders])]


def test_methods_are_enough_where_they_differ(make_run: Make) -> None:
    assert labels(make_run("ours"), make_run("theirs", taps=())) == ["DSN-SVM", "CNN-SVM"]


def test_what_differs_between_configs(make_run: Make) -> None:
    folders = [make_run("a", alpha=[0.1], keep=1), make_run("b", alpha=[0.3], keep=1), make_run("c", taps=())]
    assert labels(*folders) == ["DSN-SVM, alpha 0.1", "DSN-SVM, alpha 0.3", "CNN-SVM"]


def test_two_settings_where_one_is_not_enough(make_run: Make) -> None:
    knobs = [(1, 0.1), (1, 0.2), (2, 0.1)]
    folders = [make_run(f"r{seed}{lr}", seed=seed, lr=lr) for seed, lr in knobs]
    assert labels(*folders) == [f"DSN-SVM, lr {lr}, seed {seed}" for seed, lr in knobs]


def test_the_folder_where_configs_are_the_same(make_run: Make) -> None:
    assert labels(make_run("first"), make_run("again")) == ["first", "again"]
    assert labels(make_run("x/same"), make_run("y/same")) == ["x/same", "y/same"]


def test_values_that_are_long_and_end_alike_are_told_apart(make_run: Make) -> None:
    taps = [[f"features.block{n}.layer.convolution" for n in many] for many in ((1, 2, 3), (1, 9, 3))]
    found = labels(*(make_run(f"r{n}", taps_named=each) for n, each in enumerate(taps)))
    assert len(set(found)) == 2


@pytest.mark.parametrize("names", [("a", "b"), ("x/same", "y/same")])
def test_two_runs_of_one_method_side_by_side(make_run: Make, tmp_path: Path, names: tuple[str, str]) -> None:
    """Every figure shows both; today's page drew one of them twice, and their files had one name."""
    folders = [make_run(name, seed=seed) for seed, name in enumerate(names)]
    page = write_report(folders, tmp_path / "out" / "both.html").read_text()
    for label in ("DSN-SVM, seed 0", "DSN-SVM, seed 1"):
        for where in (f">{label}<", f">{label}, all<", f">{label}: trained with companions<"):
            assert where in page, where
    assert len(list((tmp_path / "out" / "plots").glob("*confusion.png"))) == 2


def test_a_run_given_twice_is_shown_once(make_run: Make) -> None:
    folder = make_run("mine")
    assert "side by side" not in write_report([folder, folder]).read_text()
