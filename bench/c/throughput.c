/* Read all a child writes, in 64K reads, and write it to a file: the least a reader that keeps output can do. */
#define _GNU_SOURCE
#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char buffer[65536];

static pid_t start(const struct work *work, char *const argv[], int *source) {
    if (strcmp(work->task, "throughput-pty") == 0) {
        struct pty pty;
        open_pty(&pty);
        pid_t pid = start_on_pty(argv, pty.slave);
        *source = pty.master;
        return pid;
    }
    int ends[2];
    if (pipe(ends) < 0) die("pipe");
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    pid_t pid = start_on_fds(argv, -1, ends[1], -1);
    close(ends[1]);
    *source = ends[0];
    return pid;
}

void run_throughput(const struct work *work) {
    char size[32];
    snprintf(size, sizeof size, "%ld", work->bytes);
    char *const argv[] = {work->child, "write", size, NULL};
    int file = open_unnamed_file(), source = -1;
    long received = 0;
    double cpu = cpu_seconds(), started = seconds_now();
    pid_t pid = start(work, argv, &source);
    for (;;) {
        ssize_t length = read(source, buffer, sizeof buffer);
        if (length < 0 && errno == EINTR) continue;
        if (length <= 0) break;
        write_whole(file, buffer, (size_t)length);
        received += length;
    }
    reap(pid);
    close(source);
    double wall = seconds_now() - started;
    cpu = cpu_seconds() - cpu;
    printf("{\"mb_s\": %.1f, \"cpu_s_per_gb\": %.4f, \"lost\": %ld}\n", (double)received / 1e6 / wall,
           cpu / ((double)received / 1e9), work->bytes - received);
}
