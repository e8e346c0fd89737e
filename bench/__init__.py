"""The table of ratios: Tether against a C program doing the same work, and against its peers."""
