"""``deepsup doctor``: versions, devices, installed extras and a short self-test."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from deepsup.cli.app import Flag, show, table, verb
from deepsup.cli.self_test import SKIPPED, self_tests


@verb("doctor")
def doctor(json: Flag = False) -> int:
    """Check the installation: versions, devices, extras, the data folder, and a self-test of about 20 seconds.

    Args:
        json: print one JSON object
    """
    import torch

    from deepsup.trainer.runs import environment_now

    answer: dict[str, Any] = environment_now() | {
        "threads": torch.get_num_threads(),
        "devices": ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))],
        "precision": _precision(),
        "extras": _extras(),
        "torchvision": _torchvision(),
    }
    began = time.monotonic()
    checks = {"data folder writable": _data_folder, **self_tests(answer["devices"])}
    answer["checks"] = {name: _verdict(check) for name, check in checks.items()}
    answer["ok"] = all(each == "ok" or each.startswith(SKIPPED) for each in answer["checks"].values())
    answer["seconds"] = round(time.monotonic() - began, 2)
    show(answer, _text(answer), json)
    return 0 if answer["ok"] else 1


def _precision() -> dict[str, dict[str, str]]:
    """Return type of device -> the precision that a run under ``--amp auto`` has there, and why."""
    import torch

    from deepsup.trainer.training import bfloat16_on

    reasons = {device: bfloat16_on(device) for device in ("cpu", *(["cuda"] * torch.cuda.is_available()))}
    return {
        device: {"precision": "bfloat16" if each.fast else "float32", "why": each.why}
        for device, each in reasons.items()
    }


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


def _torchvision() -> str:
    """Return the version of torchvision; where it does not import, what to install. It is not needed by deepsup."""
    try:
        version = metadata.version("torchvision")
        import_module("torchvision")
    except metadata.PackageNotFoundError:
        return "not installed"
    except Exception as error:
        torch = metadata.version("torch")
        why = " ".join(str(error).split())
        return (
            f"{version} does not import ({why}): it was built for another torch than {torch}; install the build for "
            f"this one, from the same place as torch (pytorch.org, Get Started). --network resnet18 works anyway"
        )
    return version


def _verdict(check: Callable[[], str]) -> str:
    """Return "ok" or the error. Any exception is caught: a report on a broken installation must not break."""
    try:
        return check() or "ok"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _data_folder() -> str:
    """Return what is wrong with the data folder, or nothing."""
    from deepsup.trainer.data import data_folder

    folder = data_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"cannot write {folder}: {error.strerror}; set DEEPSUP_DATA to a folder that you can write"


def _text(answer: dict[str, Any]) -> str:
    versions = ("deepsup", "python", "torch", "numpy", "system", "machine", "cores", "threads")
    rows: list[list[object]] = [[name, answer[name]] for name in versions]
    rows.append(["devices", " ".join(answer["devices"])])
    for device, each in answer["precision"].items():
        rows.append([f"--amp auto on {device}", f"{each['precision']}: {each['why']}"])
    for extra, missing in answer["extras"].items():
        rows.append([f"extra {extra}", f"not installed: {' '.join(missing)}" if missing else "installed"])
    rows.append(["torchvision", answer["torchvision"]])
    rows += [[name, verdict] for name, verdict in answer["checks"].items()]
    end = "everything works" if answer["ok"] else "something does not work: see above"
    return f"{table(['', ''], rows).strip()}\n\n{end} ({answer['seconds']:.1f} s)"
