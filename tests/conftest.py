"""What every test starts from: a fixed seed, and a torchvision that imports beside a CPU build of torch."""

import pytest
import torch

# torchvision 0.28 expects two operators of its compiled half, which the CPU build of torch cannot load; declared here,
# never called, they let its models be imported (the library itself needs none of this).
_torchvision_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _torchvision_operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


# The nets here are small: a second thread gains little, and on a busy machine the first waits for it at every layer.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> int:
    """Every test starts from the same random state; returns the seed for those that make generators of their own."""
    torch.manual_seed(0)
    return 0
