"""The command line: translates words into the library's verbs, decides nothing."""
