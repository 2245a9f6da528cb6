"""The name of a rival's package -> the package, or None where it is not installed. The library needs none of them."""

import importlib
import importlib.util
import sys
from types import ModuleType

import torch

INSTALL = "pip install 'deepsup[bench]'"
_operators: list[torch.library.Library] = []


def missing(packages: tuple[str, ...]) -> list[str]:
    """Return those of the packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def torchvision_transforms() -> ModuleType:
    """Return torchvision's transforms.

    torchvision 0.28 beside a CPU build of torch does not import until two operators that it misses are declared.
    """
    try:
        return importlib.import_module("torchvision.transforms")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        _operators.append(library)  # they live as long as it does
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        return importlib.import_module("torchvision.transforms")
