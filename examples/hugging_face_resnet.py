"""Train a small ResNet of transformers, built from a config, with the Trainer; nothing is downloaded."""

import tempfile

import torch

from deepsup import load_data, supervise
from deepsup.adapters.hugging_face import SupervisedTrainer

# isort: split
from transformers import ResNetConfig, ResNetForImageClassification, TrainingArguments
from transformers.trainer_callback import PrinterCallback

torch.manual_seed(0)
digits = load_data()
train, test = (
    [
        {"pixel_values": torch.tensor(image) / 255, "labels": int(label)}
        for image, label in zip(part.images[:1000], part.labels[:1000], strict=True)
    ]
    for part in (digits.train, digits.test)
)
config = ResNetConfig(
    num_channels=1, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10
)
model = ResNetForImageClassification(config)
net = supervise(
    model, at=["resnet.encoder.stages.0"], num_classes=10, example={"pixel_values": train[0]["pixel_values"][None]}
)

with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder, num_train_epochs=5, per_device_train_batch_size=25, learning_rate=1e-2, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no", logging_strategy="no",
    )  # fmt: skip
    trainer = SupervisedTrainer(
        model=net,
        args=settings,
        train_dataset=train,
        eval_dataset=test,
        compute_metrics=lambda given: {"accuracy": float((given.predictions.argmax(1) == given.label_ids).mean())},
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    found = trainer.evaluate()
print(f"test loss {found['eval_loss']:.3f}, {found['eval_accuracy']:.1%} of the test digits right")
print(f"the model again: {type(net.strip()).__name__}")
