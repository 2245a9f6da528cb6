"""A recorded row, trained again with its config and its threads, gives the recorded error to the digit."""

from pathlib import Path

import pytest
import torch

from deepsup.paper import read_record, repeat
from deepsup.trainer.data import KNOWN, is_present
from deepsup.trainer.runs._environment import environment_now

RESULTS = Path(__file__).parents[2] / "results" / "first-protocol"


@pytest.mark.skipif(not is_present(KNOWN["mnist"]), reason="MNIST is not in the data folder: deepsup data get mnist")
def test_a_row_of_the_committed_results_repeats(tmp_path: Path) -> None:
    record = read_record(RESULTS / "fig2b-cpu.json")
    made, here = record["environment"], environment_now()
    if (made["torch"], made["cpu"]) != (here["torch"], torch.backends.cpu.get_cpu_capability()):
        pytest.skip(f"recorded with torch {made['torch']} on {made['cpu']}: other arithmetic rounds otherwise")
    recorded, now = repeat(record, "DSN-SVM, 250 digits", 1, tmp_path / "run")
    assert recorded == now
