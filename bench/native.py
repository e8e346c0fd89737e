"""What is not Python: our C programs, compiled for one run, and node-pty where it is installed."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
NODE_PTY_NAMES = ("@lydell/node-pty", "node-pty")
NODE_PTY_PINNED = "@lydell/node-pty@1.1.0"


@dataclass(frozen=True, slots=True)
class CPrograms:
    """The limit program, or None with the reason there is none, and the child that writes and echoes."""

    limits: str | None
    child: str
    missing: str = ""


def compile_c(directory: str) -> CPrograms:
    """Compile bench/c into `directory`; without a compiler the child is the Python one."""
    fallback = str(HERE / "child.py")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return CPrograms(None, fallback, "no C compiler")
    sources = sorted(HERE.joinpath("c").glob("*.c"))
    child_source = HERE / "c" / "child.c"
    limit_sources = [str(source) for source in sources if source != child_source]
    limits, child = os.path.join(directory, "limits"), os.path.join(directory, "child")
    for output, inputs in ((limits, limit_sources), (child, [str(child_source)])):
        built = subprocess.run([compiler, "-O2", "-o", output, *inputs], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            return CPrograms(None, fallback, f"{compiler} failed: {built.stderr.strip()[-300:]}")
    return CPrograms(limits, child)


def _npm_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "tether-bench" / "npm"


def install_node_pty() -> None:
    """Install node-pty with npm into the user's cache directory."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not installed; install Node.js, or leave --peers-npm out")
    directory = _npm_directory()
    directory.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    subprocess.run([npm, "install", "--prefix", str(directory), *options, NODE_PTY_PINNED], check=True)


def find_node_pty() -> list[str] | None:
    """Return the words that start a node-pty contestant, None where node or the package is missing."""
    node = shutil.which("node")
    if node is None:
        return None
    for name in NODE_PTY_NAMES:
        package = _npm_directory() / "node_modules" / name
        if package.is_dir():
            return [node, "--expose-gc", str(HERE / "contestants" / "node_pty.js"), str(package)]
    return None
