"""FSDP2 with two processes, activation checkpoints, accumulation and compilation: the losses of one plain process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fsdp_worker import CASES, build, train

pytestmark = pytest.mark.slow  # test_distributed.py has two processes in less time

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fsdp")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [*command, str(HERE / "fsdp_worker.py"), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_one_plain_process(results: Path, case: str) -> None:
    plain = case.replace("fsdp", "").replace("checkpoint", "")  # one process, nothing sharded, the whole batch
    expected = torch.stack(train(build(plain), case, [0, 1]))
    assert expected[0] > expected[-1]
    theirs = torch.load(results / f"{case}.pt", weights_only=True)
    torch.testing.assert_close(theirs, expected, rtol=1e-9, atol=1e-9)
