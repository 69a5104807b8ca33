"""Python's TOML parser, under whichever name this Python has it."""

import sys

if sys.version_info >= (3, 11):
    from tomllib import TOMLDecodeError, loads
else:  # the same parser, as a package
    from tomli import TOMLDecodeError, loads

__all__ = ["TOMLDecodeError", "loads"]
