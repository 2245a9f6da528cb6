"""A config and a folder in, the config to train with out: a new run's, or its own where a run is gone on with."""

import dataclasses
import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from deepsup.config import Config
from deepsup.data import KNOWN
from deepsup.errors import RunError
from deepsup.runs.folder import RunFolder

# what may change when a run is gone on with: nothing that its numbers depend on
FREE = frozenset({"limit_steps", "checkpoint_minutes", "checkpoint_steps", "keep"})
# what may change too once it has diverged; the change is recorded
MENDING = frozenset({"lr", "head_lr", "alpha"})


def default_name(config: Config) -> str:
    """Return a folder name that says what was trained on what; a digest stands for all settings it has no word for."""
    plain = config.taps in (("none",), ())
    data = config.data if config.data in KNOWN else Path(config.data).stem
    words = [config.network.replace(":", "."), data, "CNN" if plain else "DSN", config.loss, f"seed{config.seed}"]
    said = {"loss", "seed"} | ({"taps"} if config.taps == ("none",) else set())
    said |= {"data"} if config.data in KNOWN else set()
    said |= {"network"} if ":" not in config.network else set()
    defaults = Config().to_dict()
    rest = {key: value for key, value in config.to_dict().items() if key not in said and value != defaults[key]}
    if rest:
        words.append(hashlib.blake2b(json.dumps(rest, sort_keys=True).encode(), digest_size=3).hexdigest())
    return "-".join(words).lower()


def with_whole_path(config: Config) -> Config:
    """Return the config with data of the user's own under their whole path: a run is read from other places too."""
    path = Path(config.data).expanduser()
    if config.data in KNOWN or not path.exists():
        return config
    return dataclasses.replace(config, data=str(path.resolve()))


def agreed_config(run: RunFolder, config: Config | None, resume: bool) -> Config:
    """Return the config to train with; a run is gone on with under its own one."""
    if not run.exists:
        return config or Config()
    if not resume:
        raise RunError(f"{run.folder} already holds a run; go on with it (--resume), or choose another folder (--out)")
    held = run.config
    if config is None:
        if ":" in held.network:
            raise RunError(
                f"{run.folder} names a network that is not part of deepsup, {held.network}; it is not imported unless "
                f"you name it too: give the config, in Python train(Config(network={held.network!r}, ...), ...)"
            )
        return held
    check_same(run, config.to_dict(), held.to_dict(), FREE if run.diverged is None else FREE | MENDING)
    return config


def check_same(run: RunFolder, mine: dict[str, Any], theirs: dict[str, Any], free: Collection[str] = FREE) -> None:
    """Refuse to go on with a run under another config, naming what differs."""
    other = [key for key in mine if key not in free and mine[key] != theirs.get(key)]
    if other:
        told = ", ".join(f"{key} {theirs.get(key)!r} -> {mine[key]!r}" for key in other)
        raise RunError(
            f"{run.folder} was begun with another config ({told}); go on with its own, or choose another --out"
        )


def record_change(run: RunFolder, config: Config, epoch: int, step: int) -> None:
    """Take note of what a run that has diverged is gone on with, and from where; it counts as sound again."""
    lost = run.diverged
    if lost is None:
        return
    held, mine = run.config.to_dict(), config.to_dict()
    changed = {key: [held[key], mine[key]] for key in sorted(MENDING) if held[key] != mine[key]}
    if changed:
        change = {"epoch": epoch, "step": step, "changed": changed, "why": lost["failed"]}
        run.write_json("changes.json", {"changes": [*run.changes, change]})
