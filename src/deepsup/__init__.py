"""Deep supervision for any PyTorch model: every hidden layer gets a classifier and a loss of its own.

The names below are the whole public interface. They are loaded when first used, so that ``import deepsup`` and
``deepsup --help`` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepsup.data import load_data as load_data
    from deepsup.errors import DeepsupError as DeepsupError

_HOME = {
    "DeepsupError": "errors",
    "load_data": "data",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'deepsup' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(f"deepsup.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
