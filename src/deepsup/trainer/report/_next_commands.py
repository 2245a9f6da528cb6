"""Commands to paste after a comparison: the same with one change, or on your own images."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from deepsup.trainer.config import PLACES, Config, current, current_name, option_words
from deepsup.trainer.data import KNOWN

# decided by the comparison, so not a flag of the command
_DECIDED = {"data", "loss", "companion_loss", "test", "tensorboard"}
_USUAL = ["CNN-Softmax", "DSN-Softmax"]
_OF_THE_NET = ("network", "network_options", "at", "pool", "hidden", "companion_length", "companion_init")


def compare_again(table: Mapping[str, Any], name: str, **changes: Any) -> str:
    """Return the command that trains the comparison ``name`` again, on the same data, with some settings changed."""
    seeds = changes.get("seeds", len(table.get("seeds", [])) or 3)
    config = {**config_of(table), **changes}
    new = "-".join([name, *(word for key, value in changes.items() for word in option_words(key, value))])
    words = ["--data", str(config.get("data", Config().data.source)), *flags(config)]
    methods = list(table.get("methods", _USUAL))
    words += ["--methods", *methods] if methods != _USUAL else []
    folder = re.sub(r"[/_]|-+", "-", new)
    return shlex.join(["deepsup", "compare", *words, "--seeds", str(seeds), "--out", f"runs/{folder}"])


def compare_own(table: Mapping[str, Any]) -> str:
    """Return the command that compares the same net on the user's own images."""
    config = config_of(table)
    net = flags({key: config[key] for key in _OF_THE_NET if key in config})
    side = str(config.get("image_size") or 32)
    return shlex.join(["deepsup", "compare", "--data", "FOLDER", "--image-size", side, *net, "--out", "runs/mine"])


def flags(config: Mapping[str, Any]) -> list[str]:
    """Return the flags of all settings that differ from what ``deepsup compare`` sets by itself."""
    usual = Config(amp="auto").to_dict()
    if config.get("network", usual["network"]) != usual["network"]:
        usual["network_options"] = {}  # those of the usual network only
    words: list[str] = []
    for name in (name for name in PLACES if name in config and name not in _DECIDED):
        value = current(name, config[name])
        if value != usual[name] and value not in (None, [], {}):
            words += option_words(name, value)
    return words


def config_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a comparison, its settings under the names of this version."""
    return {current_name(name): value for name, value in table.get("config", {}).items()}


def is_own_data(table: Mapping[str, Any]) -> bool:
    """Whether the comparison was made on the user's own folder or file."""
    return table.get("config", {}).get("data", Config().data.source) not in KNOWN


def more_images(table: Mapping[str, Any]) -> int | None:
    """Return twice the number of training images, at most all of them; None if all were used or it is unknown."""
    size, data = table.get("config", {}).get("train_size"), table.get("config", {}).get("data")
    if not size or data not in KNOWN or size >= KNOWN[data].counts["train"]:
        return None
    return int(min(2 * size, KNOWN[data].counts["train"]))
