"""Deep supervision for any PyTorch model: hidden layers get their own classifiers and losses.

The names below, and ``__version__``, are the whole public interface. They are loaded when first used, so that
``import deepsup`` and ``deepsup --help`` do not wait for torch.
"""

TYPE_CHECKING = False  # nothing is imported here: a Ctrl-C before main() can catch it would show a traceback
if TYPE_CHECKING:
    from deepsup.config import Config as Config
    from deepsup.data import load_data as load_data
    from deepsup.errors import DeepsupError as DeepsupError
    from deepsup.estimator import DeeplySupervisedClassifier as DeeplySupervisedClassifier
    from deepsup.exits import EarlyExit as EarlyExit
    from deepsup.exits import calibrate as calibrate
    from deepsup.exporting import export as export
    from deepsup.networks import create_network as create_network
    from deepsup.networks import list_networks as list_networks
    from deepsup.objective import Loss as Loss
    from deepsup.objective import Objective as Objective
    from deepsup.probing import probe as probe
    from deepsup.runs.run import Run as Run
    from deepsup.runs.train import train as train
    from deepsup.studies.model_comparison import compare as compare
    from deepsup.supervision import Companion as Companion
    from deepsup.supervision import DeeplySupervised as DeeplySupervised
    from deepsup.supervision import DeepOutput as DeepOutput
    from deepsup.supervision import supervise as supervise

    __version__: str

_HOME = {
    "Companion": "supervision",
    "Config": "config",
    "DeepOutput": "supervision",
    "DeeplySupervised": "supervision",
    "DeeplySupervisedClassifier": "estimator",
    "DeepsupError": "errors",
    "EarlyExit": "exits",
    "Loss": "objective",
    "Objective": "objective",
    "Run": "runs.run",
    "calibrate": "exits",
    "compare": "studies.model_comparison",
    "create_network": "networks",
    "export": "exporting",
    "list_networks": "networks",
    "load_data": "data",
    "probe": "probing",
    "supervise": "supervision",
    "train": "runs.train",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "__version__":
        return import_module("importlib.metadata").version("deepsup")
    if name not in _HOME:
        raise AttributeError(f"module 'deepsup' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(f"deepsup.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
