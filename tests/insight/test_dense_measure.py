"""Metrics of masks beside the same counted pixel by pixel."""

import numpy as np
import pytest
import torch
from dense_nets import dense_net, masks, pictures

from deepsup.insight import measure_dense
from deepsup.insight._dense_measure import boundary_f, overlap


def test_overlap_counted_pixel_by_pixel() -> None:
    said, truth = masks(2, side=8, classes=4).byte(), masks(2, side=8, classes=4).byte()
    truth[0, :3] = 255
    truth[truth == 3] = 1
    said[said == 3] = 2
    found = overlap(said, truth, 5)  # classes 3 and 4 occur nowhere
    pairs = [(int(a), int(b)) for a, b in zip(said.flatten(), truth.flatten(), strict=True) if b != 255]
    for label in range(3):
        both = sum(a == b == label for a, b in pairs)
        either = sum(label in pair for pair in pairs)
        assert found["iou_per_class"][label] == pytest.approx(100 * both / either)
        assert found["dice_per_class"][label] == pytest.approx(200 * both / (either + both))
    assert found["iou_per_class"][3:] == [None, None]
    assert found["miou"] == pytest.approx(np.mean(found["iou_per_class"][:3]))
    assert found["pixel_error"] == pytest.approx(100 * sum(a != b for a, b in pairs) / len(pairs))


def test_boundary_f_counted_pixel_by_pixel() -> None:
    chances = (torch.rand(3, 9, 9) * 255).byte()
    truth = (torch.rand(3, 9, 9) < 0.2).byte()

    def near(pixel: tuple[int, int], edges: torch.Tensor) -> bool:
        y, x = pixel
        return bool(edges[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2].any())

    best = 0.0
    for step in range(1, 20):
        edge = chances.float() / 255 >= step / 20
        hits = [near((int(y), int(x)), truth[i] == 1) for i in range(3) for y, x in edge[i].nonzero()]
        found = [near((int(y), int(x)), edge[i]) for i in range(3) for y, x in (truth[i] == 1).nonzero()]
        if hits and found and sum(hits) + sum(found):
            precision, recall = sum(hits) / len(hits), sum(found) / len(found)
            best = max(best, 200 * precision * recall / (precision + recall))
    assert boundary_f(chances, truth)["f"] == pytest.approx(best, rel=1e-5)
    assert boundary_f((truth * 255).byte(), truth)["f"] == pytest.approx(100)


def test_measuring_upsamples_side_outputs_and_keeps_the_mode() -> None:
    net = dense_net()
    x, y = pictures(5), masks(5).byte()
    found = measure_dense(net, x, y, batch_size=2)
    assert net.training
    net.eval()
    out = net(x)
    assert torch.equal(found.predictions["output"], out.scores.argmax(1).byte())
    grown = torch.nn.functional.interpolate(out.companions["up3"], size=(16, 16), mode="bilinear").argmax(1)
    assert torch.equal(found.predictions["up3"], grown.byte())
    assert found.error == pytest.approx(100 - overlap(found.predictions["output"], y, 3)["miou"])
    assert set(found.companion_errors) == {"up3", "up2"}
