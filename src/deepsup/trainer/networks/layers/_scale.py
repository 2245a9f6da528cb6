"""Multiply scores by a constant."""

from torch import Tensor, nn

from deepsup.trainer.networks._numbers import number


class Scale(nn.Module):
    """Multiply by a fixed number: small initial scores keep the loss from saturating in the first steps."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = number("factor of Scale", factor, least=0)

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...]."""
        return x * self.factor

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        return f"{self.factor:g}"
