"""One process of two, started by torchrun: a step on this rank's half of the batch; rank 0 saves all gradients."""

import sys
from pathlib import Path

import torch
from dense_nets import dense_net, masks
from nets import CLASSES, ConvNet, objective_of
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from deepsup import Companion, DeeplySupervised, Objective, supervise
from deepsup.trainer.training._distributed import joined

BATCH = 8


def build() -> tuple[DeeplySupervised, Tensor, Tensor]:
    """Return the net and the joined batch; its first half is made much easier to get wrong than its second."""
    torch.manual_seed(7)
    x = torch.randn(BATCH, 2, 8, 8, dtype=torch.float64)
    x[: BATCH // 2] *= 4
    y = torch.arange(BATCH) % CLASSES
    model = ConvNet().double().eval()
    taps, companion = ["conv1", "pool1", "conv2"], Companion.paper()
    return supervise(model, at=taps, num_classes=CLASSES, companion=companion, example=x[:1]), x, y


def settings(net: DeeplySupervised, x: Tensor, y: Tensor, case: str) -> dict[str, dict[str, float]]:
    """Return alpha and gamma: conv1 gated, pool1 at alpha 0; or conv1's gate such that the two halves disagree."""
    alpha = {"conv1": 0.5, "pool1": 0.0, "conv2": 0.7}
    with torch.no_grad():
        whole, *halves = (
            objective_of(net)(net(x[rows]), y[rows]).companions["conv1"].item()
            for rows in (slice(None), slice(BATCH // 2), slice(BATCH // 2, None))
        )
    gamma = {"gated": 1e6, "open for one": whole - 0.1 * (whole - min(halves))}
    gamma["closed for one"] = whole + 0.1 * (max(halves) - whole)
    return {"alpha": alpha, "gamma": {"conv1": gamma[case], "pool1": 0.0, "conv2": 0.0}}


def build_dense() -> tuple[DeeplySupervised, Tensor, Tensor, Objective]:
    """Return a U-Net with a gated, a zero-weighted and a fused output, its joined batch and its objective."""
    torch.manual_seed(8)
    net = dense_net(fuse=True).double()
    x, y = torch.randn(BATCH, 1, 16, 16, dtype=torch.float64), masks(BATCH)
    alpha, gamma = {"up3": 0.5, "up2": 0.0, "fuse": 0.7}, {"up3": 1e6, "up2": 0.0, "fuse": 0.0}
    return net, x, y, Objective(net, "dice_ce", alpha=alpha, gamma=gamma, schedule="constant")


def run_dense(folder: Path, rank: int) -> None:
    """Take two steps of a dense net and save the gradients of the second."""
    rows = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    net, x, y, objective = build_dense()
    parallel = DistributedDataParallel(net)
    for _ in range(2):
        parallel.zero_grad()
        objective(parallel(x[rows]), y[rows]).total.backward()
    if rank == 0:
        torch.save({name: p.grad for name, p in net.named_parameters()}, folder / "dense.pt")


def run(case: str, folder: Path, rank: int) -> None:
    """Take two steps of one case and save the gradients of the second."""
    rows = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    net, x, y = build()
    parallel = DistributedDataParallel(net)
    objective = objective_of(parallel, **settings(net, x, y, case))
    for _ in range(2):  # a second step raises where a parameter was not used in the first
        parallel.zero_grad()
        loss = objective(parallel(x[rows]), y[rows])
        loss.total.backward()
    totals = loss.total.detach()
    distributed.all_reduce(totals)
    if rank == 0:
        gradients = {name: p.grad for name, p in net.named_parameters()}
        torch.save({"total": totals / 2, "gradients": gradients}, folder / f"{case}.pt")


def main(folder: Path) -> None:
    """Run every case and save its gradients."""
    with joined("cpu") as processes:
        for case in ("gated", "open for one", "closed for one"):
            run(case, folder, processes.rank)
        run_dense(folder, processes.rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
