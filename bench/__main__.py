"""`python -m bench`: runs the groups and prints one table of ratios and a verdict on each target."""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time

from bench import native
from bench.groups import Registry
from bench.runner import Result, run_group
from bench.table import table
from bench.verdict import Verdict, beside, verdicts


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--groups", help="only these, comma-separated; a prefix such as spawn names several")
    parser.add_argument("--rounds", type=int, help="rounds of every group, instead of each group's own number")
    parser.add_argument(
        "--quick", action="store_true", help="a quarter of the work, two rounds: a look, not a result"
    )
    parser.add_argument(
        "--json", action="store_true", help="every figure of every round as JSON instead of the table"
    )
    parser.add_argument("--peers-npm", action="store_true", help="install node-pty with npm into the cache first")
    parser.add_argument("--seed", type=int, default=None, help="shuffle in the same order again")
    return parser.parse_args()


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _machine() -> str:
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _as_json(results: list[Result], judged: list[Verdict]) -> str:
    groups = {
        result.group.name: {row.contestant.name: row.rounds or row.failure for row in result.rows}
        for result in results
    }
    targets = [{"target": verdict.target, "found": verdict.found, "met": verdict.met} for verdict in judged]
    return json.dumps({"groups": groups, "targets": targets}, indent=1)


def _print_table(results: list[Result], judged: list[Verdict], heading: str) -> None:
    print(heading)
    print(
        "x = times the group's first row that ran. best, median: over the rounds;"
        " a round's figure is its fastest start (spawn) or its median round trip (echo).\n"
        "lost and news are the worst round. scale figures are per 1,000 processes."
    )
    print()
    print(table(results, beside(judged)))
    print("\ntargets, judged on best ratios of this run:")
    for verdict in judged:
        print(f"  {verdict}")


def main() -> None:
    """Run what the arguments ask for."""
    arguments = _arguments()
    if arguments.peers_npm:
        native.install_node_pty()
    shuffler = random.Random(arguments.seed)
    started, load_before = time.monotonic(), _load()
    with tempfile.TemporaryDirectory(prefix="tether-bench-") as directory:
        # What contestants leave in temporary files goes with it as well.
        os.environ["TMPDIR"] = directory
        programs = native.compile_c(directory)
        groups = Registry(programs, native.find_node_pty(), quick=arguments.quick).groups()
        if arguments.groups:
            prefixes = tuple(arguments.groups.split(","))
            names = ", ".join(group.name for group in groups)
            groups = [group for group in groups if group.name.startswith(prefixes)]
            if not groups:
                raise SystemExit(f"no group begins with any of {prefixes!r}; there are: {names}")
        results = [run_group(group, arguments.rounds or group.rounds, shuffler, _progress) for group in groups]
    _progress("")
    failed = [result.group.name for result in results if result.row(result.group.ours) is None]
    judged = verdicts(results)
    if arguments.json:
        print(_as_json(results, judged))
    else:
        took = f"load {load_before} -> {_load()}, {time.monotonic() - started:.0f} s"
        _print_table(results, judged, f"{_machine()}, {took}")
    if failed:
        raise SystemExit(f"tether itself failed in: {', '.join(failed)}")


if __name__ == "__main__":
    main()
