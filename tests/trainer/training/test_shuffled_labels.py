"""Companions with shuffled labels: a control. The output's own loss stays; the companions see permuted labels."""

import pytest
import torch
from torch.nn import functional as F

from deepsup.errors import ConfigError
from deepsup.trainer.config import Config
from deepsup.trainer.training._build import build_net, build_objective

CONFIG = Config(network="plain", network_options={"depth": 3, "widths": [4, 4, 4]}, companion_init="torch")


@pytest.mark.parametrize("changes", [{}, {"label_smoothing": 0.1}, {"loss": "squared_hinge"}])
def test_companions_see_permuted_labels_and_the_output_its_own(changes: dict[str, object]) -> None:
    own = CONFIG.replace(**changes)
    net = build_net(own, 10, (1, 12, 12))
    images, labels = torch.randn(8, 1, 12, 12), torch.arange(8)
    output = net(images)
    plain = build_objective(own, net)
    torch.manual_seed(5)
    found = build_objective(own.replace(companion_labels="shuffled"), net)(output, labels, progress=0.0)
    torch.manual_seed(5)  # the oracle permutes in the order of the taps
    orders = {tap: torch.randperm(8) for tap in net.taps}
    assert len({tuple(order.tolist()) for order in orders.values()}) == len(net.taps) > 1
    assert torch.equal(found.output_loss, plain(output, labels, progress=0.0).output_loss)
    for tap, order in orders.items():
        oracle = plain(output, labels[order], progress=0.0).companion_losses[tap]
        torch.testing.assert_close(found.companion_losses[tap], oracle)


def test_the_oracle_of_softmax_written_out() -> None:
    net = build_net(CONFIG, 10, (1, 12, 12))
    output, labels = net(torch.randn(6, 1, 12, 12)), torch.tensor([0, 1, 2, 3, 4, 5])
    torch.manual_seed(1)
    found = build_objective(CONFIG.replace(companion_labels="shuffled"), net)(output, labels, progress=0.0)
    torch.manual_seed(1)
    for tap, scores in output.companions.items():
        order = torch.randperm(6).tolist()
        each = [-F.log_softmax(scores[row], 0)[labels[order[row]]] for row in range(6)]
        torch.testing.assert_close(found.companion_losses[tap], torch.stack(each).mean())


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match=r"companion_labels='random'.*expected.*own.*shuffled"):
        Config(companion_labels="random")
    with pytest.raises(ConfigError, match="companion_labels=shuffled with class_weights; expected none"):
        Config(companion_labels="shuffled", class_weights=(1.0, 2.0))
    masks = Config(network="unet-small", companion_labels="shuffled")
    with pytest.raises(ConfigError, match="companion_labels=shuffled for images with masks"):
        build_objective(masks, build_net(masks, 11, (1, 32, 32)))
