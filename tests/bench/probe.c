/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of the launch benchmarks: says when its first instruction ran. Static, so that the
 * dynamic linker is not measured.
 *
 *   probe              prints "first NANOSECONDS" (CLOCK_MONOTONIC) and ends
 *   probe wait         the same, then waits to be killed
 *   probe restart      the same, then waits in its first life and ends in a later one
 *   probe exec P...    prints "exec NANOSECONDS" on stderr and becomes the program P */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* One write, so that lines of several workers never mix. */
static void say(int fd, const char *what, long long ns)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %lld\n", what, ns);

    if (write(fd, line, (size_t)length) != length)
        exit(1);
}

int main(int argc, char **argv)
{
    const long long first = now_ns();
    const char *mode = argc > 1 ? argv[1] : "";
    const char *life = getenv("TORCHELASTIC_RESTART_COUNT");

    if (strcmp(mode, "exec") == 0 && argc > 2) {
        say(2, "exec", now_ns());
        execvp(argv[2], argv + 2);
        return 127;
    }
    say(1, "first", first);
    if (strcmp(mode, "wait") == 0 ||
        (strcmp(mode, "restart") == 0 && life && *life == '0'))
        pause();
    return 0;
}
