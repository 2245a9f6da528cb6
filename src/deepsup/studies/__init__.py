"""Many runs: methods with settings to choose from, chosen on validation images, compared over seeds; sweeps."""

from deepsup.studies.compare import compare
from deepsup.studies.engine import Engine
from deepsup.studies.sweep import sweep

__all__ = ["Engine", "compare", "sweep"]
