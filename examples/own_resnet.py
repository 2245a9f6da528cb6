"""Your own ResNet in your own training loop: companions at two layers, then the plain model again."""

import torch
from torch import Tensor, nn

from deepsup import Objective, load_data, supervise


class Block(nn.Module):
    """Two convolutions and a shortcut; the map gets half as wide."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after))
        self.conv2 = nn.Sequential(nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after))
        self.shortcut = nn.Conv2d(before, after, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps [B,C,H/2,W/2]."""
        return torch.relu(self.conv2(torch.relu(self.conv1(x))) + self.shortcut(x))


class ResNet(nn.Module):
    """Three blocks and a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2, self.layer3 = Block(1, 16), Block(16, 32), Block(32, 64)
        self.fc = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores [B,10]."""
        return self.fc(self.layer3(self.layer2(self.layer1(images))).mean((2, 3)))


torch.manual_seed(0)
digits = load_data()  # digits of MNIST, part of the package
images, test_images = (torch.tensor(part.images[:1000]) / 255 for part in (digits.train, digits.test))
labels, test_labels = (torch.tensor(part.labels[:1000]) for part in (digits.train, digits.test))

net = supervise(ResNet(), at=["layer1", "layer2"], num_classes=10, example=images[:1])
objective = Objective(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
epochs = 5
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=epochs - 1)
for epoch in range(epochs):
    batches = torch.randperm(len(images)).split(25)
    for step, rows in enumerate(batches):
        done = (epoch + step / len(batches)) / epochs
        loss = objective(net(images[rows]), labels[rows], progress=done)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch + 1}: loss {loss.output_loss:.3f}")

net.eval()
with torch.no_grad():
    out = net(test_images)
for layer, scores in {**out.companions, "output": out.scores}.items():
    print(f"{layer}: {(scores.argmax(1) == test_labels).float().mean():.1%} of the test digits right")

model = net.strip()
print(f"the plain model again: {type(model).__name__} with {len(model.state_dict())} tensors")
