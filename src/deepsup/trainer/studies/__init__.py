"""Many runs: methods with settings to choose from, chosen on validation images, compared over seeds; sweeps."""

from deepsup.trainer.studies.compare import compare
from deepsup.trainer.studies.engine import Engine
from deepsup.trainer.studies.sweep import sweep

__all__ = ["Engine", "compare", "sweep"]
