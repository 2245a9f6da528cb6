"""The exception tree at the head of errors.py is that of the classes."""

import re

from deepsup import errors
from deepsup.errors import DeepsupError


def drawn() -> dict[str, tuple[str, str | None, str]]:
    """Return, for every class of the drawing: its parent, the built-in class it also derives from, and its text."""
    parents, tree = {-1: ""}, {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.fullmatch(r"([ │├└─]*)(\w+)(?: \((\w+)\))?(?: +(\S.*))?", line)
        if found and found[2].endswith(("Error", "Exception")):
            depth = len(found[1])
            parent = parents[max(each for each in parents if each < depth)]
            parents = {each: name for each, name in parents.items() if each < depth} | {depth: found[2]}
            tree[found[2]] = (parent, found[3], found[4] or "")
    return tree


def classes(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(each for child in root.__subclasses__() for each in classes(child))]


def test_the_drawing_has_every_class_in_its_place() -> None:
    tree = drawn()
    assert tree.pop("Exception") == ("", None, "")
    expected = {each.__name__: each for each in classes(DeepsupError) if each.__module__ == errors.__name__}
    assert set(tree) == set(expected)
    for name, (parent, builtin, text) in tree.items():
        bases = [base.__name__ for base in expected[name].__bases__]
        assert bases == [parent] + [builtin] * (builtin is not None), name
        if text:  # the drawing and the docstring say the same
            assert (expected[name].__doc__ or "").lower() == f"{text}.".lower(), name
