"""The page: everything on it, nothing from outside, every name escaped, and any run that there can be."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from deepsup.cli import main
from deepsup.trainer.report import write_report

Make = Callable[..., Path]
EVIL = "<script>alert('&$x')</script>"  # as in conftest

WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is not installed")

sys.meta_path.insert(0, Blocker())
from deepsup.cli import main
sys.exit(main(["report", *sys.argv[1:]]))
"""


class Page(HTMLParser):
    """The elements of a page: tag -> their attributes, and the text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: dict[str, list[dict[str, str | None]]] = {}
        self.text = ""
        self.source = path.read_text()
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.setdefault(tag, []).append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_self_contained(page: Page) -> None:
    """Nothing runs, nothing is fetched, every picture says what it shows."""
    assert not {"script", "iframe", "object", "embed", "base"} & page.elements.keys()
    for tag, elements in page.elements.items():
        for attributes in elements:
            for name, value in attributes.items():
                assert not name.startswith("on"), (tag, name)
                if name in ("src", "href", "xlink:href"):
                    assert (value or "").startswith(("data:", "#")), (tag, name, value)
    assert "@import" not in page.source
    assert not re.search(r"url\((?!#)", page.source)
    figures = [each for each in page.elements["figure"] if "role" in each]
    assert len(figures) == len(page.elements["svg"])
    assert all(len(each["aria-label"] or "") > 20 for each in figures)
    assert all(each["alt"] for each in page.elements.get("img", []))


def test_a_run_on_one_page(make_run: Make) -> None:
    page = Page(write_report([make_run("mine")]))
    check_self_contained(page)
    for words in ("Summary", "5.00 %", "What each layer knows", "9.00 %", "linear probe", "Training", "Mistakes",
                  "No test image of: c", "Settings"):  # fmt: skip
        assert words in page.text, words
    assert "running or stopped" not in page.text
    named = " ".join(each["aria-label"] or "" for each in page.elements["figure"] if "role" in each)
    for words in ("Error of every layer", "Losses", "active", "Variance", "Confusion", "Feature maps", "filters"):
        assert words in named
    assert "mathdefault" not in page.source  # formulas are off: a class may be called "$"
    assert EVIL in page.text
    assert EVIL not in page.source


def test_figures_are_left_as_png_and_svg(make_run: Make) -> None:
    folder = make_run("mine")
    write_report([folder])
    kinds = {path.suffix: path.read_bytes()[:8] for path in (folder / "plots").iterdir()}
    assert kinds == {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml ve"}
    assert {path.stem for path in (folder / "plots").glob("*.svg")} == {
        "activity", "agreement", "confusion", "feature-maps", "filters", "gradients", "layer-errors", "layer-insight",
        "losses",
    }  # fmt: skip


def test_two_runs_side_by_side(make_run: Make, tmp_path: Path) -> None:
    ours, theirs = make_run("ours"), make_run("theirs", taps=())
    page = Page(write_report([ours, theirs], tmp_path / "both.html"))
    check_self_contained(page)
    assert "Side by side" in page.text
    # the records say 4 with companions, 2 without
    assert "conv1 2.00, fc 1.00" in page.source


def test_a_comparison_shows_the_four_methods_and_what_next(make_comparison: Make) -> None:
    page = Page(write_report([make_comparison()]))
    check_self_contained(page)
    for words in ("CNN-Softmax", "DSN-Softmax", "CNN-SVM", "DSN-SVM", "5.50 ± 0.70", "0.60 to 0.80", "2 of 2",
                  "CNN-SVM, seed 1: did not learn", "What each layer knows", "What to try next",
                  "Companions help here"):  # fmt: skip
        assert words in page.text, words


def lead(page: Page) -> str:
    """Return what the first screen says before all figures."""
    found = re.findall(r'<p class="lead">(.*?)</p>', page.source, re.DOTALL)
    assert found
    return " ".join(found)


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        (
            (0.6, 0.8),
            "With companions the test error is 0.70 times that without (95 % interval 0.60 to 0.80), lower",
        ),
        (
            (1.1, 1.9),
            "With companions the test error is 1.50 times that without (95 % interval 1.10 to 1.90), lower",
        ),
        (
            (0.8, 1.4),
            "2 seeds do not decide it: with companions the test error is 1.10 times that without (95 % inter",
        ),
        (None, "With companions the test error is 1.00 times that without, with one seed, which says nothing about ch"),
    ],
)
def test_the_first_screen_says_what_came_out_and_what_was_compared(
    make_comparison: Make, interval: tuple[float, float] | None, outcome: str
) -> None:
    said = lead(Page(write_report([make_comparison(interval=interval)])))
    assert said.startswith(outcome)
    assert said.endswith(
        "The network nin-mnist was trained on 500 training images of mnist-mini by 4 methods with 2 seeds each, and "
        "all 8 nets were tested on the same 5,000 images."
    )
    assert "significant" not in said


def test_companions_save_epochs_and_norms_come_first(make_comparison: Make) -> None:
    """The curves of conftest are 50, 25 and 16.7 % in training; those of DSN-Softmax are made lower here."""
    folder = make_comparison()
    table = json.loads((folder / "comparison.json").read_text())
    ratio = {"ratio": 0.5, "interval": [0.4, 0.6], "lower": 2, "pairs": 2, "p": 0.5}
    table["ratios"] = {"DSN-Softmax / CNN-Softmax": ratio, "BatchNorm / CNN-Softmax": ratio}
    (folder / "comparison.json").write_text(json.dumps(table))
    for metrics in folder.glob("dsn-softmax-*/metrics.jsonl"):
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        lower = [record | {"error": 30.0 / (1 + record["epoch"])} for record in records]
        metrics.write_text("".join(json.dumps(record) + "\n" for record in lower))
    said = lead(Page(write_report([folder])))
    assert "after 2 of 3 epochs the net with them has the error in training that the net without them ends with" in said
    assert "(16.7 %)" in said
    assert "the test error is 0.50 times that of the plain net. If you can add BatchNorm, add it first." in said


def test_the_page_of_an_earlier_version_has_no_ratio(make_comparison: Make) -> None:
    folder = make_comparison()
    table = json.loads((folder / "comparison.json").read_text())
    del table["ratios"], table["notes"]
    table["differences"] = {"DSN-SVM - CNN-SVM": {"mean": -0.5, "interval": [-0.9, -0.1], "p": 0.01}}
    (folder / "comparison.json").write_text(json.dumps(table))
    page = Page(write_report([folder]))
    assert "5.50 ± 0.70" in page.text
    assert lead(page).startswith("The network nin-mnist")


def test_the_first_screen_of_a_run(make_run: Make) -> None:
    said = lead(Page(write_report([make_run("mine", data="photos", seed=3)])))
    assert said == (
        "The network cnn was trained with companions at conv1 on 500 training images of photos for 3 epochs, seed 3. "
        "It is wrong on 5.00 % of 5,000 test images; the errors of its companions are 9.00 % at conv1."
    )


def test_the_page_explains_companions(make_comparison: Make) -> None:
    assert "What is a companion?" in Page(write_report([make_comparison()])).text


def test_comparisons_of_several_sizes(make_comparison: Make) -> None:
    page = Page(write_report([make_comparison("small", 100), make_comparison("large", 1000)]))
    check_self_contained(page)
    assert "against the size of the training set" in page.text


def test_a_run_without_companions(make_run: Make) -> None:
    page = Page(write_report([make_run("plain", taps=())]))
    check_self_contained(page)
    assert "CNN-SVM" in page.text


def test_a_run_without_probes_does_not_speak_of_them(make_run: Make) -> None:
    folder = make_run("trained")
    assert "A linear probe measures that" in Page(write_report([folder])).text
    found = json.loads((folder / "insight.json").read_text())
    del found["probes"]
    (folder / "insight.json").write_text(json.dumps(found))
    page = Page(write_report([folder]))
    assert "deepsup inspect adds linear probes" in page.text
    assert "Test errors of the companions and of the output." in page.text
    assert "of a linear probe" not in page.text


def test_a_run_still_going(make_run: Make) -> None:
    folder = make_run("going", epochs=2, finished=False, seen=False)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "lo')
    page = Page(write_report([folder]))
    check_self_contained(page)
    assert "epoch 2 of 3" in page.text
    assert "deepsup inspect adds it" in page.text
    (folder / "metrics.jsonl").unlink()
    assert "No epoch has ended yet" in Page(write_report([folder])).text


def test_a_metric_that_is_no_number(make_run: Make) -> None:
    folder = make_run("broken", epochs=2)
    record = {
        "epoch": 2,
        "loss": float("nan"),
        "error": None,
        "companion_errors": {"conv1": float("inf")},
        "active": None,
    }
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    page = Page(write_report([folder]))
    check_self_contained(page)
    assert "Training diverged: the loss is not a number in epoch 2" in page.text
    assert "nan" not in page.text.lower()


def test_a_run_of_another_version(make_run: Make) -> None:
    folder = make_run("old", seen=False)
    (folder / "config.yaml").write_text(yaml.safe_dump({"a_knob_of_old": 1}))
    (folder / "metrics.jsonl").write_text('{"epoch": 0, "loss": 2.0}\n')
    (folder / "result.json").unlink()
    (folder / "environment.json").unlink()
    page = Page(write_report([folder]))
    assert "a_knob_of_old" in page.text


def test_figures_need_no_torch(make_run: Make, make_comparison: Make, tmp_path: Path) -> None:
    folders = [str(make_comparison()), str(make_run("ours"))]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *folders, "--out", str(tmp_path / "page.html")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    check_self_contained(Page(tmp_path / "page.html"))


def test_the_verb(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run("mine")
    assert main(["report", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(folder / "report.html")


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_what_draws_it_says_what_to_install(make_run: Make, missing: str) -> None:
    code = WITHOUT_TORCH.replace('"torch"', f'"{missing}"').replace(
        'ImportError("torch is not installed")', f'ImportError(name="{missing}")'
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(make_run("mine"))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        f'deepsup: the report needs the package {missing}, which is not installed; pip install "deepsup[figures]"\n'
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "config.yaml").unlink(), "is no run: it has no config.yaml"),
        (lambda f: (f / "config.yaml").write_text("a: [b"), "cannot read"),
        (lambda f: (f / "result.json").write_text("{"), "cannot read"),
        (lambda f: (f / "insight.npz").write_text("{"), "cannot read"),
        (lambda f: (f / "comparison.json").write_text("{}"), "has no 'methods'"),
    ],
)
def test_what_is_no_run_ends_in_one_line(
    make_run: Make, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], object], words: str
) -> None:
    folder = make_run("mine")
    spoil(folder)
    assert main(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
