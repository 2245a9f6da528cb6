"""The targets -> ``targets.json``: their titles and minutes, to be listed without torch and without building nets.

``python -m deepsup.paper.listing`` writes the file; a test compares it with the plans.
"""

import json
from pathlib import Path
from typing import Any

from deepsup.io import write_whole
from deepsup.paper.plan import minutes
from deepsup.paper.reproduce import THEORY, plan_of
from deepsup.paper.targets import TARGETS

FILE = Path(__file__).with_name("targets.json")


def listing() -> dict[str, dict[str, Any]]:
    """Return target -> its title, and about how many minutes it takes on two cores under each preset."""
    found = {
        name: {
            "title": target.title,
            "minutes": {preset: round(minutes(plan_of(name, preset, Path()))) for preset in ("cpu", "paper")},
        }
        for name, target in TARGETS.items()
    }
    return found | {"theory": {"title": THEORY, "minutes": {"cpu": 2, "paper": 20}}}


if __name__ == "__main__":
    write_whole(FILE, (json.dumps(listing(), indent=1) + "\n").encode())
