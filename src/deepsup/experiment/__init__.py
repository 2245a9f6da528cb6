"""The one place that knows every stage: a config in, a trained and recorded run out; runs in, answers out."""

from deepsup.experiment.compare import compare
from deepsup.experiment.inspect import inspect, inspect_image
from deepsup.experiment.run import Run
from deepsup.experiment.train import Watch, train
from deepsup.experiment.use import evaluate, predict

__all__ = ["Run", "Watch", "compare", "evaluate", "inspect", "inspect_image", "predict", "train"]
