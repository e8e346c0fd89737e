/* The limits: what a C program needs for the same work. Arguments are key=value, the answer one JSON line. */
#define _GNU_SOURCE
#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void die(const char *what) {
    perror(what);
    exit(1);
}

int open_unnamed_file(void) {
    const char *directory = getenv("TMPDIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/limit-XXXXXX", directory ? directory : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) die(path);
    unlink(path);
    return fd;
}

void write_whole(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t written = write(fd, data, length);
        if (written < 0) {
            if (errno == EINTR) continue;
            die("write");
        }
        data += written;
        length -= (size_t)written;
    }
}

void open_pty(struct pty *pty) {
    pty->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (pty->master < 0 || grantpt(pty->master) < 0 || unlockpt(pty->master) < 0) die("posix_openpt");
    const char *name = ptsname(pty->master);
    if (name == NULL) die("ptsname");
    snprintf(pty->slave, sizeof pty->slave, "%s", name);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    ioctl(pty->master, TIOCSWINSZ, &size);
}

pid_t start_on_pty(char *const argv[], const char *slave) {
    pid_t pid = vfork();
    if (pid < 0) die("vfork");
    if (pid > 0) return pid;
    setsid();
    int fd = open(slave, O_RDWR);
    if (fd < 0) _exit(126);
    ioctl(fd, TIOCSCTTY, 0);
    dup2(fd, 0);
    dup2(fd, 1);
    dup2(fd, 2);
    if (fd > 2) close(fd);
    execve(argv[0], argv, environ);
    _exit(127);
}

pid_t start_on_fds(char *const argv[], int input, int output, int error) {
    pid_t pid = vfork();
    if (pid < 0) die("vfork");
    if (pid > 0) return pid;
    if (input >= 0) dup2(input, 0);
    if (output >= 0) dup2(output, 1);
    if (error >= 0) dup2(error, 2);
    execve(argv[0], argv, environ);
    _exit(127);
}

void reap(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) die("waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        fprintf(stderr, "child %d ended with code %d\n", (int)pid, WEXITSTATUS(status));
        exit(1);
    }
}

static void parse(struct work *work, char *argument) {
    char *value = strchr(argument, '=');
    if (value == NULL) return;
    *value++ = '\0';
    if (strcmp(argument, "task") == 0) work->task = value;
    else if (strcmp(argument, "child") == 0) work->child = value;
    else if (strcmp(argument, "reps") == 0) work->reps = atol(value);
    else if (strcmp(argument, "ballast_mb") == 0) work->ballast_mb = atol(value);
    else if (strcmp(argument, "bytes") == 0) work->bytes = atol(value);
    else if (strcmp(argument, "count") == 0) work->count = atol(value);
}

/* volatile: a compiler that sees the memory unused would leave it out, and a big process would be a small one. */
static void hold_ballast(long megabytes) {
    size_t size = (size_t)megabytes << 20;
    volatile char *memory = malloc(size ? size : 1);
    if (memory == NULL) die("malloc");
    for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
}

int main(int argc, char *argv[]) {
    struct work work = {.task = "", .reps = 1};
    for (int i = 1; i < argc; i++) parse(&work, argv[i]);
    hold_ballast(work.ballast_mb);
    if (strncmp(work.task, "spawn", 5) == 0) run_spawn(&work);
    else if (strncmp(work.task, "throughput", 10) == 0) run_throughput(&work);
    else if (strcmp(work.task, "echo") == 0) run_echo(&work);
    else if (strcmp(work.task, "scale") == 0) run_scale(&work);
    else {
        fprintf(stderr, "no task %s\n", work.task);
        return 2;
    }
    return 0;
}
