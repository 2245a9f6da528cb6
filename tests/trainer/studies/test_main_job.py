"""What ``make run`` trains: in a short form, and whole on other seeds."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from deepsup import load_data
from deepsup.cli import main
from deepsup.trainer.data import subset

(COMMAND,) = [
    shlex.split(line)[1:]
    for line in (Path(__file__).parents[3] / "Makefile").read_text().splitlines()
    if line.startswith("\t$(BIN)/deepsup compare")
]
SAID = "With companions the test error is "


def test_the_main_job_in_a_short_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMAND[:3] == ["compare", "--recipe", "quick"]
    assert "--rates" not in COMMAND, "a search"
    assert int(COMMAND[COMMAND.index("--seeds") + 1]) >= 6
    digits = load_data()
    train, test = subset(digits.train, 500), subset(digits.test, 200)
    np.savez(tmp_path / "few.npz", x_train=train.images, y_train=train.labels, x_test=test.images, y_test=test.labels)
    short = ["--seeds", "2", "--jobs", "1", "--limit-steps", "3", "--out", str(tmp_path / "run")]
    short += ["--data", str(tmp_path / "few.npz")]
    assert main([*COMMAND, *short]) == 0
    said = capsys.readouterr()
    assert "for 6 runs; Ctrl-C keeps what is done" in said.err
    assert said.err.count("Ctrl-C") == 1
    assert all(name in said.out for name in ("CNN-Softmax", "DSN-Softmax", "BatchNorm", "DSN-Softmax / CNN-Softmax: "))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "the test error is" in page
    assert page.index("Results") < page.index("What each layer knows") < page.index("What to try next")
    config = json.loads((tmp_path / "run" / "comparison.json").read_text())["config"]
    assert (config["train_size"], config["epochs"], config["batch_size"]) == (500, 30, 25)


@pytest.mark.slow
def test_the_main_job_on_other_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The seeds 100 to 105 were looked at by nobody when the settings were chosen."""
    assert main([*COMMAND, "--seed", "100", "--out", str(tmp_path / "run"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["seeds"] == [100, 101, 102, 103, 104, 105]
    assert answer["methods"]["CNN-Softmax"]["mean"] < 20, "a net that learns alone"
    ratio = answer["ratios"]["DSN-Softmax / CNN-Softmax"]
    assert ratio["interval"][1] < 1
    assert ratio["lower"] >= 5
    assert SAID in Path(answer["report"]).read_text()
