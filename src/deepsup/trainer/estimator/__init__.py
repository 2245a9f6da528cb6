"""A scikit-learn classifier that trains a deeply supervised net."""

from deepsup.errors import extras_named as _extras_named

with _extras_named("DeeplySupervisedClassifier"):
    from deepsup.trainer.estimator._classifier import DeeplySupervisedClassifier

__all__ = ["DeeplySupervisedClassifier"]
