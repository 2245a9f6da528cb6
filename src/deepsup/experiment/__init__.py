"""The one place that knows every stage: a config in, a trained and recorded run out; runs in, answers out."""

from deepsup.experiment.compare import compare
from deepsup.experiment.train import Watch, train
from deepsup.experiment.use import evaluate, predict

__all__ = ["Watch", "compare", "evaluate", "predict", "train"]
