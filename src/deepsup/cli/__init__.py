"""The command ``deepsup``: each module holds verbs, ``app`` what they share."""

# in the order of the help
# isort: off
from deepsup.cli import run_commands as run_commands
from deepsup.cli import sweep_commands as sweep_commands
from deepsup.cli import insight_commands as insight_commands
from deepsup.cli import demo_commands as demo_commands
from deepsup.cli import export_commands as export_commands
from deepsup.cli import data_commands as data_commands
from deepsup.cli import network_commands as network_commands
from deepsup.cli import paper_commands as paper_commands
from deepsup.cli import bench_commands as bench_commands
from deepsup.cli import exit_commands as exit_commands
from deepsup.cli import doctor as doctor
from deepsup.cli.app import main

__all__ = ["main"]
