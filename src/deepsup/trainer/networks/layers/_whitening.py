"""Whitening: a fixed convolution [B,C,H,W] -> [B,2*C*k*k,H-k+1,W-k+1] that decorrelates patches.

B batch, C channels, H W image, k kernel side.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepsup.errors import NetworkError
from deepsup.trainer.networks._numbers import count, number


class WhiteningConv2d(nn.Module):
    """A first layer that is not learned: the eigenvectors of the training patches, each scaled to unit variance.

    Every filter comes with its negative, so that a following activation loses nothing. ``weight`` is a buffer: it is in
    the ``state_dict``, but not among the parameters. The layer has no bias, so the backward pass never computes
    the gradient of its large map (airbench learns a bias for some epochs). Before ``fit_images`` the filters are a
    random orthogonal basis.

    With ``mirror`` every filter equals its mirror image or the negative of it.

    The idea is from Page (2018); patch size 2 and negated copies are from hlb-CIFAR10 and cifar10-airbench.
    """

    weight: Tensor

    def __init__(self, in_channels: int, kernel_size: int = 2, mirror: bool = False) -> None:
        super().__init__()
        self.in_channels = count("in_channels of WhiteningConv2d", in_channels)
        self.kernel_size = count("kernel_size of WhiteningConv2d", kernel_size)
        size = self.in_channels * self.kernel_size**2
        self.out_channels = 2 * size
        self.mirror = mirror
        basis = torch.cat([nn.init.orthogonal_(torch.empty(len(part), len(part))) @ part for part in self._parts()])
        self.register_buffer("weight", self._with_negatives(basis))

    @property
    def order(self) -> tuple[int, ...] | None:
        """With ``mirror``: the channel that each becomes after a flip: even filters stay, odd ones are negated."""
        if not self.mirror:
            return None
        size, even = self.out_channels // 2, len(self._parts()[0])
        return tuple(index if index % size < even else (index + size) % (2 * size) for index in range(2 * size))

    def _parts(self) -> list[Tensor]:
        """Return orthonormal bases, in rows, of the patches that a flip keeps and of those that it negates."""
        units = torch.eye(self.out_channels // 2)
        if not self.mirror:
            return [units]
        columns = units.view(-1, self.in_channels, self.kernel_size, self.kernel_size)
        _, vectors = torch.linalg.eigh(columns.flip(3).flatten(1))  # of the values -1 and 1, in this order
        odd = self.in_channels * self.kernel_size * (self.kernel_size // 2)
        return [vectors.T[odd:], vectors.T[:odd]]

    @torch.no_grad()
    def fit_images(self, images: Tensor, eps: float = 5e-4) -> None:
        """Set the filters from ``images`` [B, C, H, W], preprocessed as they will be in training.

        ``eps`` is added to the eigenvalues, so that noise in directions without variance is not amplified.
        """
        number("eps of WhiteningConv2d.fit_images", eps, least=0)
        if not isinstance(images, Tensor):
            raise NetworkError(f"WhiteningConv2d.fit_images got images of {type(images).__name__}; expected a tensor")
        if images.dim() != 4 or images.shape[1] != self.in_channels or min(images.shape[2:]) < self.kernel_size:
            raise NetworkError(
                f"WhiteningConv2d.fit_images got images of shape {tuple(images.shape)}; "
                f"expected [B, {self.in_channels}, H, W] with H and W of at least {self.kernel_size}"
            )
        covariance = self._covariance(images)
        filters = []
        for part in self._parts():
            basis = part.to(covariance)
            eigenvalues, eigenvectors = torch.linalg.eigh(basis @ covariance @ basis.T)
            scale = (eigenvalues.clamp(min=0) + eps).rsqrt()
            filters.append((eigenvectors * scale).T.flip(0) @ basis)  # the largest variance first
        self.weight.copy_(self._with_negatives(torch.cat(filters)))

    def _covariance(self, images: Tensor) -> Tensor:
        """Return the covariance [C*k*k, C*k*k] of all patches, summed over a few images at a time to save memory."""
        size = self.out_channels // 2
        number_of, total = 0, images.new_zeros(size, dtype=torch.double)
        products = images.new_zeros(size, size, dtype=torch.double)
        for some in torch.split(images, 500):
            patches = F.unfold(some.double(), self.kernel_size).transpose(1, 2).flatten(0, 1)  # [b*L, C*k*k]
            number_of, total, products = (
                number_of + len(patches),
                total + patches.sum(0),
                products + patches.T @ patches,
            )
        if number_of < 2 or not products.isfinite().all():
            raise NetworkError(
                f"WhiteningConv2d.fit_images got {len(images)} images with {number_of} patches; expected at least two "
                "patches, all of finite numbers"
            )
        return (products - total.outer(total) / number_of) / (number_of - 1)

    def _with_negatives(self, basis: Tensor) -> Tensor:
        """[C*k*k, C*k*k], one filter per row -> [2*C*k*k, C, k, k]."""
        return torch.cat([basis, -basis]).reshape(-1, self.in_channels, self.kernel_size, self.kernel_size)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, 2*C*k*k, H-k+1, W-k+1]."""
        return F.conv2d(images, self.weight)

    def extra_repr(self) -> str:
        """Return the settings for ``print(network)``."""
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
