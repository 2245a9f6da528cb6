"""A scikit-learn classifier that trains a deeply supervised net."""

from deepsup.errors import DeepsupError as _DeepsupError

try:
    from deepsup.trainer.estimator.classifier import DeeplySupervisedClassifier
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise _DeepsupError(
        'DeeplySupervisedClassifier needs scikit-learn, which is not installed; pip install "deepsup[sklearn]"'
    ) from error

__all__ = ["DeeplySupervisedClassifier"]
