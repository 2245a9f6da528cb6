"""Build a user's own network, given as ``my_file.py:MyNet`` or ``package.module:factory``."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from deepsup.adapters import with_torchvision
from deepsup.errors import ConfigError, DeepsupError, nearest
from deepsup.trainer.config import Config

Factory = Callable[..., Any]


def own_network(config: Config, classes: int, factory: Factory | None = None) -> nn.Module:
    """Call the factory with num_classes and the network's options; by default the one that the config names.

    Only a training imports by name: its user has typed the name, so that a module of the current folder will do.
    """
    options = {"num_classes": classes, **config.network.options}
    try:
        with nullcontext() if factory else current_folder_searched():
            network = with_torchvision(lambda: (factory or imported(config.network.name))(**options))
    except DeepsupError:
        raise
    except Exception as error:
        call = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ConfigError(
            f"network={config.network.name} cannot be built ({type(error).__name__}: {error}); expected "
            f"my_file.py:MyNet or package.module:factory, a callable that takes {call}"
        ) from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network={config.network.name} gives a {type(network).__name__}; expected a torch.nn.Module")
    return network


def trusted_factory(name: str) -> Factory:
    """Import the factory that a run names: its reader has said ``--trust``. The current folder is not searched."""
    try:
        factory: Factory = with_torchvision(lambda: imported(name))
    except DeepsupError:
        raise
    except Exception as error:
        raise ConfigError(
            f"cannot import network={name} ({type(error).__name__}: {error}); expected package.module:factory of an "
            f"installed package; a module of the current folder needs PYTHONPATH=. in front of the command"
        ) from error
    return factory


@contextmanager
def current_folder_searched() -> Iterator[None]:
    """Find a user's own module in the folder she trains in."""
    with _searched(Path.cwd()):
        yield


@contextmanager
def _searched(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def imported(name: str) -> Any:
    """Return the factory called ``my_file.py:MyNet`` or ``package.module:factory``."""
    module_name, _, factory = name.rpartition(":")
    module = _module_of(Path(module_name)) if is_file(name) else importlib.import_module(module_name)
    if not hasattr(module, factory):
        classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
        nets = [
            key for key, each in classes.items() if issubclass(each, nn.Module) and each.__module__ == module.__name__
        ]
        raise ConfigError(
            f"{module_name} has no {factory!r}; {nearest(factory, nets) if nets else 'it has no nn.Module'}"
        )
    return getattr(module, factory)


def is_file(name: str) -> bool:
    """Whether a network's name begins with a file: such a network is found wherever one is."""
    return name.rpartition(":")[0].endswith(".py")


def _module_of(path: Path) -> Any:
    """Import a file under a name that no package has; modules beside it are found."""
    path = path.expanduser().resolve()
    name = f"file_{path.stem}"
    if getattr(sys.modules.get(name), "__file__", None) == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"no file {path}; expected the one that defines the network, my_file.py:MyNet")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _searched(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
