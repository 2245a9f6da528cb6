"""Importing this module imports torchvision, if it is installed, so that packages which need it can be imported.

torchvision 0.28 does not import beside a CPU build of torch until two of its operators are declared; Lightning,
transformers and timm then do not import either. Elsewhere this changes nothing.
"""

import contextlib
import importlib

from deepsup.adapters._torchvision_operators import with_torchvision

with contextlib.suppress(ImportError):
    with_torchvision(lambda: importlib.import_module("torchvision"))
