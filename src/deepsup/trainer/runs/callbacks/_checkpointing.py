"""A run's training -> its checkpoints, written as it goes, and the training restored from the newest of them."""

import time
from pathlib import Path
from typing import Any

from deepsup.errors import RunError
from deepsup.io import below
from deepsup.trainer.config import Config, current_name
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._start_or_resume import CHANGEABLE, CHANGEABLE_AFTER_DIVERGENCE, check_same
from deepsup.trainer.runs._starting_weights import GONE
from deepsup.trainer.training import Callback, Training
from deepsup.trainer.training import _checkpoint as checkpoint


class Checkpointing(Callback):
    """Saves the training every few minutes or steps and at its end.

    facts: what a checkpoint holds besides the state of the training; ``data`` in it is the digest of the images.
    """

    def __init__(self, run: RunFolder, facts: dict[str, Any]) -> None:
        self.run, self.facts = run, facts
        self._before, self._began = 0.0, time.monotonic()
        self._saved_at, self._saved_iteration = time.monotonic(), -1

    @property
    def seconds(self) -> float:
        """How long the run has taken so far, over all its parts."""
        return self._before + time.monotonic() - self._began

    def step_ended(self, training: Training) -> None:
        """Save if it is time to."""
        if self.due(training):
            self.save(training)

    def ended(self, training: Training) -> None:
        """Save the last steps: what follows takes time too, and must not cost them."""
        if training.iteration != self._saved_iteration:
            self.save(training)

    def due(self, training: Training) -> bool:
        """Whether it is time for a checkpoint, in all processes alike."""
        config = training.config
        if config.run.checkpoint_steps is not None and training.iteration % config.run.checkpoint_steps == 0:
            return True
        return training.processes.any(time.monotonic() - self._saved_at >= 60 * config.run.checkpoint_minutes)

    def save(self, training: Training) -> None:
        """Write a checkpoint; weights that are not finite are never written."""
        if not all(bool(parameter.isfinite().all()) for parameter in training.net.parameters()):
            raise training.diverged("a weight is not finite", training.optimizer.param_groups[0]["lr"])
        state = training.state() | self.facts | {"seconds": self.seconds}
        if training.processes.first:
            checkpoint.save(checkpoint.step_path(self.run.checkpoints, training.iteration), state)
            checkpoint.keep_last(self.run.checkpoints, training.config.run.keep)
        self._saved_at, self._saved_iteration = time.monotonic(), training.iteration

    def restore(self, training: Training) -> None:
        """Restore the training from the newest checkpoint, if there is one; it must fit the config and the data."""
        newest = checkpoint.latest_valid(below(self.run.folder, self.run.checkpoints.name))
        if newest is not None:
            self.restore_from(training, *newest)

    def restore_from(self, training: Training, path: Path, state: dict[str, Any]) -> None:
        try:
            self._check(training.config, state, path)
            training.restore(state)
            self._before, self._saved_iteration = state["seconds"], training.iteration
        except Exception as error:  # a checkpoint of a stranger can hold anything
            if isinstance(error, RunError):
                raise
            reason = " ".join(str(error).split())[:200]
            raise RunError(f"{path} does not fit the run ({reason}); has the network changed since?") from error

    def _check(self, config: Config, state: dict[str, Any], path: Path) -> None:
        recorded = Config.recorded(state["config"], str(path))  # an older one has fewer settings
        changed = {current_name(key) for change in self.run.changes for key in change["changed"]}
        free = CHANGEABLE | changed | (CHANGEABLE_AFTER_DIVERGENCE if self.run.diverged is not None else set())
        check_same(self.run, config.to_dict(), recorded.to_dict(), free)
        if state["data"] != self.facts["data"]:
            raise RunError(
                f"{self.run.folder} was begun with other training images or classes than {config.data.source} "
                f"holds now; expected the same; bring them back, or choose another --out"
            )
        if self.facts.get("start") == GONE and "start" in state:
            self.facts["start"] = state["start"]  # its weights were taken long ago
        if state.get("start") != self.facts.get("start"):
            raise RunError(
                f"{self.run.folder} was begun with other weights than {config.network.start_from} holds now; expected "
                f"the same; bring them back, or choose another --out"
            )
