"""``shape_of``: what a TypedDict says of a record is what ``check`` expects of it."""

from typing import Any, NotRequired, TypedDict

import pytest

from deepsup.io import check, shape_of


class Inner(TypedDict):
    rows: list[int]


class Record(TypedDict):
    error: float | None
    by_name: dict[str, float]
    anything: dict[str, Any]
    inner: NotRequired[Inner]


SOUND: dict[str, Any] = {"error": None, "by_name": {"a": 1}, "anything": {"b": [None]}, "inner": {"rows": [1, 2]}}


def test_the_shape_of_a_record() -> None:
    assert shape_of(Record) == {
        "error": (float, type(None)), "by_name": {"*": float}, "anything": {}, "inner?": {"rows": [int]},
    }  # fmt: skip
    check(SOUND, shape_of(Record))
    check({name: value for name, value in SOUND.items() if name != "inner"}, shape_of(Record))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"error": "high"}, "'error' is a str, expected float or null"),
        ({"by_name": {"a": None}}, "'a' is a NoneType, expected float"),
        ({"inner": {}}, "'inner' has no 'rows'"),
        ({"inner": {"rows": [True]}}, r"'rows'\[0\] is a bool, expected int"),
    ],
)
def test_a_record_of_another_shape_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check(SOUND | change, shape_of(Record))
