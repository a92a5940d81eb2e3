/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that writes down when it runs, for an observer of all hosts:
 *
 *     life FOLDER      FOLDER/HOST.GENERATION.RANK.WORLD.MASTER.PORT.PID
 *
 * A line "<first ns> <last ns>" for each time in which it ran without a gap of half a second, by
 * CLOCK_BOOTTIME. The last line is written again 100 times a second. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BEAT_NS = 10 * 1000 * 1000,
    GAP_NS = 500 * 1000 * 1000,
    LINE_BYTES = 42,
};

static long long now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static const char *value(const char *name)
{
    const char *text = getenv(name);

    return text ? text : "";
}

int main(int argc, char **argv)
{
    const struct timespec beat = {.tv_nsec = BEAT_NS};
    long long first = now_ns(), last = first;
    char path[4096], host[256] = "", line[LINE_BYTES + 1];
    off_t at = 0;
    int fd;

    (void)gethostname(host, sizeof host - 1);
    if (argc != 2 || snprintf(path, sizeof path, "%s/%s.%s.%s.%s.%s.%s.%d", argv[1],
                              host, value("CTRUN_GENERATION"), value("RANK"),
                              value("WORLD_SIZE"), value("MASTER_ADDR"),
                              value("MASTER_PORT"), (int)getpid()) >= (int)sizeof path)
        return 2;
    for (char *dot = path + strlen(argv[1]); *dot; dot++)
        if (*dot == ':') /* of an IPv6 address: not in names of files */
            *dot = '_';
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    for (;;) {
        (void)snprintf(line, sizeof line, "%020lld %020lld\n", first, last);
        if (fd < 0 || pwrite(fd, line, LINE_BYTES, at) != LINE_BYTES)
            return 3;
        (void)nanosleep(&beat, NULL);
        if (now_ns() - last > GAP_NS) {
            at += LINE_BYTES;
            first = now_ns();
        }
        last = now_ns();
    }
}
