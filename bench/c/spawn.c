/* Start /bin/true, wait for its end, leave nothing: bare, with three pipes, on a PTY. */
#define _GNU_SOURCE
#include "limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *const TRUE_ARGV[] = {"/bin/true", NULL};

static void drain(int fd) {
    char buffer[4096];
    while (read(fd, buffer, sizeof buffer) > 0) continue;
    close(fd);
}

static void once_bare(void) {
    reap(start_on_fds(TRUE_ARGV, -1, -1, -1));
}

static void open_pipe(int ends[2]) {
    if (pipe(ends) < 0) die("pipe");
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
}

static void once_pipes(void) {
    int input[2], output[2], error[2];
    open_pipe(input);
    open_pipe(output);
    open_pipe(error);
    pid_t pid = start_on_fds(TRUE_ARGV, input[0], output[1], error[1]);
    close(input[0]);
    close(output[1]);
    close(error[1]);
    close(input[1]);
    drain(output[0]);
    drain(error[0]);
    reap(pid);
}

static void once_pty(void) {
    struct pty pty;
    open_pty(&pty);
    pid_t pid = start_on_pty(TRUE_ARGV, pty.slave);
    drain(pty.master);
    reap(pid);
}

void run_spawn(const struct work *work) {
    void (*once)(void) = once_bare;
    if (strcmp(work->task, "spawn-pipes") == 0) once = once_pipes;
    if (strcmp(work->task, "spawn-pty") == 0) once = once_pty;
    double *samples = calloc((size_t)work->reps, sizeof *samples);
    if (samples == NULL) die("calloc");
    for (long i = 0; i < work->reps; i++) {
        double started = seconds_now();
        once();
        samples[i] = (seconds_now() - started) * 1e6;
    }
    qsort(samples, (size_t)work->reps, sizeof *samples, compare_doubles);
    printf("{\"us\": %.1f, \"typical_us\": %.1f}\n", samples[0], samples[work->reps / 2]);
    free(samples);
}
