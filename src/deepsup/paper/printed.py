"""What the paper prints: its tables, row by row, with the recipe of each row. Error in percent."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PrintedTable:
    """One table: method -> its printed error in percent, and the recipe that trains it."""

    title: str
    rows: dict[str, tuple[float, str]]


TABLES = {
    "mnist": PrintedTable(
        "MNIST, no augmentation",
        {
            "DSN-SVM": (0.39, "dsn-mnist"),
            "CNN": (0.53, "cnn-mnist"),
            "Stochastic Pooling": (0.47, "stochastic-pooling-mnist"),
            "NIN": (0.47, "nin-mnist"),
            "Maxout": (0.45, "maxout-mnist"),
        },
    ),
    "cifar10": PrintedTable(
        "CIFAR-10, no augmentation",
        {
            "DSN-SVM": (9.78, "dsn-cifar10"),
            "NIN": (10.41, "nin-cifar10"),
            "Stochastic Pooling": (15.13, "stochastic-pooling-cifar10"),
            "Maxout": (11.68, "maxout-cifar10"),
        },
    ),
    "cifar10-augmented": PrintedTable(
        "CIFAR-10, shifts and flips",
        {
            "DSN-SVM": (8.22, "dsn-cifar10-augmented"),
            "NIN": (8.81, "nin-cifar10-augmented"),
            "DropConnect": (9.32, "dropconnect-cifar10"),
            "Maxout": (9.38, "maxout-cifar10-augmented"),
        },
    ),
    "cifar100": PrintedTable(
        "CIFAR-100, no augmentation",
        {
            "DSN-SVM": (34.57, "dsn-cifar100"),
            "NIN": (35.68, "nin-cifar100"),
            "Tree-based priors": (36.85, "tree-cifar100"),
            "Stochastic Pooling": (42.51, "stochastic-pooling-cifar100"),
            "Maxout": (38.57, "maxout-cifar100"),
        },
    ),
    "svhn": PrintedTable(
        "SVHN, no augmentation",
        {
            "DSN-SVM": (1.92, "dsn-svhn"),
            "NIN": (2.35, "nin-svhn"),
            "DropConnect": (1.94, "dropconnect-svhn"),
            "Stochastic Pooling": (2.80, "stochastic-pooling-svhn"),
            "Maxout": (2.47, "maxout-svhn"),
        },
    ),
}

GAIN_AT_500 = 26.0
"""Percent by which DSN-SVM is better than CNN-Softmax with 500 digits to train on (Fig. 2b)."""
VARIANCE_RATIO = 4.55
"""The variance of the first convolution's gradient, DSN over CNN."""
