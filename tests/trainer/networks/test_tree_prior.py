"""The tree-based prior against its formula, class by class, and its closed form against a search."""

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsup.errors import NetworkError
from deepsup.trainer.networks import CIFAR100_TREE, TreePrior, create_network

TREE = {"small": [0, 3], "large": [1], "rest": [4, 2, 5]}


def slow_penalty(beta: Tensor, theta: Tensor, lambda1: float, lambda2: float) -> Tensor:
    """lambda2/2 sum_k |beta_k - theta_parent(k)|^2 + lambda1/2 sum_s |theta_s|^2, number by number."""
    total = torch.zeros((), dtype=beta.dtype)
    for s, classes in enumerate(TREE.values()):
        for d in range(beta.shape[1]):
            total = total + lambda1 / 2 * theta[s, d] ** 2
            for k in classes:
                total = total + lambda2 / 2 * (beta[k, d] - theta[s, d]) ** 2
    return total


@pytest.mark.parametrize(("lambda1", "lambda2"), [(0.3, 2.0), (0.0, 1.0), (5.0, 0.01)])
def test_penalty_and_gradient(lambda1: float, lambda2: float) -> None:
    prior = TreePrior(TREE, 6, lambda1, lambda2)
    beta = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    theta = prior.centres(beta)
    for s, classes in enumerate(TREE.values()):
        expected = sum(beta[k] for k in classes) / (len(classes) + lambda1 / lambda2)
        torch.testing.assert_close(theta[s], expected)
    fixed = theta.detach()
    ours, oracle = prior(beta), slow_penalty(beta, fixed, lambda1, lambda2)
    torch.testing.assert_close(ours, oracle)
    # the oracle holds theta fixed, as the paper's alternation does; at the best theta that is the whole gradient
    torch.testing.assert_close(torch.autograd.grad(ours, beta), torch.autograd.grad(oracle, beta))


def test_the_closed_form_is_the_minimum() -> None:
    prior, beta = TreePrior(TREE, 6, 0.5, 1.5), torch.randn(6, 3, dtype=torch.float64)
    best, value = prior.centres(beta), prior(beta)
    for _ in range(50):
        assert slow_penalty(beta, best + 0.1 * torch.randn_like(best), 0.5, 1.5) > value


def test_it_works_on_outputs_and_on_convolutions() -> None:
    prior = TreePrior(CIFAR100_TREE, 100, 1e-3, 1e-3)
    for name, layer in (("tree-cifar100", "scores"), ("nin-cifar100", "mlp3b")):
        weight = create_network(name, image_size=8).get_parameter(f"{layer}.weight")
        prior(weight).backward()
        assert weight.grad is not None
        assert weight.grad.shape == weight.shape


def test_equal_classes_under_a_weak_root_cost_nothing() -> None:
    weight = torch.ones(6, 4)
    assert TreePrior(TREE, 6, lambda1=0.0, lambda2=1.0)(weight).item() == 0.0


def test_training_pulls_classes_of_a_family_together() -> None:
    prior, weight = TreePrior(TREE, 6, 0.0, 1.0), torch.randn(6, 4, requires_grad=True)
    before = (weight[0] - weight[3]).norm().item()
    torch.optim.SGD([weight], lr=0.5).zero_grad()
    prior(weight).backward()
    with torch.no_grad():
        weight -= 0.5 * weight.grad  # type: ignore[operator]
    assert (weight[0] - weight[3]).norm().item() == pytest.approx(before / 2, rel=1e-5)


def test_cifar100s_tree_has_every_class_once() -> None:
    assert len(CIFAR100_TREE) == 20
    assert all(len(classes) == 5 for classes in CIFAR100_TREE.values())
    assert sorted(k for classes in CIFAR100_TREE.values() for k in classes) == list(range(100))
    # apple, aquarium_fish, baby, bear, beaver: the first five fine labels
    first = [next(name for name, classes in CIFAR100_TREE.items() if k in classes) for k in range(5)]
    assert first == ["fruit_and_vegetables", "fish", "people", "large_carnivores", "aquatic_mammals"]


def test_numpy_classes_and_state() -> None:
    prior = TreePrior({"a": np.array([0, 1]), "b": np.array([2])}, 3, 1.0, 1.0)  # type: ignore[dict-item]
    assert prior.parent.tolist() == [0, 0, 1]
    assert prior.state_dict() == {}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [0, 1], "b": [3]}, "tree misses class 2 of 4 classes; give each class one super-class"),
        ({"a": []}, "tree misses classes 0, 1, 2, 3 of 4 classes"),
        ({"a": [0, 1, 2], "b": [3, 9]}, "tree has class 9; expected classes 0 to 3"),
        ({"a": [0, 1, 2], "b": [2, 3]}, "tree has class 2 more than once"),
        ({"a": [0, 1, 2, 3], "b": []}, "tree has no class under 'b'"),
        ({"a": [0, 1, 2, "3"]}, "a class of tree is '3'; expected a whole number"),
        ([0, 0, 1, 1], "expected a mapping such as"),
        ({"a": 3}, "tree has 3 under 'a'; expected a list of classes"),
    ],
)
def test_bad_trees_are_refused(tree: object, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        TreePrior(tree, 4, 1.0, 1.0)  # type: ignore[arg-type]


def test_other_bad_input() -> None:
    with pytest.raises(NetworkError, match="misses classes 0, 1, 2, 3, 4 and 95 more of 100 classes"):
        TreePrior({}, 100, 1.0, 1.0)
    with pytest.raises(NetworkError, match="lambda2 of TreePrior is 0"):
        TreePrior(TREE, 6, 1.0, 0.0)
    with pytest.raises(NetworkError, match="lambda1 of TreePrior is -1; expected a finite number of at least 0"):
        TreePrior(TREE, 6, -1, 1.0)
    with pytest.raises(NetworkError, match=r"got weights of shape \(5, 2\); expected \[6, ...\], one row per class"):
        TreePrior(TREE, 6, 1.0, 1.0)(torch.zeros(5, 2))
    with pytest.raises(NetworkError, match=r"got weights of shape \(6,\)"):
        TreePrior(TREE, 6, 1.0, 1.0)(torch.zeros(6))
