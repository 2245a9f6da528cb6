"""Early exits on embedded digits: train with companions to the end, calibrate, and answer early.

    python examples/early_exits.py

Takes under a minute on one core; needs no data and no network.
"""

import torch
from torch import nn

from deepsup import Companion, Objective, calibrate, load_data, supervise

EPOCHS = 8


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Return 1,000 digits to train on, 2,000 to choose thresholds on and 3,000 to test on."""
    data = load_data("mnist-mini")
    images, labels = torch.tensor(data.test.images) / 255, torch.tensor(data.test.labels)
    train = torch.tensor(data.train.images) / 255, torch.tensor(data.train.labels)
    return train, (images[:2000], labels[:2000]), (images[2000:], labels[2000:])


def main() -> None:
    """Train, calibrate, and compare with the plain net."""
    torch.manual_seed(0)
    (images, labels), validation, (test_images, test_labels) = digits()
    groups = []
    for before, after in ((1, 16), (16, 64), (64, 128)):
        groups.append(nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                                    nn.Conv2d(after, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)))  # fmt: skip
    model = nn.Sequential(*groups, nn.Flatten(), nn.Linear(9 * 128, 10))

    net = supervise(model, ["0", "1"], num_classes=10, example=images[:1], companion=Companion(hidden=(64,)))
    objective = Objective(
        net, schedule="constant", distill=0.5
    )  # companions keep their weight; the output teaches them
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(50):
            loss = objective(net(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.total.backward()
            optimizer.step()

    early = calibrate(net.eval(), validation, max_error_increase=0.5, batch_size=32)
    answer = early(test_images)
    plain = early.model(test_images).argmax(1)
    print(f"error of the plain net {100 * (plain != test_labels).float().mean():.1f} %")
    print(f"error with exits       {100 * (answer.labels != test_labels).float().mean():.1f} %")
    for number, name in enumerate(early.names):
        print(f"leave at {name:13} {100 * (answer.exits == number).float().mean():.0f} %")
    print(f"times as fast          {early.calibration['speedup']['32']:.1f}")


if __name__ == "__main__":
    main()
