"""subprocess.Popen with pipes."""

import os
import subprocess

from bench.work import READ_SIZE, TRUE_ARGV, Figures, ThroughputClock, Work, contest, time_spawns


def _once() -> None:
    with subprocess.Popen(TRUE_ARGV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.communicate()


def spawn_pipes(work: Work) -> Figures:
    return time_spawns(_once, work.reps)


def throughput_pipe(work: Work) -> Figures:
    received = 0
    clock = ThroughputClock(work)
    with subprocess.Popen([work.child, "write", str(work.bytes)], stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdout is not None
        source = child.stdout.fileno()
        while data := os.read(source, READ_SIZE):
            received += len(data)
    return clock.figures(received)


if __name__ == "__main__":
    contest({"spawn-pipes": spawn_pipes, "throughput-pipe": throughput_pipe})
