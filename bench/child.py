#!/usr/bin/env python3
"""The children of the throughput and echo groups, where no compiler made them from c/child.c."""

import os
import sys
import tty


def main() -> None:
    if os.isatty(1):
        tty.setraw(1)
    if sys.argv[1] == "write":
        left = int(sys.argv[2])
        block = (b"x" * 63 + b"\n") * 1024
        while left > 0:
            left -= os.write(1, block[:left])
        return
    os.write(1, b"r")
    while data := os.read(0, 65536):
        os.write(1, data)


if __name__ == "__main__":
    main()
