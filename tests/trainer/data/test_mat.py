"""MATLAB 5 files as scipy writes them are read as scipy reads them; damaged ones end in a reason, never in a crash."""

import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from deepsup.trainer.data._mat import NotMatlab, read_mat

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_as_scipy_reads_it(tmp_path, packed, dtype):
    arrays = {
        "X": RNG.integers(0, 100, (3, 4, 2, 5)).astype(dtype),
        "a_long_name": RNG.integers(0, 100, (7, 1)).astype(dtype),
        "y": RNG.integers(0, 100, (1, 3)).astype(dtype),
    }
    scipy.io.savemat(tmp_path / "a.mat", arrays, do_compression=packed)
    held, expected = read_mat(tmp_path / "a.mat"), scipy.io.loadmat(tmp_path / "a.mat")
    assert held.keys() == arrays.keys()
    for name in arrays:
        assert held[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(held[name], expected[name])


def element(order: str, kind: int, payload: bytes) -> bytes:
    return struct.pack(f"{order}II", kind, len(payload)) + payload + bytes(-len(payload) % 8)


@pytest.mark.parametrize(("order", "mark"), [("<", b"IM"), (">", b"MI")])
def test_both_orders_of_bytes_and_values_stored_small(tmp_path, order, mark):
    """MATLAB stores doubles that are small whole numbers as bytes."""
    double = 6
    array = (
        element(order, 6, struct.pack(f"{order}II", double, 0))
        + element(order, 5, struct.pack(f"{order}ii", 3, 1))
        + element(order, 1, b"y")
        + element(order, 2, bytes([1, 10, 3]))
    )
    path = tmp_path / "a.mat"
    path.write_bytes(b"MATLAB 5.0".ljust(124) + struct.pack(f"{order}H", 0x0100) + mark + element(order, 14, array))
    held = read_mat(path)["y"]
    assert held.dtype == np.float64
    assert held.tolist() == [[1.0], [10.0], [3.0]]
    np.testing.assert_array_equal(held, scipy.io.loadmat(path)["y"])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "ends inside its header"),
        (b"x" * 200, "expected b'MATLAB 5.0'"),
        (b"MATLAB 7.3".ljust(126) + b"IM" + bytes(100), "expected b'MATLAB 5.0'"),
        (b"MATLAB 5.0".ljust(126) + b"IM" + b"abc", "ends inside an element"),
        (b"MATLAB 5.0".ljust(126) + b"IM" + struct.pack("<II", 14, 2**31), "ends inside an element"),
        (b"MATLAB 5.0".ljust(126) + b"IM" + element("<", 9, bytes(8)), "an element of type 9"),
        (b"MATLAB 5.0".ljust(126) + b"IM" + element("<", 15, b"not zlib"), "incorrect header check"),
    ],
)
def test_what_is_no_such_file(tmp_path, data, word):
    path = tmp_path / "a.mat"
    path.write_bytes(data)
    with pytest.raises(NotMatlab, match=word):
        read_mat(path)


@pytest.mark.parametrize("packed", [False, True])
def test_random_damage_never_ends_otherwise(tmp_path, packed):
    """Changed, cut and inserted bytes; the same damage ended scipy's reader, and with it the process."""
    path: Path = tmp_path / "a.mat"
    scipy.io.savemat(
        path, {"X": RNG.integers(0, 255, (4, 4, 3, 2), np.uint8), "y": np.ones((2, 1))}, do_compression=packed
    )
    whole = path.read_bytes()
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(RNG.integers(1, 4)):
            place = int(RNG.integers(100, len(data)))
            action = RNG.integers(3)
            if action == 0:
                data[place] = RNG.integers(256)
            elif action == 1:
                del data[place : place + int(RNG.integers(1, 9))]
            else:
                data[place:place] = RNG.bytes(3)
        path.write_bytes(data)
        try:
            read_mat(path)
        except NotMatlab:
            refused += 1
    assert refused > 200
