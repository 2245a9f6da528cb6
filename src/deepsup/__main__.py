"""``python -m deepsup`` in, the command ``deepsup`` out."""

import sys


def main() -> int:
    """Run the command; a Ctrl-C while it is being imported leaves no traceback either."""
    try:
        from deepsup.errors import MissingPackageError, extras_named

        try:
            with extras_named("the command line"):
                from deepsup.cli import main as command
        except MissingPackageError as error:
            sys.stderr.write(f"deepsup: {error}\n")
            return 2
        return command()
    except KeyboardInterrupt:
        sys.stderr.write("deepsup: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
