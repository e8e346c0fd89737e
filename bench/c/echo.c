/* One byte to an echoing child on a raw PTY and back; what came back is written to a file. */
#define _GNU_SOURCE
#include "limits.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void run_echo(const struct work *work) {
    char *const argv[] = {work->child, "echo", NULL};
    char byte;
    int file = open_unnamed_file();
    struct pty pty;
    open_pty(&pty);
    pid_t pid = start_on_pty(argv, pty.slave);
    /* The child's first byte says that the terminal is raw. */
    if (read(pty.master, &byte, 1) != 1) die("read");
    double *samples = calloc((size_t)work->reps, sizeof *samples);
    if (samples == NULL) die("calloc");
    for (long i = 0; i < work->reps; i++) {
        double started = seconds_now();
        if (write(pty.master, "x", 1) != 1) die("write");
        if (read(pty.master, &byte, 1) != 1) die("read");
        write_whole(file, &byte, 1);
        samples[i] = (seconds_now() - started) * 1e6;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    qsort(samples, (size_t)work->reps, sizeof *samples, compare_doubles);
    printf("{\"us\": %.2f, \"p99_us\": %.2f}\n", samples[work->reps / 2], samples[work->reps * 99 / 100]);
    free(samples);
}
