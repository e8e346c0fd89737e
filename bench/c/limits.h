/* What the limit programs share: their arguments, clocks and ways to start a child. */
#ifndef LIMITS_H
#define LIMITS_H

#include <stddef.h>
#include <sys/types.h>

struct work {
    const char *task;
    char *child;
    long reps;
    long ballast_mb;
    long bytes;
    long count;
};

struct pty {
    int master;
    char slave[128];
};

double seconds_now(void);
double cpu_seconds(void);
int compare_doubles(const void *a, const void *b);
void die(const char *what);

/* A file without a name: what is written there goes when the program does. */
int open_unnamed_file(void);
/* Writes all of it or ends the program. */
void write_whole(int fd, const char *data, size_t length);

void open_pty(struct pty *pty);
/* Starts argv by vfork on the slave as its controlling terminal. */
pid_t start_on_pty(char *const argv[], const char *slave);
/* Starts argv by vfork with these descriptors as 0, 1 and 2; -1 leaves one as it is. */
pid_t start_on_fds(char *const argv[], int input, int output, int error);
/* Waits for that child alone. */
void reap(pid_t pid);

void run_spawn(const struct work *work);
void run_throughput(const struct work *work);
void run_echo(const struct work *work);
void run_scale(const struct work *work);

#endif
