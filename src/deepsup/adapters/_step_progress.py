"""The steps of an optimizer -> the progress of training, for a plain loop and for accelerate."""

from typing import Any

from torch.optim import Optimizer

from deepsup.errors import ObjectiveError


class StepProgress:
    """Counts the steps of an optimizer: ``objective(out, labels, progress=progress())``.

    Only real steps count: not the backward passes of gradient accumulation, and no step that a gradient scaler skips.
    To go on with a training, store ``state_dict()`` (with accelerate: ``accelerator.register_for_checkpointing``).

    optimizer: the optimizer of the training, also as ``accelerator.prepare`` returns it.
    total_steps: how many steps the whole training takes.
    """

    def __init__(self, optimizer: Optimizer, total_steps: int) -> None:
        if isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1:
            raise ObjectiveError(f"total_steps={total_steps!r}; expected a whole number of at least 1")
        self.total_steps = total_steps
        self.steps = 0
        inner: Any = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper also counts skipped steps
        inner.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.steps += 1

    def __call__(self) -> float:
        """Return the progress: 0 before the first step, 1 after the last."""
        return min(1.0, self.steps / self.total_steps)

    def state_dict(self) -> dict[str, int]:
        """Return the count."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the count."""
        self.steps = int(state["steps"])
