"""Give runs distinct names and labels: by the settings in which they differ, or by folder."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from deepsup.trainer.report._names import shorten
from deepsup.trainer.report._read import RunRecord

NONE = "\N{EN DASH}"  # for missing numbers
LONGEST = 24  # characters of a value in a label


def labelled(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs with distinct names and labels."""
    names = unique_names([run.folder for run in runs])
    named = [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
    labels = {method: labels_of([run for run in named if run.method == method]) for method in {r.method for r in named}}
    return [replace(run, own_label=labels[run.method][run.name]) for run in named]


def labels_of(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return name -> label of runs of one method: with one setting of the config if that is enough, or two."""
    if len(runs) == 1:
        return {runs[0].name: runs[0].method}
    keys = dict.fromkeys(key for run in runs for key in run.config)
    other = [key for key in keys if len({shown(run.config.get(key)) for run in runs}) > 1]
    for chosen in [(key,) for key in other] + list(combinations(other, 2)):
        labels = {run.name: f"{run.method}, {', '.join(labelled_setting(run, key) for key in chosen)}" for run in runs}
        if len(set(labels.values())) == len(runs):
            return labels
    return {run.name: run.name for run in runs}


def labelled_setting(run: RunRecord, key: str) -> str:
    """Say the value of one setting in a few letters."""
    value = run.config.get(key)
    if key == "data":
        value = Path(str(value)).name
    words = " ".join(map(str, value)) if isinstance(value, list) else shown(value)
    return f"{key.replace('_', ' ')} {shorten(words, LONGEST)}"


def shown(value: Any) -> str:
    """Say a setting's value in one line."""
    return value if isinstance(value, str) else NONE if value is None else json.dumps(value, ensure_ascii=False)


def unique_names(folders: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the names of folders, with as much of their paths as makes them distinct.

    >>> unique_names(["runs/a/dsn", "runs/b/dsn"])
    ['a/dsn', 'b/dsn']
    """
    paths = [Path(folder).resolve().parts for folder in folders]
    for length in range(1, max(map(len, paths), default=1) + 1):
        names = ["/".join(parts[-length:]) for parts in paths]
        if len(set(names)) == len(names):
            break
    return names
