"""Which files may run code or ask for memory, and where they are opened: nowhere but in the readers that are fuzzed."""

import ast
from collections.abc import Collection
from pathlib import Path

import deepsup

SOURCE = Path(deepsup.__file__).parent
DANGEROUS = {
    "torch.load": {
        "trainer/training/_checkpoint.py", "trainer/runs/_starting_weights.py", "cli/self_test.py"
    },  # always with weights_only
    "torch.jit.load": set(),
    "torch.export.load": {"exporting/_formats.py"},  # what was just written into memory
    "torch.hub.load": set(),
    "pickle.load": set(),
    "pickle.loads": set(),
    "pickle.Unpickler": set(),
    "onnx.load": {"exporting/_quantization.py"},  # what was just exported, in a temporary folder of its own
    "onnx.load_model": set(),
    "onnx.load_from_string": {"exporting/_quantization.py"},
    "onnxruntime.InferenceSession": {
        "exporting/_formats.py", "exporting/_quantization.py", "exits/onnx_runner.py"
    },
    "yaml.load": {"io.py"},  # without aliases
    "yaml.unsafe_load": set(),
    "shelve.open": set(),
    "marshal.loads": set(),
    "joblib.load": set(),
}  # fmt: skip
"""What opens a file of a kind that can hold code, and the modules that do."""


def callers(names: Collection[str]) -> dict[str, set[str]]:
    """Return, for each full name, the modules that use it or import it."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used = []
            if isinstance(node, ast.Attribute):
                used = [ast.unparse(node)]
            elif isinstance(node, ast.ImportFrom):
                used = [f"{node.module}.{each.name}" for each in node.names]
            for name in found.keys() & set(used):
                found[name].add(path.relative_to(SOURCE).as_posix())
    return found


def test_files_that_can_hold_code_are_opened_in_few_places() -> None:
    """No verb reads an ONNX or a .pt2 file: sessions are made of what was just exported, and by the exported runner."""
    assert callers(DANGEROUS) == DANGEROUS


def test_torch_reads_weights_only() -> None:
    for name in DANGEROUS["torch.load"]:
        for node in ast.walk(ast.parse((SOURCE / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                assert "weights_only=True" in ast.unparse(node), name
