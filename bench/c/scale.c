/* Many children, each on a PTY of its own: start them all, then kill, reap and close them all. */
#define _GNU_SOURCE
#include "limits.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    pid_t pid;
    int master;
};

static long resident_kb(void) {
    char line[256];
    long kb = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Rss: %ld kB", &kb) == 1) break;
    fclose(file);
    return kb;
}

static void start_all(struct child *children, long count) {
    char *const argv[] = {"/bin/cat", NULL};
    for (long i = 0; i < count; i++) {
        struct pty pty;
        open_pty(&pty);
        children[i].pid = start_on_pty(argv, pty.slave);
        children[i].master = pty.master;
    }
}

static void kill_all(struct child *children, long count) {
    for (long i = 0; i < count; i++) kill(children[i].pid, SIGKILL);
    for (long i = 0; i < count; i++) {
        waitpid(children[i].pid, NULL, 0);
        close(children[i].master);
    }
}

void run_scale(const struct work *work) {
    struct child *children = calloc((size_t)work->count, sizeof *children);
    if (children == NULL) die("calloc");
    start_all(children, 10);
    kill_all(children, 10);
    long before = resident_kb();
    double cpu = cpu_seconds(), started = seconds_now();
    start_all(children, work->count);
    double start_s = seconds_now() - started;
    cpu = cpu_seconds() - cpu;
    long grown = resident_kb() - before;
    started = seconds_now();
    kill_all(children, work->count);
    double kill_s = seconds_now() - started, thousands = (double)work->count / 1000;
    printf("{\"start_s\": %.4f, \"start_cpu_s\": %.4f, \"rss_kb_each\": %.2f, \"kill_s\": %.4f}\n", start_s / thousands,
           cpu / thousands, (double)grown / (double)work->count, kill_s / thousands);
    free(children);
}
