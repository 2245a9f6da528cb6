"""Every mistake a user can make -> one exception whose message says what was given, what was expected, what to do.

Exception
 └─ DeepsupError
     ├─ SupervisionError (ValueError)   a model, a tap or a companion that cannot be supervised as asked
     ├─ ObjectiveError   (ValueError)   scores, labels, weights or settings the objective cannot use
     ├─ DataError        (ValueError)   files, folders or archives that are not the data they should be
     │   └─ StorageError                a data folder that cannot be written: full, read-only, no folder
     └─ NetworkError     (ValueError)   a network that does not exist or cannot be built as asked
"""

import difflib
from collections.abc import Iterable


class DeepsupError(Exception):
    """The root: ``except DeepsupError`` catches every mistake that deepsup reports."""


class SupervisionError(DeepsupError, ValueError):
    """A model, a tap or a companion that cannot be supervised as asked."""


class ObjectiveError(DeepsupError, ValueError):
    """Scores, labels, weights or settings the objective cannot use."""


class DataError(DeepsupError, ValueError):
    """Files, folders or archives that are not the data they should be."""


class StorageError(DataError):
    """A data folder that cannot be written: full, read-only, no folder."""


class NetworkError(DeepsupError, ValueError):
    """A network that does not exist or cannot be built as asked."""


class ConfigError(DeepsupError, ValueError):
    """A setting that does not exist or has a value it cannot have."""


class RunError(DeepsupError, ValueError):
    """A run folder or a checkpoint that is not what it should be."""


class TrainingError(DeepsupError, RuntimeError):
    """A training that cannot start or cannot go on."""


class DivergedError(TrainingError):
    """A training whose numbers have left all bounds."""


def nearest(given: str, known: Iterable[str], most: int = 8) -> str:
    """Return the tail of a message about an unknown name: the nearest names, or the first few there are.

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
