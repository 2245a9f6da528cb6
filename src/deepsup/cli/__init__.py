"""The command ``deepsup``: each module holds verbs, ``app`` what they share."""

# in the order of the help
# isort: off
from deepsup.cli import runs as runs
from deepsup.cli import inside as inside
from deepsup.cli import data as data
from deepsup.cli import networks as networks
from deepsup.cli import reproduce as reproduce
from deepsup.cli import bench as bench
from deepsup.cli import doctor as doctor
from deepsup.cli.app import main

__all__ = ["main"]
