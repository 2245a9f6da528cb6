"""The self-test of ``deepsup doctor``: each check returns what is wrong, or nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

SKIPPED = "skipped: "
"""How a verdict begins if a check cannot run here; that is no fault."""


def self_tests(devices: Sequence[str]) -> dict[str, Callable[[], str]]:
    """Return the checks by name; training and mixed precision are checked on every device."""
    on = [("" if device == "cpu" else f", {device}", device) for device in devices]
    return {
        "objective equals a plain loop": objective_agrees,
        **{f"two steps of training{name}": partial(trains, device) for name, device in on},
        **{f"mixed precision (AMP){name}": partial(mixed_precision, device) for name, device in on},
        "stripped net is bit-identical": strips,
        "a run of deepsup train": runs,
        "torch.compile equals eager": compiled_agrees,
        "two processes (DDP) equal one": two_processes_agree,
    }


def tiny() -> tuple[Any, Any, Any]:
    """Return a net of two convolutions, supervised at both, with 12 images [12,1,8,8] and labels of 3 classes."""
    import torch
    from torch import nn

    from deepsup.supervision import Companion, supervise

    draw = torch.Generator().manual_seed(0)
    images, labels = torch.randn(12, 1, 8, 8, generator=draw), torch.arange(12) % 3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3)
        )
        exact = Companion(rate=1.0, join="sum")  # the gradient of the objective itself, to compare with
        net = supervise(model, num_classes=3, at=["1", "3"], example=images[:1], companion=exact)
        return net, images, labels


def plain_objective(net: Any) -> Any:
    """Return the sum of all losses, with alpha 0.5."""
    from deepsup.objective import Objective

    return Objective(net, loss="softmax", alpha=0.5, gamma=0.0, schedule="constant", norms=False, average=False)


def objective_agrees() -> str:
    """Compare the objective with a loop over samples and classes in plain Python."""
    import math

    net, images, labels = tiny()
    out = net(images)

    def loop(scores: Any) -> float:
        rows = scores.detach().double().tolist()
        losses: list[float] = [
            math.log(sum(map(math.exp, row))) - row[label] for row, label in zip(rows, labels, strict=True)
        ]
        return sum(losses) / len(losses)

    expected = loop(out.scores) + 0.5 * sum(map(loop, out.companions.values()))
    got = float(plain_objective(net)(out, labels).total.detach())
    return "" if math.isclose(got, expected, rel_tol=1e-5) else f"objective {got:.6f}, a plain loop {expected:.6f}"


def trains(device: str) -> str:
    """Train two steps on a device; every parameter must change, and the objective must decrease."""
    import torch

    net, images, labels = (each.to(device) for each in tiny())
    objective, optimizer = plain_objective(net), torch.optim.SGD(net.parameters(), lr=0.05)
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    losses = []
    for _ in range(3):
        loss = objective(net(images), labels).total
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    unchanged = [name for name, value in net.named_parameters() if torch.equal(value, before[name])]
    if unchanged:
        return f"these parameters did not change: {', '.join(unchanged)}"
    return "" if losses[2] < losses[0] else f"the objective went from {losses[0]:.4f} to {losses[2]:.4f} in two steps"


def strips() -> str:
    """Remove the companions; the net must give the same scores, bit for bit."""
    import torch

    net, images, _ = tiny()
    scores = net.eval()(images).scores
    return "" if torch.equal(net.strip()(images), scores) else "the stripped net gives different scores"


def gradients(net: Any, images: Any, labels: Any) -> dict[str, Any]:
    """Return the gradient of every parameter after one backward pass."""
    plain_objective(net)(net(images), labels).total.backward()
    return {name: value.grad for name, value in net.named_parameters()}


def farthest(ours: dict[str, Any], expected: dict[str, Any]) -> float:
    """Return the largest difference of two sets of gradients, relative to the largest gradient."""
    most = max(float(each.abs().max()) for each in expected.values())
    return max(float((ours[name] - each).abs().max()) for name, each in expected.items()) / most


def mixed_precision(device: str) -> str:
    """Compare the direction of the gradient under autocast with that in float32; bfloat16 has 8 bits."""
    import torch

    net, images, labels = (each.to(device) for each in tiny())
    expected = {name: each.clone() for name, each in gradients(net, images, labels).items()}
    net.zero_grad()
    with torch.autocast(device.split(":")[0], torch.bfloat16):
        mixed = gradients(net, images, labels)
    ours, theirs = (torch.cat([each[name].float().flatten() for name in expected]) for each in (mixed, expected))
    cosine = float(torch.cosine_similarity(ours, theirs, dim=0))
    return "" if cosine > 0.99 else f"the gradient under autocast has a cosine of {cosine:.3f} with that in float32"


def runs() -> str:
    """Train one epoch on 100 embedded digits, and load the run."""
    import torch

    from deepsup.trainer.config import Config
    from deepsup.trainer.runs import train

    config = Config(train_size=100, epochs=1, batch_size=50, tensorboard=False)
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        run = train(config, Path(folder) / "run")
        run.load()
        error = run.result["error"]
    return "" if error is not None and 0 <= error <= 100 else f"the test error is {error} %"


def compiled_agrees() -> str:
    """Compare the gradients of the compiled net with those of the net itself."""
    import torch

    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        return f"{SKIPPED}no C++ compiler is installed"
    net, images, labels = tiny()
    expected = {name: each.clone() for name, each in gradients(net, images, labels).items()}
    net.zero_grad()
    compiled: Any = torch.compile(net)
    plain_objective(net)(compiled(images), labels).total.backward()
    off = farthest({name: value.grad for name, value in net.named_parameters()}, expected)
    return "" if off < 1e-4 else f"gradients of the compiled net differ by {off:.1%} of the largest"


def two_processes_agree() -> str:
    """Compare the gradients of two processes, half of the batch each, with those of one; two GPUs are used if there."""
    import torch
    from torch import distributed
    from torch.multiprocessing.spawn import spawn

    if not distributed.is_available():
        return f"{SKIPPED}this build of torch has no torch.distributed"
    with tempfile.TemporaryDirectory() as folder:
        spawn(one_of_two, (folder,), nprocs=2)  # type: ignore[no-untyped-call]
        together = torch.load(Path(folder) / "gradients.pt", weights_only=True)
    off = farthest(together, gradients(*tiny()))
    return "" if off < 1e-4 else f"gradients of two processes differ by {off:.1%} of the largest"


def one_of_two(rank: int, folder: str) -> None:
    """Compute the gradients of half of the batch, averaged over two processes; the first one writes them."""
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    gpus = torch.cuda.device_count() > 1
    device = f"cuda:{rank}" if gpus else "cpu"
    distributed.init_process_group("nccl" if gpus else "gloo", f"file://{folder}/store", rank=rank, world_size=2)
    try:
        net, images, labels = (each.to(device) for each in tiny())
        copies = DistributedDataParallel(net)
        plain_objective(net)(copies(images[rank::2]), labels[rank::2]).total.backward()
        if rank == 0:
            gradients_here = {
                name: value.grad.cpu() for name, value in net.named_parameters() if value.grad is not None
            }
            torch.save(gradients_here, Path(folder) / "gradients.pt")
    finally:
        distributed.destroy_process_group()
