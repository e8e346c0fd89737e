/* The children: `write N` writes N bytes and exits at once; `echo` gives back every byte. Their terminal is raw. */
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static char buffer[65536];

static void make_raw(void) {
    struct termios mode;
    if (tcgetattr(1, &mode) < 0) return;
    cfmakeraw(&mode);
    tcsetattr(1, TCSANOW, &mode);
}

static int write_bytes(long left) {
    /* Lines, as programs write them: a reader that looks for line ends shall find some. */
    memset(buffer, 'x', sizeof buffer);
    for (size_t at = 63; at < sizeof buffer; at += 64) buffer[at] = '\n';
    while (left > 0) {
        ssize_t written = write(1, buffer, left < (long)sizeof buffer ? (size_t)left : sizeof buffer);
        if (written < 0) return 1;
        left -= written;
    }
    return 0;
}

static int echo_bytes(void) {
    if (write(1, "r", 1) != 1) return 1;
    for (;;) {
        ssize_t length = read(0, buffer, sizeof buffer);
        if (length <= 0) return 0;
        if (write(1, buffer, (size_t)length) != length) return 1;
    }
}

int main(int argc, char *argv[]) {
    if (argc < 2) return 2;
    make_raw();
    return strcmp(argv[1], "write") == 0 && argc > 2 ? write_bytes(atol(argv[2])) : echo_bytes();
}
