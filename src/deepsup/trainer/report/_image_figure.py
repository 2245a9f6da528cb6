"""Draw one image and its feature maps."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deepsup.io import folder_below
from deepsup.trainer.report._insight_figures import draw_maps
from deepsup.trainer.report._read import read_run


def draw_image(run: Path, insight: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path | None:
    """Draw into the run's ``plots/``; return the PNG's path, or None if the net has no maps."""
    record = replace(read_run(run), insight=dict(insight), arrays=dict(arrays))
    drawing = draw_maps([record])
    if drawing is None:
        return None
    drawing.name = f"image-{Path(insight['file']).stem}"
    return drawing.save(folder_below(run, "plots"))
