"""Deep supervision of a U-Net: train on scenes of digits, look at every side output, prune at a tap.

    python examples/segmentation.py

Needs no download. It takes under a minute on one core.
"""

import torch

from deepsup import Objective, create_network, load_data, supervise
from deepsup.insight import measure_dense

torch.manual_seed(0)
data = load_data("digits-scenes-small")  # 32x32 scenes with 2 to 4 digits, a class per pixel
images = torch.from_numpy(data.train.images).float() / 255
masks = torch.from_numpy(data.train.labels).long()

model = create_network("unet-small", num_classes=11)  # any nn.Module that returns [B,K,H,W]
net = supervise(model, num_classes=11, example=images[:1])
print("companions at", net.sizes)

background_counts_less = torch.tensor([0.1] + [1.0] * 10)
objective = Objective(net, targets="probability", class_weights=background_counts_less)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
epochs = 6
for epoch in range(epochs):
    batches = torch.randperm(len(images)).split(10)
    for step, batch in enumerate(batches):
        done = (epoch + step / len(batches)) / epochs
        loss = objective(net(images[batch]), masks[batch], progress=done)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: loss {float(loss.output_loss):.3f}")

test = torch.from_numpy(data.test.images[:200]).float() / 255
found = measure_dense(net, test, torch.from_numpy(data.test.labels[:200]))
for name, metrics in found.scored.items():
    print(f"{name}: mean IoU {metrics['miou']:.1f} %, wrong pixels {metrics['pixel_error']:.1f} %")

net.eval()
small = net.strip(keep="decoder2")  # a smaller model that ends at this companion
assert torch.equal(small(test), net(test).companions["decoder2"])
print(f"pruned at decoder2: {sum(p.numel() for p in small.parameters()):,} weights, whole net "
      f"{sum(p.numel() for p in model.parameters()):,}")  # fmt: skip
plain = net.strip()  # the model as it was given, trained
assert plain is model
