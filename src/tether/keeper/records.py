"""What is known of a kept process, as a value and as JSON: the same in files and on the wire."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from tether.errors import InvalidCommandError, KeeperError
from tether.keeper.fields import Fields
from tether.keeper.lease import FOREVER, Forever, Lease, Owned
from tether.process._stopping import Survivor
from tether.process.command import Command, OutputPolicy, Overflow, Pipes, Pty
from tether.process.exit_status import Cause, ExitStatus, Status

_UUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """Everything a person or a program may know of a kept process; plain values only.

    Attributes:
        id: a UUID in its canonical form, so that it is safe as the name of a directory.
        name: what a person calls it.
        command: what was started, without `env` and `stdin`: secrets are never kept; None for a channel.
        stdio: what it really got.
        lease: how long it may live without anybody who cares for it.
        guest: whether it was started on behalf of an agent.
        started_at: when, by the wall clock.
        pid: the system's number; 0 until it runs, and for a channel.
        started_mark: tells its pid from the same number in another process's hands.
        warnings: what a person should know about the start.
        ended_at: when it ended, by the wall clock; None while it runs.
        exit_status: how it ended; None while it runs.
        survivors: who of its tree could not be ended.
        end: where its log ends, when it ended or as known now.
        missing: bytes of its output that could not be kept.
        idle_seconds: how long it had been silent when this was said.
        output_held: whether it has ended but something it left behind still holds its output.
    """

    id: str
    name: str = ""
    command: Command | None
    stdio: Pipes | Pty = Pipes()
    lease: Lease = FOREVER
    guest: bool = False
    started_at: float
    pid: int = 0
    started_mark: str = ""
    warnings: tuple[str, ...] = ()
    ended_at: float | None = None
    exit_status: ExitStatus | None = None
    survivors: tuple[Survivor, ...] = ()
    end: int = 0
    missing: int = 0
    idle_seconds: float = 0.0
    output_held: bool = False

    def __post_init__(self) -> None:
        check_process_id(self.id)
        if self.command is not None:
            object.__setattr__(self, "command", self.command.without_secrets())

    @property
    def status(self) -> Status:
        """Where the process is in its life, in the doors' word."""
        return Status.RUNNING if self.exit_status is None else self.exit_status.status


def is_process_id(text: str) -> bool:
    """Whether `text` is a UUID in its canonical form."""
    return _UUID.fullmatch(text) is not None


def check_process_id(text: object) -> str:
    """The id of a process, safe as the name of a directory.

    Raises:
        InvalidCommandError: it is no UUID in its canonical form.
    """
    if not isinstance(text, str) or not is_process_id(text):
        raise InvalidCommandError(f"impossible process id {text!r:.200}; give a UUID, such as str(uuid.uuid4())")
    return text


def record_to_json(record: ProcessRecord) -> dict[str, object]:
    """The record as JSON values: what stands in files and goes over the wire."""
    command, status = record.command, record.exit_status
    return {
        "id": record.id,
        "name": record.name,
        "command": None if command is None else command_to_json(command, secrets=False),
        "stdio": _stdio_to_json(record.stdio),
        "lease": lease_to_json(record.lease),
        "guest": record.guest,
        "started_at": record.started_at,
        "pid": record.pid,
        "started_mark": record.started_mark,
        "warnings": list(record.warnings),
        "ended_at": record.ended_at,
        "exit_status": None if status is None else _status_to_json(status),
        "survivors": [{"pid": one.pid, "command": one.command, "certain": one.certain} for one in record.survivors],
        "end": record.end,
        "missing": record.missing,
        "idle_seconds": record.idle_seconds,
        "output_held": record.output_held,
    }


def record_from_json(value: object, known: Command | None = None) -> ProcessRecord:
    """The record that `record_to_json` made; keys that only a newer program knows are ignored.

    Whoever knows which command it is about says so, and it is not read again.

    Raises:
        KeeperError: the value is no record.
    """
    fields = Fields(value, "process record")
    command = fields.find("command")
    ended = fields.find("exit_status")
    try:
        return ProcessRecord(
            id=fields.need("id", str),
            name=fields.get("name", str, ""),
            command=None if command is None else known or command_from_json(command),
            stdio=_stdio_from_json(fields.find("stdio")),
            lease=lease_from_json(fields.find("lease")),
            guest=fields.get("guest", bool, False),
            started_at=fields.need("started_at", float),
            pid=fields.count("pid"),
            started_mark=fields.get("started_mark", str, ""),
            warnings=tuple(fields.items("warnings", str)),
            ended_at=fields.maybe("ended_at", float),
            exit_status=None if ended is None else _status_from_json(ended),
            survivors=tuple(_survivor_from_json(one) for one in fields.objects("survivors")),
            end=fields.count("end"),
            missing=fields.count("missing"),
            idle_seconds=fields.get("idle_seconds", float, 0.0),
            output_held=fields.get("output_held", bool, False),
        )
    except InvalidCommandError as error:
        raise KeeperError(f"damaged process record: {error}") from error


def command_to_json(command: Command, *, secrets: bool) -> dict[str, object]:
    """The command as JSON values, without its stdin bytes; its environment only with `secrets`."""
    value: dict[str, object] = {
        "argv": list(command.argv),
        "root": command.root,
        "cwd": command.cwd,
        "stdio": _stdio_to_json(command.stdio),
        "output": {"capacity": command.output.capacity, "overflow": command.output.overflow.value},
        "timeout": command.timeout,
    }
    if secrets:
        value["env"] = None if command.env is None else dict(command.env)
    return value


def command_from_json(value: object) -> Command:
    """The command that `command_to_json` made.

    Raises:
        KeeperError: the value is no command.
        InvalidCommandError: it is one, but cannot be run as written.
    """
    fields = Fields(value, "command")
    env, output = fields.find("env"), fields.find("output")
    return Command(
        argv=tuple(fields.items("argv", str)),
        root=fields.need("root", str),
        cwd=fields.get("cwd", str, "."),
        env=None if env is None else _environment_from_json(env),
        stdio=_stdio_from_json(fields.find("stdio")),
        output=OutputPolicy() if output is None else _output_from_json(output),
        timeout=fields.maybe("timeout", float),
    )


def _stdio_to_json(stdio: Pipes | Pty) -> dict[str, object]:
    if isinstance(stdio, Pipes):
        return {"kind": "pipes", "inherit_stdin": stdio.inherit_stdin}
    return {"kind": "pty", "cols": stdio.cols, "rows": stdio.rows, "required": stdio.required}


def _stdio_from_json(value: object) -> Pipes | Pty:
    if value is None:
        return Pipes()
    fields = Fields(value, "stdio")
    match fields.need("kind", str):
        case "pipes":
            return Pipes(inherit_stdin=fields.get("inherit_stdin", bool, False))
        case "pty":
            return Pty(
                fields.need("cols", int), fields.need("rows", int), required=fields.get("required", bool, False)
            )
        case kind:
            return fields.refuse("kind", kind, "'pipes' or 'pty'")


def lease_to_json(lease: Lease) -> dict[str, object]:
    """The lease as JSON values."""
    if isinstance(lease, Forever):
        return {"kind": "forever"}
    return {"kind": "owned", "owner": lease.owner, "seconds": lease.seconds}


def lease_from_json(value: object) -> Lease:
    """The lease that `lease_to_json` made; none means forever.

    Raises:
        KeeperError: the value is no lease.
    """
    if value is None:
        return FOREVER
    fields = Fields(value, "lease")
    match fields.need("kind", str):
        case "forever":
            return FOREVER
        case "owned":
            return Owned(fields.need("owner", str), fields.need("seconds", float))
        case kind:
            return fields.refuse("kind", kind, "'forever' or 'owned'")


def _status_to_json(status: ExitStatus) -> dict[str, object]:
    return {
        "code": status.code,
        "signal": status.signal,
        "cause": status.cause.value,
        "core_file": status.core_file,
    }


def _status_from_json(value: object) -> ExitStatus:
    fields = Fields(value, "exit status")
    cause = fields.need("cause", str)
    if cause not in list(Cause):
        fields.refuse("cause", cause, f"one of {', '.join(Cause)}")
    return ExitStatus(
        fields.maybe("code", int), fields.maybe("signal", str), Cause(cause), fields.maybe("core_file", str)
    )


def _survivor_from_json(value: object) -> Survivor:
    fields = Fields(value, "survivor")
    return Survivor(fields.count("pid"), fields.get("command", str, ""), fields.get("certain", bool, True))


def _environment_from_json(value: object) -> Mapping[str, str]:
    # The command checks every name and value itself, and tells no value.
    return cast("Mapping[str, str]", Fields(value, "environment").everything)


def _output_from_json(value: object) -> OutputPolicy:
    fields = Fields(value, "output policy")
    overflow = fields.need("overflow", str)
    known = [one.value for one in Overflow]
    if overflow not in known:
        fields.refuse("overflow", overflow, f"one of {', '.join(known)}")
    return OutputPolicy(fields.need("capacity", int), Overflow(overflow))
