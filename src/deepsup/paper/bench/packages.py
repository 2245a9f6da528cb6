"""Optional packages that the bench compares with. The library needs none of them."""

import importlib
import importlib.util
from types import ModuleType

from deepsup.adapters import with_torchvision

INSTALL = "pip install 'deepsup[bench]'"


def missing(packages: tuple[str, ...]) -> list[str]:
    """Return the packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def torchvision_transforms() -> ModuleType:
    """Return torchvision's transforms."""
    transforms: ModuleType = with_torchvision(lambda: importlib.import_module("torchvision.transforms"))
    return transforms
