"""Removing directories without shutil, whose compression modules nobody here needs."""

import os


def remove_directory(directory: str) -> None:
    """Delete a directory and what is in it.

    Raises:
        OSError: something in it cannot be removed.
    """
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        try:
            os.unlink(path)
        except (IsADirectoryError, PermissionError):
            remove_directory(path)
    os.rmdir(directory)
