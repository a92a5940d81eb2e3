/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of the launch benchmarks: prints when its first instruction ran. Static, so that the
 * dynamic linker is not measured.
 *
 *   probe              prints "first NANOSECONDS" (CLOCK_MONOTONIC) and ends
 *   probe wait         the same, then waits to be killed
 *   probe restart      the same, then waits in its first life and ends in a later one
 *   probe notice       the same, then waits; prints "term NANOSECONDS" at SIGTERM and ends
 *   probe last         prints "last NANOSECONDS" as the last thing it does
 *   probe pour BYTES   writes so many bytes in lines of 80
 *   probe exec P...    prints "exec NANOSECONDS" on stderr and becomes the program P */
#include <signal.h>
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

static void on_term(int signal)
{
    (void)signal;
    say(1, "term", now_ns());
    _exit(0);
}

static void pour(long long bytes)
{
    static char lines[80 * 800];

    for (size_t i = 0; i < sizeof lines; i++)
        lines[i] = i % 80 == 79 ? '\n' : (char)('a' + i % 26);
    for (; bytes > 0; bytes -= (long long)sizeof lines) {
        const size_t length = bytes < (long long)sizeof lines ? (size_t)bytes
                                                              : sizeof lines;

        for (size_t at = 0; at < length;) {
            const ssize_t n = write(1, lines + at, length - at);

            if (n < 0)
                exit(1);
            at += (size_t)n;
        }
    }
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
    if (strcmp(mode, "pour") == 0 && argc > 2) {
        pour(strtoll(argv[2], NULL, 10));
        return 0;
    }
    if (strcmp(mode, "last") == 0) {
        say(1, "last", now_ns());
        _exit(0);
    }
    if (strcmp(mode, "notice") == 0)
        signal(SIGTERM, on_term);
    say(1, "first", first);
    if (strcmp(mode, "wait") == 0 || strcmp(mode, "notice") == 0 ||
        (strcmp(mode, "restart") == 0 && life && *life == '0'))
        pause();
    return 0;
}
