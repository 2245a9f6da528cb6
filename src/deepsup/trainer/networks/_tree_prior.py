"""The tree-based prior of Srivastava & Salakhutdinov (NIPS 2013): a penalty on class weights [K,D].

K classes, D features, S super-classes; beta [K,D] are the class weights, theta [S,D] those of the super-classes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import count, number

CIFAR100_TREE: dict[str, tuple[int, ...]] = {
    "aquatic_mammals": (4, 30, 55, 72, 95),
    "fish": (1, 32, 67, 73, 91),
    "flowers": (54, 62, 70, 82, 92),
    "food_containers": (9, 10, 16, 28, 61),
    "fruit_and_vegetables": (0, 51, 53, 57, 83),
    "household_electrical_devices": (22, 39, 40, 86, 87),
    "household_furniture": (5, 20, 25, 84, 94),
    "insects": (6, 7, 14, 18, 24),
    "large_carnivores": (3, 42, 43, 88, 97),
    "large_man-made_outdoor_things": (12, 17, 37, 68, 76),
    "large_natural_outdoor_scenes": (23, 33, 49, 60, 71),
    "large_omnivores_and_herbivores": (15, 19, 21, 31, 38),
    "medium_mammals": (34, 63, 64, 66, 75),
    "non-insect_invertebrates": (26, 45, 77, 79, 99),
    "people": (2, 11, 35, 46, 98),
    "reptiles": (27, 29, 44, 78, 93),
    "small_mammals": (36, 50, 65, 74, 80),
    "trees": (47, 52, 56, 59, 96),
    "vehicles_1": (8, 13, 48, 58, 90),
    "vehicles_2": (41, 69, 81, 85, 89),
}
"""The 20 super-classes of CIFAR-100 with five classes each, from its coarse and fine labels."""


class TreePrior(nn.Module):
    """The penalty lambda2/2 sum_k |beta_k - theta_parent(k)|^2 + lambda1/2 |theta|^2, at its best theta.

    Classes of one super-class are pulled to a common centre, so that classes with few images learn from the
    others. For given weights the best centre is known: theta_s = sum of its beta_k / (size of s + lambda1/lambda2). The
    paper updates it every few steps; here it is computed at every call, which needs no state. (At the best theta the
    gradient through it vanishes.)

    ``tree`` maps each super-class to its classes, counted from 0. ``prior(layer.weight)`` works on any [K, ...]: the
    output layer's or a companion's. lambda1 and lambda2 were chosen on validation data and never published: choose
    your own. All formulas are from memory of the paper, not checked against its text. Learned trees are not supported.
    """

    parent: Tensor
    size: Tensor

    def __init__(self, tree: Mapping[str, Sequence[int]], num_classes: int, lambda1: float, lambda2: float) -> None:
        super().__init__()
        self.num_classes = count("num_classes of TreePrior", num_classes)
        self.lambda1 = number("lambda1 of TreePrior", lambda1, least=0)
        self.lambda2 = number("lambda2 of TreePrior", lambda2, least=0)
        if self.lambda2 == 0:
            raise NetworkError("lambda2 of TreePrior is 0; expected a number above 0: without it there is no prior")
        parents = _parents(tree, self.num_classes)
        self.register_buffer("parent", torch.tensor(parents), persistent=False)
        self.register_buffer("size", torch.tensor([len(classes) for classes in tree.values()]), persistent=False)

    def centres(self, weight: Tensor) -> Tensor:
        """[K, ...] -> theta [S, D], the closed form."""
        beta = self._flat(weight)
        sums = beta.new_zeros(len(self.size), beta.shape[1]).index_add(0, self.parent.to(beta.device), beta)
        return sums / (self.size.to(beta) + self.lambda1 / self.lambda2).unsqueeze(1)

    def forward(self, weight: Tensor) -> Tensor:
        """[K, ...] -> the penalty, one number."""
        beta, theta = self._flat(weight), self.centres(weight)
        spread = (beta - theta[self.parent.to(beta.device)]).square().sum()
        return self.lambda2 / 2 * spread + self.lambda1 / 2 * theta.square().sum()

    def _flat(self, weight: Tensor) -> Tensor:
        if weight.dim() < 2 or len(weight) != self.num_classes:
            raise NetworkError(
                f"TreePrior got weights of shape {tuple(weight.shape)}; "
                f"expected [{self.num_classes}, ...], one row per class"
            )
        return weight.flatten(1)

    def extra_repr(self) -> str:
        """Return the settings for ``print(prior)``."""
        return (
            f"{len(self.size)} super-classes of {self.num_classes}, lambda1={self.lambda1:g}, lambda2={self.lambda2:g}"
        )


def _parents(tree: Mapping[str, Sequence[int]], num_classes: int) -> list[int]:
    """Return the super-class of each class; raise an error unless every class has exactly one."""
    if not isinstance(tree, Mapping):
        raise NetworkError(f"tree is {tree!r}; expected a mapping such as {{'fish': [0, 1], 'trees': [2, 3]}}")
    for name, classes in tree.items():
        if not isinstance(classes, Iterable) or isinstance(classes, str):
            raise NetworkError(f"tree has {classes!r} under {name!r}; expected a list of classes, counted from 0")
    given = Counter(count("a class of tree", leaf, least=0) for classes in tree.values() for leaf in classes)
    missing = sorted(set(range(num_classes)) - set(given))
    if missing:
        raise NetworkError(f"tree misses {_listed(missing)} of {num_classes} classes; give each class one super-class")
    unknown = sorted(set(given) - set(range(num_classes)))
    if unknown:
        raise NetworkError(f"tree has {_listed(unknown)}; expected classes 0 to {num_classes - 1}")
    twice = sorted(leaf for leaf, times in given.items() if times > 1)
    if twice:
        raise NetworkError(f"tree has {_listed(twice)} more than once; give each class one super-class")
    empty = [name for name, classes in tree.items() if not len(classes)]
    if empty:
        raise NetworkError(f"tree has no class under {empty[0]!r}; give it one or leave it out")
    parent_of = {leaf: index for index, classes in enumerate(tree.values()) for leaf in classes}
    return [parent_of[leaf] for leaf in range(num_classes)]


def _listed(classes: list[int], most: int = 5) -> str:
    """Return the first few classes as text for a message."""
    shown = ", ".join(str(leaf) for leaf in classes[:most])
    more = f" and {len(classes) - most} more" if len(classes) > most else ""
    return f"class{'es' if len(classes) > 1 else ''} {shown}{more}"
