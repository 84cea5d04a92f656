"""What the installed scripts call: Ctrl-C while modules are still imported leaves no traceback."""

import sys


def main() -> None:
    """Run the command line; exits."""
    try:
        from .main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)  # 128 + SIGINT
    run()
