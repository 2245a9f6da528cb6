"""Distillation: the output's scores teach the companions. Scores [B,K] and the teacher's [B,K] -> a loss [B].

    l_m = (1 - share) l(scores_m, y) + share T^2 H(softmax(scores_out / T), softmax(scores_m / T))

H is the cross-entropy. The teacher is detached: only the companion and the layers below it learn from this term. T^2
keeps the size of the gradient when T changes (Hinton, Vinyals and Dean, 2015).
"""

import math
from dataclasses import dataclass
from numbers import Real

from torch import Tensor
from torch.nn import functional as F

from deepsup.errors import ObjectiveError


@dataclass(frozen=True)
class Distillation:
    """How much of a companion's loss comes from the output's scores, and at which temperature."""

    share: float
    temperature: float

    def __post_init__(self) -> None:
        if not isinstance(self.share, Real) or isinstance(self.share, bool) or not 0 <= self.share <= 1:
            raise ObjectiveError(f"distill={self.share!r}; expected the share of the companions' loss, within 0 and 1")
        positive = isinstance(self.temperature, Real) and not isinstance(self.temperature, bool)
        if not positive or not 0 < self.temperature < math.inf:
            raise ObjectiveError(f"distill_temperature={self.temperature!r}; expected a number above 0, such as 2")

    def mixed(self, loss: Tensor, distilled: Tensor) -> Tensor:
        """Return the companion's loss: its share of the labels' and of the teacher's."""
        return (1 - self.share) * loss + self.share * distilled

    def __call__(self, scores: Tensor, teacher: Tensor) -> Tensor:
        """Return T^2 times the cross-entropy of the companion's softmax from the teacher's, [B]."""
        soft = (teacher.detach() / self.temperature).softmax(1)
        return self.temperature**2 * F.cross_entropy(scores / self.temperature, soft, reduction="none")
