"""Data sets: sources, file formats, splits, and the embedded digits. Needs no torch."""

from deepsup.trainer.data._check import Report, channel_means, check, get, is_present
from deepsup.trainer.data._dataset import IGNORED, Dataset, Images, Part
from deepsup.trainer.data._halves import HALVES, NAMED
from deepsup.trainer.data._images import open_image, read_image_files
from deepsup.trainer.data._known_sets import KNOWN
from deepsup.trainer.data._load import load_data
from deepsup.trainer.data._npz import StoredArrays, read_arrays
from deepsup.trainer.data._own import image_digests, image_files
from deepsup.trainer.data._palette import palette
from deepsup.trainer.data._pickles import PlainUnpickler, check_operations
from deepsup.trainer.data._recorded import Split, counted, load_test
from deepsup.trainer.data._scenes import COMPOSED, EDGES, Composed, compose
from deepsup.trainer.data._splits import hold_out, per_class, subset, svhn_protocol
from deepsup.trainer.data._storage import data_folder, write

__all__ = [
    "COMPOSED",
    "EDGES",
    "HALVES",
    "IGNORED",
    "KNOWN",
    "NAMED",
    "Composed",
    "Dataset",
    "Images",
    "Part",
    "PlainUnpickler",
    "Report",
    "Split",
    "StoredArrays",
    "channel_means",
    "check",
    "check_operations",
    "compose",
    "counted",
    "data_folder",
    "get",
    "hold_out",
    "image_digests",
    "image_files",
    "is_present",
    "load_data",
    "load_test",
    "open_image",
    "palette",
    "per_class",
    "read_arrays",
    "read_image_files",
    "subset",
    "svhn_protocol",
    "write",
]
