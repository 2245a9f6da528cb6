"""Data sets: sources, file formats, splits, and the embedded digits. Needs no torch."""

from deepsup.trainer.data.check import Report, channel_means, check, get, is_present
from deepsup.trainer.data.dataset import Dataset, Part
from deepsup.trainer.data.halves import HALVES as HALVES
from deepsup.trainer.data.halves import NAMED as NAMED
from deepsup.trainer.data.images import read_image_files
from deepsup.trainer.data.known_sets import KNOWN as KNOWN
from deepsup.trainer.data.load import load_data
from deepsup.trainer.data.own import image_digests
from deepsup.trainer.data.recorded import Split, load_test
from deepsup.trainer.data.scenes import COMPOSED as COMPOSED
from deepsup.trainer.data.scenes import Composed, compose
from deepsup.trainer.data.splits import hold_out, per_class, stratified, subset, svhn_protocol
from deepsup.trainer.data.storage import data_folder

__all__ = [
    "Composed",
    "Dataset",
    "Part",
    "Report",
    "Split",
    "channel_means",
    "check",
    "compose",
    "data_folder",
    "get",
    "hold_out",
    "image_digests",
    "is_present",
    "load_data",
    "load_test",
    "per_class",
    "read_image_files",
    "stratified",
    "subset",
    "svhn_protocol",
]
