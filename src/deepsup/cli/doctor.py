"""``deepsup doctor``: versions, devices, installed extras and a short self-test."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from deepsup.cli.app import Flag, show, table, verb


@verb("doctor")
def doctor(json: Flag = False) -> int:
    """Check the installation: versions, devices, extras, the data folder, and a self-test of a few seconds.

    Args:
        json: print one JSON object
    """
    import torch

    from deepsup.runs.environment import environment_now

    found: dict[str, Any] = environment_now() | {
        "threads": torch.get_num_threads(),
        "devices": ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))],
        "extras": _extras(),
    }
    began = time.monotonic()
    found["checks"] = {name: _verdict(check) for name, check in _CHECKS.items()}
    found["ok"] = all(each == "ok" for each in found["checks"].values())
    found["seconds"] = round(time.monotonic() - began, 2)
    show(found, _text(found), json)
    return 0 if found["ok"] else 1


def _extras() -> dict[str, list[str]]:
    """Return extra -> its packages that are not installed."""
    missing: dict[str, list[str]] = {}
    for requirement in metadata.requires("deepsup") or []:
        named, extra = re.match(r"[\w.-]+", requirement), re.search(r"extra == ['\"](\w+)", requirement)
        if named and extra and named[0] != "deepsup":
            packages = missing.setdefault(extra[1], [])
            try:
                metadata.version(named[0])
            except metadata.PackageNotFoundError:
                packages.append(named[0])
    return missing


def _verdict(check: Callable[[], str]) -> str:
    """Return "ok" or the error. Any exception is caught: a report on a broken installation must not break."""
    try:
        return check() or "ok"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _data_folder() -> str:
    """Return what is wrong with the data folder, or nothing."""
    from deepsup.data import data_folder

    folder = data_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"cannot write {folder}: {error.strerror}; set DEEPSUP_DATA to a folder that you can write"


def _tiny() -> tuple[Any, Any, Any]:
    """Return a net of two convolutions, supervised at both, with 12 images [12,1,8,8] and labels of 3 classes."""
    import torch
    from torch import nn

    from deepsup.supervision import supervise

    draw = torch.Generator().manual_seed(0)
    images, labels = torch.randn(12, 1, 8, 8, generator=draw), torch.arange(12) % 3
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3)
        )
        return supervise(model, num_classes=3, at=["1", "3"], example=images[:1]), images, labels


def _objective(net: Any) -> Any:
    from deepsup.objective import Objective

    return Objective(net, loss="softmax", alpha=0.5, gamma=0.0, schedule="constant", norms=False, average=False)


def _objective_agrees() -> str:
    """Compare the objective with a loop over samples and classes in plain Python."""
    import math

    net, images, labels = _tiny()
    out = net(images)

    def loop(scores: Any) -> float:
        rows = scores.detach().double().tolist()
        losses: list[float] = [
            math.log(sum(map(math.exp, row))) - row[label] for row, label in zip(rows, labels, strict=True)
        ]
        return sum(losses) / len(losses)

    expected = loop(out.scores) + 0.5 * sum(map(loop, out.companions.values()))
    got = float(_objective(net)(out, labels).total.detach())
    return "" if math.isclose(got, expected, rel_tol=1e-5) else f"objective {got:.6f}, a plain loop {expected:.6f}"


def _trains() -> str:
    """Train two steps; every parameter must change, and the objective must decrease."""
    import torch

    net, images, labels = _tiny()
    objective, optimizer = _objective(net), torch.optim.SGD(net.parameters(), lr=0.05)
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


def _strips() -> str:
    """Remove the companions; the net must give the same scores, bit for bit."""
    import torch

    net, images, _ = _tiny()
    scores = net.eval()(images).scores
    return "" if torch.equal(net.strip()(images), scores) else "the stripped net gives different scores"


_CHECKS = {
    "data folder writable": _data_folder,
    "objective equals a plain loop": _objective_agrees,
    "two steps of training": _trains,
    "stripped net is bit-identical": _strips,
}


def _text(found: dict[str, Any]) -> str:
    versions = ("deepsup", "python", "torch", "numpy", "system", "machine", "cores", "threads")
    rows: list[list[object]] = [[name, found[name]] for name in versions]
    rows.append(["devices", " ".join(found["devices"])])
    for extra, missing in found["extras"].items():
        rows.append([f"extra {extra}", f"not installed: {' '.join(missing)}" if missing else "installed"])
    rows += [[name, verdict] for name, verdict in found["checks"].items()]
    end = "everything works" if found["ok"] else "something does not work: see above"
    return f"{table(['', ''], rows).strip()}\n\n{end} ({found['seconds']:.1f} s)"
