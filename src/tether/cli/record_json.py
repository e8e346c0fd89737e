"""A process as one JSON object, the same in every listing."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime

from tether.keeper.kept_process import KeptProcess
from tether.keeper.lease import Lease, Owned
from tether.process.command import Command, Pty


def record(process: KeptProcess) -> dict[str, object]:
    """Everything a listing says about a process."""
    ended, stdio = process.exit_status, process.stdio
    size = stdio if isinstance(stdio, Pty) else None
    return {
        "id": process.id,
        "name": process.name,
        "command": list(process.command.argv),
        "cwd": _directory(process.command),
        "status": str(process.status),
        "exit_code": ended.code if ended else None,
        "signal": ended.signal if ended else None,
        "core_file": ended.core_file if ended else None,
        "pid": process.pid,
        "pty": size is not None,
        "cols": size.cols if size else None,
        "rows": size.rows if size else None,
        "started_at": timestamp(process.started_at),
        "ended_at": None if process.ended_at is None else timestamp(process.ended_at),
        "output_bytes": process.end,
        "missing_bytes": process.record.missing,
        "output_held": process.record.output_held,
        "lease": _lease(process.lease),
        "guest": process.record.guest,
        "warnings": list(process.warnings),
        "survivors": [
            {"pid": left.pid, "command": left.command, "certain": left.certain} for left in process.survivors
        ],
    }


def timestamp(seconds: float) -> str:
    """RFC 3339, in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_text(value: Mapping[str, object] | list[dict[str, object]]) -> bytes:
    """One valid JSON document and a newline."""
    # A byte of an argument that is no text is a lone surrogate, which JSON can only hold as an escape.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _directory(command: Command) -> str:
    return os.path.normpath(os.path.join(command.root, command.cwd))


def _lease(lease: Lease) -> dict[str, object]:
    if isinstance(lease, Owned):
        return {"kind": "owned", "owner": lease.owner, "seconds": lease.seconds}
    return {"kind": "forever"}
