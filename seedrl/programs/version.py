"""What `--version` says."""

import platform

from seedrl.wire.version import MAJOR, MINOR


def describe() -> str:
    """The versions of seedrl, of its wire and of Python, in one line."""
    # Here: it takes as long to import as all else that reading a command line needs.
    from importlib import metadata

    try:
        version = metadata.version("seedrl")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    return f"seedrl {version}, wire {MAJOR}.{MINOR}, Python {platform.python_version()}"
