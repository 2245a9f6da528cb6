"""One run: its folder, training, loading, evaluating, predicting.

Import its modules; the package itself imports nothing, so that reading a run folder needs no torch.
"""

__all__: list[str] = []
