"""Many runs: methods with settings to choose from, chosen on validation images, compared over seeds."""

from deepsup.studies.compare import compare

__all__ = ["compare"]
