"""The net in training -> its errors on validation and test images, the same in all processes."""

from typing import Any

import torch

from deepsup.insight import DenseMeasurement, Measurement, layers_facts, measure, measure_dense
from deepsup.trainer.data import Dataset, Part
from deepsup.trainer.preprocess import Normalizer, to_tensor
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.training import Callback, Training, answering
from deepsup.trainer.training import _checkpoint as checkpoint


class Measuring(Callback):
    """Adds validation and test errors to the record of an epoch; keeps the weights of the best epoch."""

    def __init__(self, run: RunFolder, data: Dataset, normalize: Normalizer) -> None:
        self.run, self.data, self.normalize = run, data, normalize

    def epoch_ended(self, training: Training, record: dict[str, Any]) -> None:
        """Measure where the config asks for it."""
        epoch, config, first = record["epoch"], training.config, training.processes.first
        if self.data.validation is not None and _due(epoch, config.run.validate_every):
            error, companions = self.errors(training, self.data.validation)
            record |= {"validation_error": error, "validation_companions": companions}
            whole = training.step == 0  # limit_steps can end within an epoch: a higher limit trains on from there
            if whole and training.judge(epoch, error) and first:
                checkpoint.save(self.run.checkpoints / "best.pt", {"net": training.trained.state_dict()})
        if _due(epoch, config.run.test_every):
            measured = self.measure(training, self.data.test) if first else None
            record["test_error"], record["test_companions"] = self.share(training, measured)
            if isinstance(measured, Measurement):
                record["test_layers"] = layers_facts(measured)

    def errors(self, training: Training, part: Part) -> tuple[float, dict[str, float]]:
        """Return the errors of the output and of the companions on a part, the same in all processes."""
        return self.share(training, self.measure(training, part) if training.processes.first else None)

    def measure(self, training: Training, part: Part) -> Measurement | DenseMeasurement:
        """Measure the trained net on a part, in this process."""
        how = measure_dense if part.dense else measure
        net = training.trained
        return how(net, to_tensor(part.images), torch.from_numpy(part.labels), self.normalize,
                   forward=answering(training.config, net))  # fmt: skip

    def share(
        self, training: Training, measured: Measurement | DenseMeasurement | None
    ) -> tuple[float, dict[str, float]]:
        """Return the errors that the first process measured, in all processes."""
        taps = training.net.taps
        values = torch.zeros(1 + len(taps), dtype=torch.float64)
        if measured is not None:
            values = torch.tensor([measured.error, *measured.companion_errors.values()], dtype=torch.float64)
        error, *companions = training.processes.sum(values).tolist()
        return error, dict(zip(taps, companions, strict=True))


def _due(epoch: int, every: int) -> bool:
    return bool(every) and (epoch + 1) % every == 0
