"""Deep supervision for any PyTorch model: hidden layers get their own classifiers and losses.

The names below, and ``__version__``, are the whole public interface. They are loaded when first used, so that
``import deepsup`` and ``deepsup --help`` do not wait for torch.
"""

TYPE_CHECKING = False  # nothing is imported here: a Ctrl-C before main() can catch it would show a traceback
if TYPE_CHECKING:
    from deepsup.errors import DeepsupError as DeepsupError
    from deepsup.exits import EarlyExit as EarlyExit
    from deepsup.exits import calibrate as calibrate
    from deepsup.exporting import export as export
    from deepsup.insight import probe as probe
    from deepsup.objective import Loss as Loss
    from deepsup.objective import Objective as Objective
    from deepsup.supervision import Companion as Companion
    from deepsup.supervision import DeeplySupervised as DeeplySupervised
    from deepsup.supervision import DeepOutput as DeepOutput
    from deepsup.supervision import supervise as supervise
    from deepsup.supervision import tappable as tappable
    from deepsup.trainer.config import Config as Config
    from deepsup.trainer.data import load_data as load_data
    from deepsup.trainer.estimator import DeeplySupervisedClassifier as DeeplySupervisedClassifier
    from deepsup.trainer.networks import create_network as create_network
    from deepsup.trainer.networks import list_networks as list_networks
    from deepsup.trainer.runs import Run as Run
    from deepsup.trainer.runs import train as train
    from deepsup.trainer.studies import compare as compare

    __version__: str

_HOME = {
    "Companion": "supervision",
    "Config": "trainer.config",
    "DeepOutput": "supervision",
    "DeeplySupervised": "supervision",
    "DeeplySupervisedClassifier": "trainer.estimator",
    "DeepsupError": "errors",
    "EarlyExit": "exits",
    "Loss": "objective",
    "Objective": "objective",
    "Run": "trainer.runs",
    "calibrate": "exits",
    "compare": "trainer.studies",
    "create_network": "trainer.networks",
    "export": "exporting",
    "list_networks": "trainer.networks",
    "load_data": "trainer.data",
    "probe": "insight",
    "supervise": "supervision",
    "tappable": "supervision",
    "train": "trainer.runs",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "__version__":
        return import_module("importlib.metadata").version("deepsup")
    if name not in _HOME:
        raise AttributeError(f"module 'deepsup' has no attribute {name!r}; it has: {', '.join(__all__)}")
    from deepsup.errors import extras_named

    with extras_named(f"deepsup.{name}"):
        return getattr(import_module(f"deepsup.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
