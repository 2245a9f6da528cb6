"""Versions and hardware class of the machine, without its name, for the records. Needs no torch."""

import os
import platform
from importlib import metadata
from typing import Any


def environment_now() -> dict[str, Any]:
    """Return versions and hardware class of this machine, without its name."""
    packages = ("deepsup", "torch", "numpy")
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        **{name: metadata.version(name) for name in packages},
    }
