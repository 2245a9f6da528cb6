"""Start or resume a run: its default name, its config, and what may change."""

import hashlib
import json
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from deepsup.errors import RunError
from deepsup.trainer.config import Config
from deepsup.trainer.data import NAMED
from deepsup.trainer.networks import full_name, is_file
from deepsup.trainer.runs._folder import RunFolder
from deepsup.trainer.runs._starting_weights import PUBLISHED

# what may change when a run is resumed: nothing that its results depend on; the weights to start from have a digest
CHANGEABLE = frozenset(
    {"limit_steps", "checkpoint_minutes", "checkpoint_steps", "keep", "snapshots", "start_from", "weights"}
)
# what may also change after a divergence; the change is recorded
CHANGEABLE_AFTER_DIVERGENCE = frozenset({"lr", "companion_lr", "alpha"})

# what else the last bits of the weights depend on
SURROUNDINGS = ("torch", "machine", "cpu", "threads", "processes")
logger = logging.getLogger("deepsup")


def short_network(name: str) -> str:
    """Return a network's name for a folder: ``my_file.py:MyNet`` is MyNet's, ``torchvision/resnet18`` resnet18's."""
    if is_file(name):
        file, _, factory = name.rpartition(":")
        return f"{Path(file).stem}.{factory}"
    return name.rpartition("/")[2].replace(":", ".")


def default_name(config: Config) -> str:
    """Return a folder name from network, data, method, loss and seed, and a digest of all other settings."""
    plain = config.supervision.taps in (("none",), ())
    data = config.data.source if config.data.source in NAMED else Path(config.data.source).stem
    words = [
        short_network(config.network.name),
        data,
        "CNN" if plain else "DSN",
        config.objective.loss,
        f"seed{config.run.seed}",
    ]
    shown = {"loss", "seed"} | ({"at"} if config.supervision.taps == ("none",) else set())
    shown |= {"data"} if config.data.source in NAMED else set()
    shown |= {"network"} if ":" not in config.network.name else set()
    defaults = Config().to_dict()
    rest = {key: value for key, value in config.to_dict().items() if key not in shown and value != defaults[key]}
    if rest:
        words.append(hashlib.blake2b(json.dumps(rest, sort_keys=True).encode(), digest_size=3).hexdigest())
    return "-".join(words).lower()


def with_whole_names(config: Config) -> Config:
    """Return the config with absolute paths, and with the package of a network of torchvision or timm.

    A run may be read from elsewhere.
    """
    given = config.network
    name = full_name(given.name)
    if is_file(name):
        file, _, factory = name.rpartition(":")
        name = f"{whole(file)}:{factory}"
    start = given.start_from and whole(given.start_from)
    weights = given.weights if given.weights in (None, PUBLISHED) else whole(given.weights)
    config = config.replace(network=name, start_from=start, weights=weights)
    path = Path(config.data.source).expanduser()
    if config.data.source in NAMED or not path.exists():
        return config
    return config.replace(data=whole(path))


def whole(path: str | os.PathLike[str]) -> str:
    """Return a path that holds in every folder."""
    return str(Path(path).expanduser().resolve())


def config_to_train(run: RunFolder, config: Config | None, resume: bool) -> Config:
    """Return the config to train with; a resumed run keeps its own."""
    if not run.exists:
        return config or Config()
    if not resume:
        raise RunError(f"{run.folder} already holds a run; resume it (--resume), or choose another folder (--out)")
    recorded = run.config
    if config is None:
        if ":" in recorded.network.name:
            raise RunError(
                f"{run.folder} names a network that is not part of deepsup, {recorded.network.name}; it is not "
                f"imported unless you name it too: give the config, "
                f"train(Config(network={recorded.network.name!r}, ...), ...)"
            )
        return recorded
    config = as_settled(config, recorded)
    free = CHANGEABLE if run.diverged is None else CHANGEABLE | CHANGEABLE_AFTER_DIVERGENCE
    check_same(run, config.to_dict(), recorded.to_dict(), free)
    return config


def as_settled(config: Config, recorded: Config) -> Config:
    """Return a config with the precision that a run has settled on, where the config leaves it open, and its device."""
    device = recorded.run.device if "auto" in (config.run.device, recorded.run.device) else config.run.device
    amp = recorded.run.amp if config.run.amp == "auto" else config.run.amp
    layers = config.run.full_precision or (recorded.run.full_precision if amp == recorded.run.amp else ())
    return config.replace(device=device, amp=amp, full_precision=layers)


def check_same(
    run: RunFolder, mine: dict[str, Any], theirs: dict[str, Any], free: Collection[str] = CHANGEABLE
) -> None:
    """Raise an error if a run would be resumed with another config, naming the differences."""
    other = [key for key in mine if key not in free and mine[key] != theirs.get(key)]
    if other:
        changes = ", ".join(f"{key} {theirs.get(key)!r} -> {mine[key]!r}" for key in other)
        raise RunError(
            f"{run.folder} was started with another config ({changes}); resume with its own, or choose another --out"
        )


def record_surroundings(run: RunFolder, environment: dict[str, Any], epoch: int, step: int) -> None:
    """Say and record with which other threads, torch and the like a run is resumed: its weights depend on them."""
    before = run.environment if run.has_environment else environment
    changed = {
        key: [before[key], environment[key]]
        for key in SURROUNDINGS
        if before.get(key, environment[key]) != environment[key]
    }
    if changed and step:
        words = ", ".join(f"{key} {now}, before {then}" for key, (then, now) in changed.items())
        logger.warning(
            "%s is resumed with %s: from step %d on its weights differ in their last bits from those of a run without "
            "this change; %s/changes.json says so", run.folder, words, step, run.folder,
        )  # fmt: skip
        change = {"epoch": epoch, "step": step, "changed": changed, "why": "resumed with other threads or versions"}
        run.write_json("changes.json", {"changes": [*run.changes, change]})


def record_change(run: RunFolder, config: Config, epoch: int, step: int) -> None:
    """Record the settings with which a diverged run is resumed, and from which step; clear the divergence."""
    lost = run.diverged
    if lost is None:
        return
    theirs, mine = run.config.to_dict(), config.to_dict()
    changed = {key: [theirs[key], mine[key]] for key in sorted(CHANGEABLE_AFTER_DIVERGENCE) if theirs[key] != mine[key]}
    if changed:
        change = {"epoch": epoch, "step": step, "changed": changed, "why": lost["failed"]}
        run.write_json("changes.json", {"changes": [*run.changes, change]})
