"""Write tests/trainer/demo/strokes.json: 100 digits as strokes, ten of each, in the styles in which people write them.

Each style is a skeleton in a unit box (x to the right, y down). A digit is a style with a random slant, aspect, size,
place, tremor and pen width, as somebody draws it on a canvas of 280 x 280 pixels. The seed is fixed, so the file is
the same whoever writes it. It was made before any net was judged on it; do not change it to please a net.
"""

import json
import math
import random
from itertools import pairwise
from pathlib import Path

Point = tuple[float, float]
Stroke = tuple[str, list[Point]]  # "curve" through the points, or "line" from point to point
SIDE = 280
EACH = 10

STYLES: dict[int, list[list[Stroke]]] = {
    0: [
        [
            (
                "curve",
                [
                    (0.55, 0),
                    (0.2, 0.12),
                    (0.02, 0.5),
                    (0.2, 0.9),
                    (0.5, 1),
                    (0.85, 0.85),
                    (1, 0.5),
                    (0.85, 0.12),
                    (0.5, 0),
                ],
            )
        ],
        [
            (
                "curve",
                [
                    (0.75, 0.06),
                    (0.4, 0),
                    (0.1, 0.25),
                    (0.05, 0.65),
                    (0.3, 0.97),
                    (0.7, 0.95),
                    (0.95, 0.6),
                    (0.9, 0.2),
                    (0.68, 0.02),
                ],
            )
        ],
        [
            (
                "curve",
                [
                    (0.5, 0.03),
                    (0.12, 0.25),
                    (0.1, 0.75),
                    (0.5, 1),
                    (0.9, 0.72),
                    (0.88, 0.25),
                    (0.55, 0.02),
                    (0.35, 0.1),
                ],
            )
        ],
    ],
    1: [
        [("line", [(0.5, 0), (0.5, 1)])],
        [("line", [(0.2, 0.28), (0.55, 0), (0.55, 1)])],
        [("line", [(0.2, 0.25), (0.52, 0), (0.52, 1)]), ("line", [(0.15, 1), (0.9, 1)])],
        [("curve", [(0.52, 0), (0.5, 0.5), (0.46, 1)])],
    ],
    2: [
        [
            ("curve", [(0.08, 0.28), (0.25, 0.05), (0.6, 0), (0.88, 0.2), (0.75, 0.5), (0.35, 0.8), (0.02, 1)]),
            ("line", [(0.02, 1), (1, 0.98)]),
        ],
        [
            (
                "curve",
                [
                    (0.06, 0.25),
                    (0.3, 0.02),
                    (0.7, 0.04),
                    (0.86, 0.28),
                    (0.6, 0.62),
                    (0.22, 0.95),
                    (0.06, 0.92),
                    (0.2, 0.8),
                    (0.55, 0.93),
                    (1, 0.95),
                ],
            )
        ],
        [
            ("curve", [(0.05, 0.18), (0.45, 0), (0.85, 0.14), (0.78, 0.42), (0.1, 0.98)]),
            ("line", [(0.1, 0.98), (0.95, 1)]),
        ],
    ],
    3: [
        [
            ("curve", [(0.1, 0.15), (0.45, 0), (0.85, 0.16), (0.72, 0.4), (0.4, 0.48)]),
            ("curve", [(0.4, 0.48), (0.82, 0.58), (0.95, 0.78), (0.6, 1), (0.05, 0.88)]),
        ],
        [
            ("line", [(0.08, 0.02), (0.85, 0), (0.42, 0.4)]),
            ("curve", [(0.42, 0.4), (0.8, 0.48), (0.95, 0.72), (0.65, 0.98), (0.05, 0.92)]),
        ],
        [
            (
                "curve",
                [
                    (0.1, 0.1),
                    (0.5, 0),
                    (0.86, 0.17),
                    (0.65, 0.42),
                    (0.42, 0.48),
                    (0.7, 0.5),
                    (0.95, 0.72),
                    (0.6, 0.99),
                    (0.1, 0.9),
                ],
            )
        ],
    ],
    4: [
        [("line", [(0.18, 0), (0.06, 0.55), (0.98, 0.52)]), ("line", [(0.72, 0.12), (0.66, 1)])],
        [("line", [(0.66, 0), (0.02, 0.66), (1, 0.66)]), ("line", [(0.66, 0), (0.66, 1)])],
        [("line", [(0.64, 1), (0.66, 0), (0.03, 0.64), (1, 0.64)])],
        [("curve", [(0.15, 0.02), (0.08, 0.35), (0.25, 0.55), (0.8, 0.5)]), ("line", [(0.85, 0), (0.78, 1)])],
    ],
    5: [
        [
            ("line", [(0.2, 0), (0.14, 0.43)]),
            ("curve", [(0.14, 0.43), (0.5, 0.36), (0.92, 0.56), (0.85, 0.85), (0.45, 1), (0.05, 0.9)]),
            ("line", [(0.2, 0), (0.92, 0)]),
        ],
        [
            ("line", [(0.92, 0.02), (0.22, 0), (0.15, 0.42)]),
            ("curve", [(0.15, 0.42), (0.55, 0.38), (0.95, 0.62), (0.75, 0.95), (0.35, 1), (0.03, 0.86)]),
        ],
        [
            (
                "curve",
                [
                    (0.9, 0.03),
                    (0.5, 0),
                    (0.2, 0.05),
                    (0.15, 0.38),
                    (0.5, 0.42),
                    (0.9, 0.62),
                    (0.78, 0.92),
                    (0.4, 1),
                    (0.05, 0.9),
                ],
            )
        ],
    ],
    6: [
        [
            (
                "curve",
                [
                    (0.75, 0),
                    (0.35, 0.25),
                    (0.08, 0.62),
                    (0.2, 0.95),
                    (0.6, 1),
                    (0.92, 0.78),
                    (0.7, 0.55),
                    (0.3, 0.6),
                    (0.1, 0.76),
                ],
            )
        ],
        [
            (
                "curve",
                [
                    (0.55, 0),
                    (0.25, 0.3),
                    (0.08, 0.65),
                    (0.25, 0.97),
                    (0.65, 0.99),
                    (0.88, 0.75),
                    (0.6, 0.54),
                    (0.25, 0.64),
                    (0.12, 0.8),
                ],
            )
        ],
        [
            (
                "curve",
                [
                    (0.85, 0.06),
                    (0.5, 0.06),
                    (0.15, 0.4),
                    (0.05, 0.75),
                    (0.35, 1),
                    (0.75, 0.95),
                    (0.9, 0.7),
                    (0.6, 0.52),
                    (0.2, 0.62),
                ],
            )
        ],
    ],
    7: [
        [("line", [(0, 0.02), (1, 0), (0.4, 1)])],
        [("line", [(0, 0.02), (1, 0), (0.42, 1)]), ("line", [(0.35, 0.5), (0.92, 0.48)])],
        [("line", [(0.02, 0.16), (0.02, 0), (0.98, 0)]), ("curve", [(0.98, 0), (0.68, 0.4), (0.48, 1)])],
    ],
    8: [
        [
            (
                "curve",
                [
                    (0.8, 0.15),
                    (0.5, 0),
                    (0.2, 0.15),
                    (0.35, 0.42),
                    (0.75, 0.62),
                    (0.9, 0.83),
                    (0.5, 1),
                    (0.1, 0.82),
                    (0.3, 0.58),
                    (0.7, 0.38),
                    (0.82, 0.16),
                ],
            )
        ],
        [
            ("curve", [(0.5, 0.46), (0.2, 0.34), (0.2, 0.1), (0.5, 0), (0.8, 0.1), (0.8, 0.34), (0.5, 0.46)]),
            ("curve", [(0.5, 0.46), (0.1, 0.6), (0.1, 0.9), (0.5, 1), (0.9, 0.9), (0.9, 0.6), (0.5, 0.46)]),
        ],
        [
            (
                "curve",
                [
                    (0.7, 0.05),
                    (0.3, 0.05),
                    (0.15, 0.25),
                    (0.5, 0.47),
                    (0.88, 0.72),
                    (0.7, 0.97),
                    (0.3, 0.98),
                    (0.12, 0.75),
                    (0.5, 0.48),
                    (0.82, 0.25),
                    (0.68, 0.04),
                ],
            )
        ],
    ],
    9: [
        [
            ("curve", [(0.85, 0.2), (0.5, 0), (0.12, 0.2), (0.35, 0.46), (0.78, 0.34), (0.86, 0.15)]),
            ("line", [(0.86, 0.15), (0.8, 1)]),
        ],
        [
            ("curve", [(0.82, 0.12), (0.45, 0), (0.1, 0.22), (0.4, 0.47), (0.8, 0.28), (0.86, 0.1)]),
            ("curve", [(0.86, 0.1), (0.9, 0.55), (0.65, 0.96), (0.2, 0.94)]),
        ],
        [
            ("curve", [(0.88, 0.06), (0.4, 0), (0.1, 0.24), (0.4, 0.46), (0.84, 0.24), (0.88, 0.06)]),
            ("line", [(0.88, 0.06), (0.55, 1)]),
        ],
    ],
}


def curve(points: list[Point], steps: int) -> list[Point]:
    """Return a Catmull-Rom spline through the points."""
    ends = [points[0], *points, points[-1]]
    found = []
    for (ax, ay), (bx, by), (cx, cy), (dx, dy) in zip(ends, ends[1:], ends[2:], ends[3:], strict=False):
        for step in range(steps):
            t = step / steps
            found.append(tuple(
                0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
                for a, b, c, d in ((ax, bx, cx, dx), (ay, by, cy, dy))
            ))  # fmt: skip
    return [*found, points[-1]]


def line(points: list[Point], steps: int) -> list[Point]:
    """Return points along straight lines."""
    found = []
    for (ax, ay), (bx, by) in pairwise(points):
        found += [(ax + (bx - ax) * step / steps, ay + (by - ay) * step / steps) for step in range(steps)]
    return [*found, points[-1]]


def drawn(style: list[Stroke], draw: random.Random) -> list[list[Point]]:
    """Return the strokes of one digit in pixels of the canvas."""
    slant, tilt = draw.uniform(-0.12, 0.38), draw.uniform(-0.14, 0.14)
    width, tremor = draw.uniform(0.5, 0.85), draw.uniform(0.002, 0.012)
    phase, steps = draw.uniform(0, 6.28), draw.choice([4, 6, 9, 12])
    strokes = []
    for kind, points in style:
        moved = [(x + draw.gauss(0, 0.025), y + draw.gauss(0, 0.02)) for x, y in points]
        path = (curve if kind == "curve" else line)(moved, steps)
        placed = []
        for index, (x, y) in enumerate(path):
            x = (x - 0.5) * width + slant * (0.5 - y) + tremor * math.sin(phase + index * 1.7)
            y = y - 0.5 + tremor * math.cos(phase + index * 2.3)
            placed.append((x * math.cos(tilt) - y * math.sin(tilt), x * math.sin(tilt) + y * math.cos(tilt)))
        strokes.append(placed)
    every = [point for stroke in strokes for point in stroke]
    left, top = min(x for x, _ in every), min(y for _, y in every)
    wide, high = max(x for x, _ in every) - left, max(y for _, y in every) - top
    size = draw.uniform(0.35, 0.88) * SIDE / max(wide, high)
    right, down = draw.uniform(8, SIDE - 8 - wide * size), draw.uniform(8, SIDE - 8 - high * size)
    return [[(round((x - left) * size + right, 1), round((y - top) * size + down, 1)) for x, y in s] for s in strokes]


def main() -> None:
    """Write the file."""
    draw = random.Random(20261118)
    digits = [
        {"digit": digit, "pen": draw.choice([6, 10, 14, 18, 24, 30]), "strokes": drawn(styles[n % len(styles)], draw)}
        for digit, styles in STYLES.items()
        for n in range(EACH)
    ]
    path = Path(__file__).parents[1] / "tests/trainer/demo/strokes.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(each) for each in digits) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
