"""Train with Lightning: the module takes the progress of training from the Trainer."""

import logging
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from deepsup import load_data, supervise
from deepsup.adapters.lightning_module import SupervisedModule

# isort: split
import pytorch_lightning as pl

logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", ".*does not have many workers")  # the digits are in memory
warnings.filterwarnings("ignore", ".*LeafSpec")  # of torch, about Lightning's own code

torch.manual_seed(0)
digits = load_data()
train, test = (
    DataLoader(TensorDataset(torch.tensor(part.images[:1000]) / 255, torch.tensor(part.labels[:1000])), 50)
    for part in (digits.train, digits.test)
)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(800, 10),
)  # fmt: skip

net = supervise(model, num_classes=10, example=next(iter(train))[0])
module = SupervisedModule(net, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9))
trainer = pl.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
trainer.fit(module, train, test)
(found,) = trainer.test(module, test, verbose=False)
for name, value in found.items():
    print(f"{name}: {value:.3f}")
