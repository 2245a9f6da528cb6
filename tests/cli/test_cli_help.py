"""The help: settings in groups, in words; the list of targets, true and at once; completion for shells."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from deepsup.cli import app, main, settings
from deepsup.cli import help as help_
from deepsup.cli.run_commands import _INSTEAD
from deepsup.paper.targets import TARGETS
from deepsup.trainer.config import GROUPS, PLACES, Config, settings_of

ROOT = Path(__file__).parents[2]
SETTINGS = {each.name: each for group in GROUPS.values() for each in settings_of(group) if each.name != "phases"}
VERBS = [verb for group in help_.GROUPS.values() for verb in group]


def help_of(verb: str, capsys: pytest.CaptureFixture, option: str = "--help-all") -> str:
    assert main([*verb.split(), option]) == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize("verb", ["train", "compare", "sweep"])
def test_the_short_help_has_what_people_change_and_three_examples(verb: str, capsys: pytest.CaptureFixture) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 80
    assert f"All options: deepsup {verb} --help-all" in text
    examples = re.findall(r"^  (deepsup .*)$", text, re.MULTILINE)
    assert len(examples) == 3
    for each in examples:
        assert callable(app._parse(shlex.split(each)[1:]))
    shown, every = (set(re.findall(r"^\W*(--[a-z-]+)", page, re.MULTILINE)) for page in (text, full(verb, capsys)))
    assert {"--data", "--network", "--lr", "--epochs", "--json"} <= shown < every
    assert len(shown) <= 20


def full(verb: str, capsys: pytest.CaptureFixture) -> str:
    assert main([verb, "--help-all"]) == 0
    return capsys.readouterr().out


def option(name: str) -> str:
    return "--" + name.replace("_", "-")


@pytest.mark.parametrize("asked", ["--help", "--help-all"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_every_verb_is_explained_and_has_a_default(
    verb: str, asked: str, capsys: pytest.CaptureFixture
) -> None:
    text = help_of(verb, capsys, asked).partition("All options: ")
    text = text[2] or text[0]
    assert "{None}" not in text
    assert "{True,False}" not in text
    assert "(default: None)" not in text
    assert not re.search(r"\b(STR|PATH)\b", text.replace("NAME|PATH", ""))
    options = re.findall(r" (--[a-z][a-z-]+)", text)
    assert "--json" in options
    for each in set(options) - {"--help", "--help-all"} - {name for name in options if name.startswith("--no-")}:
        assert re.search(rf" {each}\b.*?\(default: ", text), each


@pytest.mark.parametrize(
    ("verb", "defaults", "without"), [("train", Config(), ()), ("compare", Config(amp="auto"), _INSTEAD)]
)
def test_settings_stand_in_their_groups(verb: str, defaults: Config, without, capsys: pytest.CaptureFixture) -> None:
    text = help_of(verb, capsys)
    starts = [text.index(f"{group} options") for group in GROUPS]
    assert starts == sorted(starts)
    parts = dict(zip(GROUPS, (text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)), strict=True))
    for name, setting in SETTINGS.items():
        if option(name)[2:] in without:
            assert f" {option(name)} " not in text
            continue
        metavar = r"(?:, \S+)?(?: [A-Z=|]+(?: \.\.\.)?)?"
        pattern = rf" {option(name)}{metavar} {re.escape(setting.doc)}.*?\(default: (.*?)\)"
        (sentence,) = re.findall(pattern, parts[PLACES[name][0]])
        default = value_of(defaults, name)
        if isinstance(default, bool):
            assert sentence == ("on" if default else "off")
        elif isinstance(default, (int, float, str)):
            assert sentence == str(default)


def value_of(config: Config, name: str) -> object:
    group, field = PLACES[name]
    return getattr(getattr(config, group), field)


def parsed(*words: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config that ``deepsup train`` would train with."""
    seen: list[Config] = []

    class Seen(Exception):  # noqa: N818 - no error
        pass

    def train(config: Config, *_: object, **__: object) -> None:
        seen.append(config)
        raise Seen

    monkeypatch.setattr("deepsup.trainer.runs._train.train", train)
    with pytest.raises(Seen):
        main(["train", *words])
    return seen[0]


@pytest.mark.parametrize(
    ("words", "value"),
    [("", "off"), ("--amp", "on"), ("--amp --epochs 3", "on"), ("--no-amp", "off"), ("--amp auto", "auto"),
     ("--amp on", "on"), ("--amp off", "off"), ("--amp True", "on"), ("--amp false", "off"), ("--amp=auto", "auto"),
     ("--amp=False", "off"), ("--recipe fast-cifar10", "auto"), ("--recipe fast-mnist --no-amp", "off")],
)  # fmt: skip
def test_amp_is_a_choice_and_a_switch(words: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(*words.split(), monkeypatch=monkeypatch).run.amp == value


def test_another_precision_than_there_is_is_refused(capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "--amp", "float16"]) == 2
    assert "amp='float16'; expected one of: auto, on, off" in capsys.readouterr().err


BOOLEANS = [name for name in SETTINGS if isinstance(value_of(Config(), name), bool)]


@pytest.mark.parametrize("value", [True, False])
def test_booleans_are_flags(value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [option(name) if value else "--no-" + option(name)[2:] for name in BOOLEANS]
    config = parsed(*words, monkeypatch=monkeypatch)
    assert {name: value_of(config, name) for name in BOOLEANS} == dict.fromkeys(BOOLEANS, value)


@pytest.mark.parametrize(
    ("words", "value"),
    [(["True"], True), (["False"], False), (["=false"], False), (["--epochs", "3"], True), (["--epochs=3"], True)],
)
def test_a_switch_takes_a_word(words: list[str], value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = "--shuffle" + (words[0] if words[0].startswith("=") else "")
    rest = [word for word in words if not word.startswith("=")]
    assert value_of(parsed(first, *rest, monkeypatch=monkeypatch), "shuffle") is value


def test_every_kind_of_setting_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--alpha 0.1 0.2 --at a b --train-size 5 --lr 1e-3 --pool 4 --network-options drop=0.3 widths=[1,2] a=b"
    config = parsed(*words.split(), "--hidden", "--loss", "softmax", monkeypatch=monkeypatch)
    assert (config.objective.alpha, config.supervision.taps) == ((0.1, 0.2), ("a", "b"))
    assert (config.data.train_size, config.optimizer.lr) == (5, 0.001)
    assert (config.supervision.pool, config.supervision.hidden, config.objective.loss) == ("4", (), "softmax")
    assert config.network.options == {"drop": 0.3, "widths": [1, 2], "a": "b"}


def test_older_names_of_settings_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--taps conv1 conv2 --learning-rate=0.5 --head-lr 1"
    assert parsed(*words.split(), monkeypatch=monkeypatch) == Config(at=("conv1", "conv2"), lr=0.5, companion_lr=1.0)


def test_a_schedule_of_earlier_versions_is_still_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parsed("--anneal", "stall", "--validation", "9", monkeypatch=monkeypatch)
    assert config == Config(anneal="plateau", validation=9)


def test_words_of_the_help_are_for_settings_that_there_are() -> None:
    assert {*settings._UNSET, *settings._METAVARS} <= PLACES.keys()


def test_the_list_of_targets_has_all(capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, target in TARGETS.items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert target.title in line


def examples() -> list[str]:
    """The commands of the README and the docs: in code blocks, and in the table of docs/cli.md."""
    files = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    pages = {path.name: path.read_text().replace("\\\n", "") for path in files}
    lines = [
        line for page in pages.values() for line in re.findall(r"^    (deepsup [a-z][^#|>\n]*)", page, re.MULTILINE)
    ]
    return [*lines, *re.findall(r"^\|.*`(deepsup [^`]*)` \|$", pages["cli.md"], re.MULTILINE)]


@pytest.mark.parametrize("command", list(dict.fromkeys(examples())))
def test_the_commands_of_the_docs_are_commands(command: str) -> None:
    assert callable(app._parse(shlex.split(command)[1:]))  # it notes what to call, and calls nothing


def test_every_verb_has_its_line_in_the_docs() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert re.findall(r"^\| `([a-z ]+)` \|", page, re.MULTILINE) == VERBS
    assert set(VERBS) == set(app._verbs)
    for verb in VERBS:
        assert f"`deepsup {verb}" in page


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to complete in")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["deepsup", "tr"], {"train"}),
        (["deepsup", "data", ""], {"list", "get", "check"}),
        (["deepsup", "train", "--epo"], {"--epochs"}),
        (["deepsup", "train", "--no-nor"], {"--no-norms"}),
    ],
)
def test_bash_completes(typed: list[str], offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--tyro-print-completion", "bash"]) == 0
    script = tmp_path / "deepsup"
    script.write_text(capsys.readouterr().out)
    words = " ".join(f"'{word}'" for word in typed)
    ask = f"""source {script}
    function=$(complete -p deepsup | sed -E 's/.*-F ([^ ]+) .*/\\1/')
    COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; COMP_LINE="{" ".join(typed)}"; COMP_POINT=${{#COMP_LINE}}
    $function deepsup '{typed[-1]}' '{typed[-2]}' 2>/dev/null
    printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert offered <= set(done.stdout.split()), done
