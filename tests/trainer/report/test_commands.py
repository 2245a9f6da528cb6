"""The commands of the page, pasted: the command line takes them, and they mean the comparison that the page shows."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import deepsup.trainer.studies
from deepsup.cli import main
from deepsup.trainer.config import Config
from deepsup.trainer.recipes import quick
from deepsup.trainer.report._comparison_page import next_step
from deepsup.trainer.report._next_commands import compare_again, compare_own, more_images
from deepsup.trainer.report._read import read_comparison

OWN = quick().replace(
    data="my photos/cats & dogs", image_size=48, network="nin-cifar10", network_options={"drop": 0.3},
    taps=("pool1", "pool2"), alpha=(0.1, 0.2), epochs=7, train_size=None, schedule="linear",
)  # fmt: skip
OTHER = quick().replace(network="fast", network_options={}, companion_length=0.0, companion_init="torch")


class StopError(Exception):
    """The command has come as far as training."""


@pytest.fixture
def pasted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Return what the command line makes of a command, without training."""
    seen: dict[str, Any] = {}

    def caught(config: Config, out: Path, **rest: Any) -> None:
        seen.update(config=config, out=out, **rest)
        raise StopError

    monkeypatch.setattr(deepsup.trainer.studies, "compare_methods", caught)

    def paste(command: str) -> dict[str, Any]:
        name, *words = shlex.split(command)
        assert name == "deepsup"
        with pytest.raises(StopError):
            main(words)
        return seen

    return paste


@pytest.mark.parametrize("config", [quick(), quick().replace(train_size=None), OWN, OTHER])
@pytest.mark.parametrize("changes", [{"seeds": 10}, {"epochs": 60}, {"alpha": [0.7]}, {"train_size": 90}])
def test_the_same_again_with_a_change(
    pasted: Callable[[str], dict[str, Any]], config: Config, changes: dict[str, Any]
) -> None:
    table = {"config": config.to_dict(), "seeds": [0, 1, 2]}
    seen = pasted(compare_again(table, "mine", **changes))
    settings = {key: value for key, value in changes.items() if key != "seeds"}
    assert seen["config"] == Config.from_dict(config.to_dict() | settings)
    assert seen["seeds"] == changes.get("seeds", 3)
    assert seen["methods"] == ("CNN-Softmax", "DSN-Softmax")
    seen = pasted(compare_again(table | {"methods": {"CNN-Softmax": {}, "BatchNorm": {}}}, "mine"))
    assert seen["methods"] == ("CNN-Softmax", "BatchNorm")


def test_a_table_of_an_earlier_version_has_no_flag_for_a_schedule_that_is_the_default() -> None:
    table = {"config": Config().to_dict(), "seeds": [0, 1, 2]}
    old = {"config": table["config"] | {"anneal": "triangle"}, "seeds": table["seeds"]}
    assert compare_again(old, "mine") == compare_again(table, "mine")
    assert "--anneal step" in compare_again({"config": table["config"] | {"anneal": "epochs"}}, "mine")


def test_every_change_has_a_folder_of_its_own() -> None:
    table = {"config": quick().to_dict(), "seeds": [0, 1, 2]}
    changes: list[dict[str, Any]] = [{"seeds": 10}, {"seeds": 20}, {"epochs": 60}, {"alpha": [0.7]}]
    commands = [compare_again(table, name, **each) for each in changes for name in ("a", "b/a")]
    folders = [shlex.split(command)[-1] for command in commands]
    assert len(set(folders)) == len(folders)
    assert folders[0] == "runs/a-seeds-10"


def test_your_own_images_with_the_same_net(pasted: Callable[[str], dict[str, Any]]) -> None:
    assert compare_own({"config": {}}) == "deepsup compare --data FOLDER --image-size 32 --out runs/mine"
    seen = pasted(compare_own({"config": OWN.to_dict()}))
    wanted = Config(data="FOLDER", image_size=48, network=OWN.network.name, network_options=OWN.network.options,
                    taps=OWN.supervision.taps, amp="auto")  # fmt: skip
    assert seen["config"] == wanted
    seen = pasted(compare_own({"config": OTHER.to_dict()}))
    assert seen["config"] == Config(data="FOLDER", image_size=32, network="fast", amp="auto")


def test_no_more_images_than_there_are() -> None:
    def more(size: int | None, data: str = "mnist-mini") -> int | None:
        return more_images({"config": {"train_size": size, "data": data}})

    assert [more(300), more(700), more(1000), more(None)] == [600, 1000, None, None]
    assert more(300, "photos") is None


@pytest.mark.parametrize(
    ("interval", "flag"), [((0.6, 0.8), "--train-size 1000"), ((1.1, 1.9), "--alpha 0.1"), (None, "--seeds 10")]
)
def test_the_page_says_what_to_try(
    make_comparison: Callable[..., Path], interval: tuple[float, float] | None, flag: str
) -> None:
    folder = make_comparison(interval=interval)
    comparison = read_comparison(folder)
    own, again, longer, inspect = [command for _, command in next_step(comparison).commands]
    assert own == "deepsup compare --data FOLDER --image-size 32 --network nin-mnist --out runs/mine"
    assert flag in again
    assert "--data mnist-mini" in again
    assert "--epochs 6" in longer
    assert all(Path(word).is_dir() for word in shlex.split(inspect)[2:])
    comparison.table["config"]["data"] = "photos"
    assert "FOLDER" not in " ".join(command for _, command in next_step(comparison).commands)
