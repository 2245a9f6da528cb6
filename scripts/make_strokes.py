"""Write tests/demo/strokes.json: 100 digits as strokes, ten of each, in the styles in which people write them.

Each style is a skeleton in a unit box (x to the right, y down). A digit is a style with a random slant, aspect, size,
place, tremor and pen width, as somebody draws it on a canvas of 280 x 280 pixels. The seed is fixed, so the file is
the same whoever writes it. It was made before any net was judged on it; do not change it to please a net.
"""

import json
import math
import random
from pathlib import Path

Point = tuple[float, float]
Stroke = tuple[str, list[Point]]  # "curve" through the points, or "line" from point to point
SIDE = 280
EACH = 10

STYLES: dict[int, list[list[Stroke]]] = {
    0: [
        [("curve", [(.55, 0), (.2, .12), (.02, .5), (.2, .9), (.5, 1), (.85, .85), (1, .5), (.85, .12), (.5, 0)])],
        [("curve", [(.75, .06), (.4, 0), (.1, .25), (.05, .65), (.3, .97), (.7, .95), (.95, .6), (.9, .2), (.68, .02)])],
        [("curve", [(.5, .03), (.12, .25), (.1, .75), (.5, 1), (.9, .72), (.88, .25), (.55, .02), (.35, .1)])],
    ],
    1: [
        [("line", [(.5, 0), (.5, 1)])],
        [("line", [(.2, .28), (.55, 0), (.55, 1)])],
        [("line", [(.2, .25), (.52, 0), (.52, 1)]), ("line", [(.15, 1), (.9, 1)])],
        [("curve", [(.52, 0), (.5, .5), (.46, 1)])],
    ],
    2: [
        [("curve", [(.08, .28), (.25, .05), (.6, 0), (.88, .2), (.75, .5), (.35, .8), (.02, 1)]),
         ("line", [(.02, 1), (1, .98)])],
        [("curve", [(.06, .25), (.3, .02), (.7, .04), (.86, .28), (.6, .62), (.22, .95), (.06, .92), (.2, .8), (.55, .93),
                    (1, .95)])],
        [("curve", [(.05, .18), (.45, 0), (.85, .14), (.78, .42), (.1, .98)]), ("line", [(.1, .98), (.95, 1)])],
    ],
    3: [
        [("curve", [(.1, .15), (.45, 0), (.85, .16), (.72, .4), (.4, .48)]),
         ("curve", [(.4, .48), (.82, .58), (.95, .78), (.6, 1), (.05, .88)])],
        [("line", [(.08, .02), (.85, 0), (.42, .4)]),
         ("curve", [(.42, .4), (.8, .48), (.95, .72), (.65, .98), (.05, .92)])],
        [("curve", [(.1, .1), (.5, 0), (.86, .17), (.65, .42), (.42, .48), (.7, .5), (.95, .72), (.6, .99), (.1, .9)])],
    ],
    4: [
        [("line", [(.18, 0), (.06, .55), (.98, .52)]), ("line", [(.72, .12), (.66, 1)])],
        [("line", [(.66, 0), (.02, .66), (1, .66)]), ("line", [(.66, 0), (.66, 1)])],
        [("line", [(.64, 1), (.66, 0), (.03, .64), (1, .64)])],
        [("curve", [(.15, .02), (.08, .35), (.25, .55), (.8, .5)]), ("line", [(.85, 0), (.78, 1)])],
    ],
    5: [
        [("line", [(.2, 0), (.14, .43)]),
         ("curve", [(.14, .43), (.5, .36), (.92, .56), (.85, .85), (.45, 1), (.05, .9)]), ("line", [(.2, 0), (.92, 0)])],
        [("line", [(.92, .02), (.22, 0), (.15, .42)]),
         ("curve", [(.15, .42), (.55, .38), (.95, .62), (.75, .95), (.35, 1), (.03, .86)])],
        [("curve", [(.9, .03), (.5, 0), (.2, .05), (.15, .38), (.5, .42), (.9, .62), (.78, .92), (.4, 1), (.05, .9)])],
    ],
    6: [
        [("curve", [(.75, 0), (.35, .25), (.08, .62), (.2, .95), (.6, 1), (.92, .78), (.7, .55), (.3, .6), (.1, .76)])],
        [("curve", [(.55, 0), (.25, .3), (.08, .65), (.25, .97), (.65, .99), (.88, .75), (.6, .54), (.25, .64),
                    (.12, .8)])],
        [("curve", [(.85, .06), (.5, .06), (.15, .4), (.05, .75), (.35, 1), (.75, .95), (.9, .7), (.6, .52), (.2, .62)])],
    ],
    7: [
        [("line", [(0, .02), (1, 0), (.4, 1)])],
        [("line", [(0, .02), (1, 0), (.42, 1)]), ("line", [(.35, .5), (.92, .48)])],
        [("line", [(.02, .16), (.02, 0), (.98, 0)]), ("curve", [(.98, 0), (.68, .4), (.48, 1)])],
    ],
    8: [
        [("curve", [(.8, .15), (.5, 0), (.2, .15), (.35, .42), (.75, .62), (.9, .83), (.5, 1), (.1, .82), (.3, .58),
                    (.7, .38), (.82, .16)])],
        [("curve", [(.5, .46), (.2, .34), (.2, .1), (.5, 0), (.8, .1), (.8, .34), (.5, .46)]),
         ("curve", [(.5, .46), (.1, .6), (.1, .9), (.5, 1), (.9, .9), (.9, .6), (.5, .46)])],
        [("curve", [(.7, .05), (.3, .05), (.15, .25), (.5, .47), (.88, .72), (.7, .97), (.3, .98), (.12, .75), (.5, .48),
                    (.82, .25), (.68, .04)])],
    ],
    9: [
        [("curve", [(.85, .2), (.5, 0), (.12, .2), (.35, .46), (.78, .34), (.86, .15)]), ("line", [(.86, .15), (.8, 1)])],
        [("curve", [(.82, .12), (.45, 0), (.1, .22), (.4, .47), (.8, .28), (.86, .1)]),
         ("curve", [(.86, .1), (.9, .55), (.65, .96), (.2, .94)])],
        [("curve", [(.88, .06), (.4, 0), (.1, .24), (.4, .46), (.84, .24), (.88, .06)]), ("line", [(.88, .06), (.55, 1)])],
    ],
}  # fmt: skip


def curve(points: list[Point], steps: int) -> list[Point]:
    """Return a Catmull-Rom spline through the points."""
    ends = [points[0], *points, points[-1]]
    found = []
    for (ax, ay), (bx, by), (cx, cy), (dx, dy) in zip(ends, ends[1:], ends[2:], ends[3:], strict=False):
        for step in range(steps):
            t = step / steps
            found.append(tuple(
                .5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
                for a, b, c, d in ((ax, bx, cx, dx), (ay, by, cy, dy))
            ))  # fmt: skip
    return [*found, points[-1]]


def line(points: list[Point], steps: int) -> list[Point]:
    """Return points along straight lines."""
    found = []
    for (ax, ay), (bx, by) in zip(points, points[1:], strict=False):
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
    path = Path(__file__).parents[1] / "tests/demo/strokes.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(each) for each in digits) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
