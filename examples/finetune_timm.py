"""Fine-tune a timm model with companions.

Here it is "pretrained" on half of the digits, so that nothing is downloaded; use ``pretrained=True`` for real weights.
"""

import torch
from torch import Tensor, nn

import deepsup.adapters.torchvision_first  # noqa: F401 - torchvision 0.28 beside a CPU build of torch needs it
from deepsup import Objective, load_data, supervise

# isort: split
import timm

torch.manual_seed(0)
digits = load_data()
images, test_images = (torch.tensor(part.images[:1000]) / 255 for part in (digits.train, digits.test))
labels, test_labels = (torch.tensor(part.labels[:1000]) for part in (digits.train, digits.test))


def accuracy(model: nn.Module) -> float:
    """Return the share of test digits that are right."""
    model.eval()
    with torch.no_grad():
        return float((model(test_images).argmax(1) == test_labels).float().mean())


def batches(first: int, last: int, epochs: int) -> list[Tensor]:
    """Return the rows of each batch of some epochs."""
    return [rows + first for _ in range(epochs) for rows in torch.randperm(last - first).split(50)]


model = timm.create_model("test_resnet", in_chans=1, num_classes=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
for rows in batches(0, 500, epochs=6):
    loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"before: {accuracy(model):.1%} right")

model.train()
model.reset_classifier(10)  # a new output layer, as for a new task
net = supervise(model, at=["layer1", "layer2", "layer3"], num_classes=10, example=images[:1])
objective = Objective(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
steps = batches(500, 1000, epochs=6)
for step, rows in enumerate(steps):
    loss = objective(net(images[rows]), labels[rows], progress=step / len(steps))
    optimizer.zero_grad()
    loss.total.backward()
    optimizer.step()
print(f"after fine-tuning with companions: {accuracy(net.strip()):.1%} right")
