"""The example for users of scikit-learn, run as they would run it."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "scikit_learn.py"


def test_the_example_runs_and_the_net_is_no_worse_than_an_svc(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = {name.strip(): float(value) for name, value in re.findall(r"^(.*?)\s+(\d\.\d+)$", ran.stdout, re.MULTILINE)}
    assert {"SVC", "net", "relu1", "output"} <= found.keys()
    assert found["net"] > found["SVC"] - 0.005
    assert ran.stderr == ""
