"""Train a net on digits, export it to ONNX and run it with onnxruntime, which needs neither deepsup nor torch."""

import tempfile
from pathlib import Path

import onnxruntime
import torch

from deepsup import Config, export, load_data, train

with tempfile.TemporaryDirectory() as folder:
    run = train(Config(train_size=1000, epochs=5, tensorboard=False), Path(folder) / "run")
    done = export(run, Path(folder) / "digits.onnx", companions=True)
    print(f"{done.path.name}: {done.bytes:,} bytes, differs from PyTorch by at most {done.difference:.0e}")

    session = onnxruntime.InferenceSession(done.path)
    test = load_data().test
    raw = test.images[:1000]  # uint8 [N,1,28,28], as they come: the preprocessing is in the file
    names = [each.name for each in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, {"images": raw}), strict=True))
    for name, scores in outputs.items():
        print(f"{name}: {(scores.argmax(1) == test.labels[:1000]).mean():.1%} of 1,000 test digits right")

    with torch.no_grad():
        ours = run.load()(run.preprocess(raw)).scores.numpy()
    print(f"the same predictions as PyTorch: {(ours.argmax(1) == outputs['scores'].argmax(1)).all()}")
