"""``python -m deepsup`` in, the command ``deepsup`` out."""

import os
import signal
import sys


def main() -> int:
    """Run the command; a Ctrl-C while it is being imported leaves no traceback either."""
    try:
        # an exception within an import can surface as another one, or in a destructor: leave at once instead
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)
        from deepsup.cli import main as command

        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command()
    except KeyboardInterrupt:
        sys.stderr.write("deepsup: interrupted\n")
        return 130


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"deepsup: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
