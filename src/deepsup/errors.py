"""The exceptions for user errors. Each message says what was given, what was expected and what to do.

::

    Exception
     └─ DeepsupError
         ├─ SupervisionError (ValueError)    a model, a tap or a companion that cannot be supervised
         ├─ ObjectiveError (ValueError)      scores, labels, weights or settings that the objective cannot use
         ├─ DataError (ValueError)           files, folders or archives that are not valid data
         │   └─ StorageError                 a data folder that cannot be written: full, read-only, not a folder
         ├─ NetworkError (ValueError)        a network that does not exist or cannot be built with these options
         ├─ ConfigError (ValueError)         a setting that does not exist or has an invalid value
         ├─ RunError (ValueError)            a run folder or a checkpoint that is not valid
         │   └─ WriteError                   a file that cannot be written: full, read-only, gone, a link in its place
         ├─ ExportError (ValueError)         a net or a format that cannot be exported
         ├─ MissingPackageError (ImportError)  a package that is not installed, with the extra that brings it
         └─ TrainingError (RuntimeError)     a training that cannot start or cannot continue
             └─ DivergedError                a training in which the loss, a score or a weight is not finite
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

PACKAGES = {
    "train": "PIL platformdirs pooch requests rich scipy tyro yaml",
    "figures": "jinja2 markupsafe matplotlib",
    "export": "onnx onnxruntime onnxscript",
    "hub": "huggingface_hub",
    "sklearn": "sklearn",
    "sweep": "optuna psycopg psycopg2 sqlalchemy",
    "ray": "ray",
    "tensorboard": "tensorboard",
    "bench": "lightning pytorch_lightning skorch",
}
"""Extra -> the packages that it brings, by the names under which they are imported."""
EXTRAS = {package: extra for extra, packages in PACKAGES.items() for package in packages.split()}


class DeepsupError(Exception):
    """The base class: ``except DeepsupError`` catches every error that deepsup raises on purpose."""


class SupervisionError(DeepsupError, ValueError):
    """A model, a tap or a companion that cannot be supervised."""


class ObjectiveError(DeepsupError, ValueError):
    """Scores, labels, weights or settings that the objective cannot use."""


class DataError(DeepsupError, ValueError):
    """Files, folders or archives that are not valid data."""


class StorageError(DataError):
    """A data folder that cannot be written: full, read-only, not a folder."""


class NetworkError(DeepsupError, ValueError):
    """A network that does not exist or cannot be built with these options."""


class ConfigError(DeepsupError, ValueError):
    """A setting that does not exist or has an invalid value."""


class RunError(DeepsupError, ValueError):
    """A run folder or a checkpoint that is not valid."""


class WriteError(RunError):
    """A file that cannot be written: full, read-only, gone, a link in its place."""

    again = "try again"
    """How to go on, when the cause is removed; whoever knows a better way says so here."""

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(fault, remedy)

    def __str__(self) -> str:
        return f"{self.args[0]}; {self.args[1]}, then {self.again}"


class ExportError(DeepsupError, ValueError):
    """A net or a format that cannot be exported."""


class MissingPackageError(DeepsupError, ImportError):
    """A package that is not installed, with the extra that brings it."""


class TrainingError(DeepsupError, RuntimeError):
    """A training that cannot start or cannot continue."""


class DivergedError(TrainingError):
    """A training in which the loss, a score or a weight is not finite."""


@contextmanager
def extras_named(what: str) -> Iterator[None]:
    """Say which extra brings a package that turns out to be missing; ``what`` is the subject of the sentence."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if isinstance(error, DeepsupError) or package not in EXTRAS:
            raise
        raise MissingPackageError(
            f'{what} needs the package {package}, which is not installed; pip install "deepsup[{EXTRAS[package]}]"'
        ) from error


def nearest(given: str, known: Iterable[str], most: int = 8) -> str:
    """Return the end of a message about an unknown name: the nearest known names, or the first few known ones.

    >>> nearest("conv9", ["conv1", "conv3", "fc"])
    "did you mean 'conv3' or 'conv1'?"
    >>> nearest("zzz", ["conv1", "fc"])
    'expected one of: conv1, fc'
    """
    known = list(known)
    close = difflib.get_close_matches(given, known, n=3)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    more = ", ..." if len(known) > most else ""
    return "expected one of: " + ", ".join(known[:most]) + more
