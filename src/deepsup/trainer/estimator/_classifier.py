"""``DeeplySupervisedClassifier``: arrays of samples and labels in, predicted labels out, as scikit-learn wants it.

N samples, D features, C channels, H W image, K classes.
"""

# ruff: noqa: N803, N806 - X is scikit-learn's name

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from deepsup.errors import ConfigError, DataError
from deepsup.insight import Measurement, measure
from deepsup.supervision import Companion
from deepsup.trainer.config import Config
from deepsup.trainer.estimator._fitting import build_supervised, settled, train_net
from deepsup.trainer.estimator._samples import Array, check_shape, fit_samples
from deepsup.trainer.training import EarlyStopping, answering, device_of


def _has_probabilities(classifier: DeeplySupervisedClassifier) -> bool:
    if classifier.loss != "softmax":
        raise AttributeError(f"probabilities need loss='softmax', this is loss={classifier.loss!r}; use the scores")
    return True


class DeeplySupervisedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A scikit-learn classifier: a net whose hidden layers have classifiers and losses of their own.

    X: vectors [N,D], or images [N,H,W], [N,H,W,C] or [N,C,H,W], of any number type.

    Parameters
    ----------
    network : ``"auto"`` is a perceptron for vectors and a small CNN for images. Or: the name of a network of deepsup,
        an ``nn.Module`` (it is copied, never changed), or a callable that returns one. The callable is given what it
        takes of ``num_classes`` and ``shape``, (D,) or (C,H,W).
    at : the layers with a companion: names, ``"auto"``, a mapping from names to companions, or ``()`` for none.
    companion : how features become scores, a ``deepsup.Companion``.
    image_shape : (H, W), (H, W, C) or (C, H, W): makes images of vectors.
    channels : ``"first"`` or ``"last"``: the axis of the channels of images; ``"auto"`` finds it.
    scale : scale the samples by the mean and the deviation of the training samples: images per channel; vectors per
        feature, with one deviation for all if most features have similar ranges, as pixels do.
    loss : ``softmax``, ``squared_hinge``, ``hinge``, ``squared_hinge_ovr`` or ``hinge_ovr``.
    alpha : the weight of the companions, by default that of ``deepsup.Objective``; it decays to 0 over the training. 0
        trains a plain net.
    epochs : passes over the training samples.
    batch_size : samples per step.
    lr, weight_decay : learning rate and weight decay of AdamW; the rate rises, then falls along a cosine.
    early_stopping : hold out ``validation_fraction`` of the samples, stratified by class; stop after ``patience``
        epochs without a lower error on them, and keep the weights of the best epoch.
    random_state : the seed of weights, batches, dropout and hold-out.
    device : ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:N``.
    amp : ``on`` trains and predicts in bfloat16, ``auto`` does where this machine is fast in it.
    learning_rate : the older name of ``lr``; if it is given, it counts.

    Attributes
    ----------
    classes_ : the labels, sorted: the order of all scores.
    net_ : the trained ``DeeplySupervised``; ``net_.strip()`` is the plain network.
    history_ : a dict per epoch: losses and errors (percent), of the companions too.
    n_iter_ : the epochs that were trained.
    n_features_in_ : D.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = DeeplySupervisedClassifier(epochs=2, random_state=0).fit(X[:300], y[:300])
    >>> {name: scores.shape for name, scores in classifier.companion_scores(X[300:]).items()}
    {'relu1': (1497, 10), 'relu2': (1497, 10)}
    """

    def __init__(
        self,
        network: Any = "auto",
        *,
        at: str | Sequence[str] | Mapping[str, Companion] = "auto",
        companion: Companion | None = None,
        image_shape: tuple[int, ...] | None = None,
        channels: str = "auto",
        scale: bool = True,
        loss: str = "softmax",
        alpha: float | None = None,
        epochs: int = 40,
        batch_size: int = 64,
        lr: float = 0.003,
        weight_decay: float = 0.05,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        random_state: Any = None,
        device: str = "auto",
        amp: str = "off",
        learning_rate: float | None = None,
    ) -> None:
        self.network = network
        self.at = at
        self.companion = companion
        self.image_shape = image_shape
        self.channels = channels
        self.scale = scale
        self.loss = loss
        self.alpha = alpha
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.device = device
        self.amp = amp
        self.learning_rate = learning_rate

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any) -> DeeplySupervisedClassifier:
        """Train a new net on samples X [N, ...] and labels y [N]."""
        X, y = validate_data(self, X, y, dtype="numeric", allow_nd=True, ensure_min_samples=2)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise DataError(f"y has one class, {classes[0]}; expected samples of at least two classes")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        config = self._config(seed)
        device = device_of(config)
        trained, watched = self._parts(codes, seed)
        samples = fit_samples(X[trained], self.image_shape, self.channels, self.scale)
        labels = torch.from_numpy(codes.astype(np.int64))
        stopping = EarlyStopping(samples(X[watched]), labels[watched], self.patience) if len(watched) else None
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            net = build_supervised(self.network, self.at, self.companion, samples.shape, len(classes), config)
            config = settled(config, net, samples.shape)
            history = train_net(net, (samples(X[trained]), labels[trained]), config, stopping)
        self.classes_, self.samples_, self.net_, self.config_ = classes, samples, net, config
        self.history_, self.n_iter_ = history, len(history)
        return self

    def predict(self, X: Any) -> Array:
        """Return the label of each sample, [N]."""
        places = self._measured(X).scores.argmax(1).numpy()
        labels: Array = self.classes_[places]
        return labels

    def decision_function(self, X: Any) -> Array:
        """Return the scores [N,K]; for two classes, [N]: the score of ``classes_[1]`` minus that of ``classes_[0]``."""
        scores: Array = self._measured(X).scores.numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, [N,K]; only with ``loss="softmax"``."""
        probabilities: Array = self._measured(X).scores.softmax(1).numpy()
        return probabilities

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class, [N,K]; only with ``loss="softmax"``."""
        logarithms: Array = self._measured(X).scores.log_softmax(1).numpy()
        return logarithms

    def companion_scores(self, X: Any) -> dict[str, Array]:
        """Return the scores of each companion: layer name -> [N,K], from the first layer to the last."""
        return {name: scores.numpy() for name, scores in self._measured(X).companions.items()}

    def _measured(self, X: Any) -> Measurement:
        check_is_fitted(self)
        if len(self.samples_.given) > 1 or len(getattr(X, "shape", ())) > 2:  # the number of features says too little
            check_shape(X, self.samples_.given)
        X = validate_data(self, X, reset=False, dtype="numeric", allow_nd=True)
        labels = torch.zeros(len(X), dtype=torch.long)
        return measure(self.net_, self.samples_(X), labels, forward=answering(self.config_, self.net_))

    def _config(self, seed: int) -> Config:
        """Return the settings of the training, checked."""
        return Config(
            loss=self.loss, alpha=() if self.alpha is None else self.alpha, epochs=self.epochs,
            lr=self.lr if self.learning_rate is None else self.learning_rate, seed=seed, batch_size=self.batch_size,
            optimizer="adamw", weight_decay=self.weight_decay, anneal="cosine", device=self.device, amp=self.amp,
            amp_test=True, gradient_every=0,
            companion_lr=(self.companion or Companion()).rate,
        )  # fmt: skip

    def _parts(self, codes: Array, seed: int) -> tuple[Array, Array]:
        """Return the indices of the samples to train on and of those that are held out; the latter may be empty."""
        everyone = np.arange(len(codes))
        if not self.early_stopping:
            return everyone, everyone[:0]
        if not isinstance(self.patience, Integral) or self.patience < 1:
            raise ConfigError(f"patience={self.patience!r}; expected a number of epochs, 1 or more")
        try:
            trained, watched = train_test_split(
                everyone, test_size=self.validation_fraction, stratify=codes, random_state=seed
            )
        except ValueError as error:
            raise DataError(
                f"early_stopping cannot hold out validation_fraction={self.validation_fraction!r} of {len(codes)} "
                f"samples ({error}); expected a fraction with samples of every class; give more samples, or "
                f"early_stopping=False"
            ) from error
        return np.sort(trained), np.sort(watched)
