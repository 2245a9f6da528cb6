"""Attach companions to the hidden layers of any ``nn.Module``."""

from deepsup.supervision._attach import DeeplySupervised, DeepOutput
from deepsup.supervision._auto import choose_companions
from deepsup.supervision._companions import Companion, Head, pool
from deepsup.supervision._fusion import resized
from deepsup.supervision._gradient import Shares
from deepsup.supervision._inspection import check_model
from deepsup.supervision._names import named_companions
from deepsup.supervision._pretrained import CARD, card_of, local_folder, make_folder, push
from deepsup.supervision._scores import scores_of
from deepsup.supervision._slow_linear import SlowLinear
from deepsup.supervision._supervise import as_call, supervise, tappable
from deepsup.supervision._taps import describe, part_of
from deepsup.supervision._trace import Trace, trace, undisturbed

__all__ = [
    "CARD",
    "Companion",
    "DeepOutput",
    "DeeplySupervised",
    "Head",
    "Shares",
    "SlowLinear",
    "Trace",
    "as_call",
    "card_of",
    "check_model",
    "choose_companions",
    "describe",
    "local_folder",
    "make_folder",
    "named_companions",
    "part_of",
    "pool",
    "push",
    "resized",
    "scores_of",
    "supervise",
    "tappable",
    "trace",
    "undisturbed",
]
