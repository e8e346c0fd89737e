"""One module per kind of contestant; each runs one task in a fresh process and prints one JSON line."""
