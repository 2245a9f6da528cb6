"""Two processes with half the batch each, started by torchrun: gradients of one process on the joined batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ddp_worker import build, build_dense, settings
from nets import objective_of

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ddp")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [*command, str(HERE / "ddp_worker.py"), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", ["gated", "open for one", "closed for one"])
def test_gradients_are_those_of_the_joined_batch(results: Path, case: str) -> None:
    """Also where the gate would be open in one process and closed in the other: it acts on the joined batch."""
    net, x, y = build()
    loss = objective_of(net, **settings(net, x, y, case))(net(x), y)
    loss.total.backward()
    assert bool(loss.active["conv1"]) is (case == "open for one")
    assert not loss.active["pool1"]
    if case != "gated":  # the halves by themselves would disagree
        halves = [objective_of(net, **settings(net, x, y, case))(net(x[r]), y[r]) for r in (slice(4), slice(4, 8))]
        assert {bool(half.active["conv1"]) for half in halves} == {True, False}
    theirs = torch.load(results / f"{case}.pt", weights_only=True)
    torch.testing.assert_close(theirs["total"], loss.total.detach(), rtol=1e-12, atol=1e-12)
    for name, p in net.named_parameters():
        torch.testing.assert_close(theirs["gradients"][name], p.grad, rtol=1e-10, atol=1e-12, msg=name)
    assert theirs["gradients"]["heads.pool1.classifier.weight"].abs().max() == 0


def test_a_dense_net_with_a_gated_and_a_zero_weighted_head(results: Path) -> None:
    net, x, y, objective = build_dense()
    loss = objective(net(x), y)
    loss.total.backward()
    assert {name: bool(active) for name, active in loss.active.items()} == {"up3": False, "up2": False, "fuse": True}
    theirs = torch.load(results / "dense.pt", weights_only=True)
    for name, p in net.named_parameters():
        torch.testing.assert_close(theirs[name], p.grad, rtol=1e-10, atol=1e-12, msg=name)
