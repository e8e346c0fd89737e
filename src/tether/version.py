"""Which version this is; the package is built with the same word."""

VERSION = "0.1.0"
