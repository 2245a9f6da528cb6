"""Deep supervision inside other training loops. Each adapter takes ``progress`` from its loop's own step counter.

``StepProgress`` needs torch alone: for a plain loop and for accelerate. The others import their package:
``adapters.lightning_module``, ``adapters.hugging_face``, ``adapters.skorch_net``.
"""

from deepsup.adapters._step_progress import StepProgress
from deepsup.adapters._torchvision_operators import declare_torchvision_operators, with_torchvision

__all__ = ["StepProgress", "declare_torchvision_operators", "with_torchvision"]
