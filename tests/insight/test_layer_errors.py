"""What layers know: the numbers are scikit-learn's, or those of an explicit loop."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix
from torch import nn

from deepsup.insight import Measurement, layer_insight, layer_outputs, probe_layer
from deepsup.insight import _probes as linear
from deepsup.insight._layer_errors import settled_layer
from deepsup.insight._probes import DECAY, fit_probe

CLASSES = ("<script>", "b", "c", "d")


@pytest.fixture
def measured() -> Measurement:
    """Scores of 60 images at two layers and the output; class 3 has no image."""
    labels = torch.randint(0, 3, (60,))
    hint = nn.functional.one_hot(labels, 4).float()
    conv1, conv2, output = (torch.randn(60, 4) + strength * hint for strength in (0.5, 1.0, 2.0))
    return Measurement(output, {"conv1": conv1, "conv2": conv2}, labels)


def test_errors_confusions_and_confidences_are_those_of_scikit_learn(measured: Measurement) -> None:
    found = layer_insight(measured, CLASSES)
    assert found["absent"] == ["d"]
    for name, scores in {**measured.companions, "output": measured.scores}.items():
        labels, said = measured.labels.numpy(), scores.numpy().argmax(1)
        layer = found["layers"][name]
        assert layer["error"] == pytest.approx(100 * (1 - accuracy_score(labels, said)))
        assert layer["confusion"] == confusion_matrix(labels, said, labels=range(4)).tolist()
        powers = np.exp(scores.double().numpy())
        sure = (powers / powers.sum(1, keepdims=True)).max(1)
        assert layer["confidence"] == pytest.approx(sure.mean())
        assert layer["confidence_right"] == pytest.approx(sure[said == labels].mean())
        assert layer["confidence_wrong"] == pytest.approx(sure[said != labels].mean())


def test_the_surest_mistakes_come_first(measured: Measurement) -> None:
    found = layer_insight(measured, CLASSES)["mistakes"]
    said = measured.scores.argmax(1)
    wrong = {int(index) for index in torch.nonzero(said != measured.labels)}
    assert {each["index"] for each in found} == wrong
    assert [each["confidence"] for each in found] == sorted((each["confidence"] for each in found), reverse=True)
    assert all(each["said"] == CLASSES[said[each["index"]]] != each["label"] for each in found)


def test_nothing_wrong_and_nothing_right() -> None:
    scores, labels = torch.eye(2), torch.tensor([0, 1])
    assert layer_insight(Measurement(scores, {}, labels), "ab")["layers"]["output"]["confidence_wrong"] is None
    assert layer_insight(Measurement(scores, {}, 1 - labels), "ab")["layers"]["output"]["confidence_right"] is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=8))
def test_right_for_good_is_what_a_loop_finds(right: list[list[bool]]) -> None:
    """right[i][l]: whether image i is right at layer l."""
    expected = [next((first for first in range(3) if all(each[first:])), 3) for each in right]
    layers = [torch.tensor([int(not each[layer]) for each in right]) for layer in range(3)]
    assert settled_layer(layers, torch.zeros(len(right), dtype=torch.long)).tolist() == expected


def test_agreement_counts_every_image_once(measured: Measurement) -> None:
    counts = layer_insight(measured, CLASSES)["agreement"]
    assert list(counts) == ["conv1", "conv2", "output", "never"]
    assert sum(counts.values()) == 60
    assert counts["never"] == int((measured.scores.argmax(1) != measured.labels).sum())


def test_a_linear_probe_is_scikit_learns_logistic_regression() -> None:
    labels = torch.arange(90) % 3
    features = torch.randn(90, 5) + 1.5 * nn.functional.one_hot(labels, 5)
    probe = fit_probe("layer", features, labels, 3)
    scaled = (features * probe.scale).numpy()
    assert np.square(scaled).mean() == pytest.approx(1, rel=1e-5)
    theirs = LogisticRegression(C=1 / (DECAY * 90), tol=1e-8, max_iter=1000).fit(scaled, labels.numpy())
    chances = torch.softmax(probe(features), 1).numpy()
    np.testing.assert_allclose(chances, theirs.predict_proba(scaled), atol=5e-3)


def test_probing_leaves_the_net_as_it_was() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(), nn.Linear(64, 2)).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    images, labels = torch.randn(40, 1, 6, 6), torch.arange(40) % 2
    images[labels == 1] += 1
    facts, scores = probe_layer(net, "0", (images[:30], labels[:30]), (images[30:], labels[30:]), 2)
    assert scores.shape == (10, 2)
    assert facts["error"] == pytest.approx(100 * (1 - accuracy_score(labels[30:], scores.argmax(1))))
    assert facts["train_images"] == 30
    assert net.training
    assert all(not layer._forward_hooks for layer in net)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_probe_of_images_that_are_sorted_by_class_sees_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted on 30 of 90: with the first 30 it would know one class of three."""
    monkeypatch.setattr(linear, "IMAGES", 30)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    labels = torch.arange(90) // 30
    images = torch.randn(90, 3, 2, 2) + 8 * nn.functional.one_hot(labels, 3)[:, :, None, None]
    facts, _ = probe_layer(net, "0", (images, labels), (images, labels), 3)
    assert facts["train_images"] == 30
    assert facts["error"] == 0
    drawn = linear.sample((images, labels), 30)
    assert drawn[1].bincount().tolist() == [10, 10, 10]
    assert all(torch.equal(*each) for each in zip(drawn, linear.sample((images, labels), 30), strict=True))
    assert linear.sample((images, labels), 90)[0] is images


def test_what_a_layer_puts_out_is_before_any_change_in_place() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True))
    images = torch.randn(3, 1, 5, 5)
    torch.testing.assert_close(layer_outputs(net, ["0"], images)["0"], net[0](images).detach())
