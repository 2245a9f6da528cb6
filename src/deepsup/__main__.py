"""``python -m deepsup`` in, the command ``deepsup`` out."""

import sys

from deepsup.cli import main

sys.exit(main())
