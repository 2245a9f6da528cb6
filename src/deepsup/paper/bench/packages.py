"""Optional packages that the bench compares with. The library needs none of them."""

import importlib
import importlib.util
import sys
from types import ModuleType

import torch

INSTALL = "pip install 'deepsup[bench]'"
_operators: list[torch.library.Library] = []


def missing(packages: tuple[str, ...]) -> list[str]:
    """Return the packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def torchvision_transforms() -> ModuleType:
    """Return torchvision's transforms.

    torchvision 0.28 with a CPU build of torch does not import until its two missing operators are declared.
    """
    try:
        return importlib.import_module("torchvision.transforms")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        _operators.append(library)  # the operators live as long as the library object
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        return importlib.import_module("torchvision.transforms")
