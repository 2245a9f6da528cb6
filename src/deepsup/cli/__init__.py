"""The command ``deepsup``: each module holds verbs, ``app`` what they share."""

from deepsup.cli import data, networks, runs
from deepsup.cli.app import main

__all__ = ["data", "main", "networks", "runs"]
