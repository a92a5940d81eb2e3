/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/small_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

enum {
    STAT_MAX_BYTES = 1024,
    CHILDREN_MAX_BYTES = 4096,
    STATE_FIELD = 3, /* of proc(5) */
    USER_FIELD = 14,
    START_FIELD = 22
};

ssize_t ct_small_file_read(char *dst, size_t size, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, dst, size - 1);
    const int why = errno;

    dst[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return n < 0 ? -why : n;
}

ssize_t ct_small_file_line(char *dst, size_t size, const char *path)
{
    const ssize_t n = ct_small_file_read(dst, size, path);

    if (n < 0)
        return n;
    dst[strcspn(dst, "\n")] = '\0';
    return (ssize_t)strlen(dst);
}

ssize_t ct_small_file_of(char *dst, size_t size, pid_t pid, pid_t thread,
                         const char *name)
{
    char path[96];

    if (thread)
        (void)ct_format(path, sizeof path, "/proc/%d/task/%d/%s", (int)pid, (int)thread,
                        name);
    else
        (void)ct_format(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return ct_small_file_read(dst, size, path);
}

const char *ct_small_file_find(const char *text, const char *label)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (ct_starts_with(line, label))
            return line + strlen(label);
    }
    return NULL;
}

/* "/proc/PID/task/TID/stat": snprintf is not async-signal-safe. */
static char *add_number(char *at, pid_t number)
{
    char digits[12];
    size_t count = 0;

    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0 && count < sizeof digits);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

const char *ct_small_file_stat(char *dst, size_t size, pid_t pid, pid_t thread)
{
    char path[64] = "/proc/";
    char *at = add_number(path + strlen(path), pid);
    const char *name;

    if (thread)
        at = add_number(stpcpy(at, "/task/"), thread);
    memcpy(at, "/stat", sizeof "/stat");
    (void)ct_small_file_read(dst, size, path);
    name = strrchr(dst, ')');
    return name && name[1] == ' ' && name[2] ? name + 2 : NULL;
}

void ct_small_file_wait(char *dst, size_t size, pid_t pid, pid_t thread)
{
    (void)ct_small_file_of(dst, size, pid, thread, "wchan");
    dst[strcspn(dst, "\n")] = '\0';
    if (strcmp(dst, "0") == 0)
        *dst = '\0';
}

/* A field of proc(5) and those after it; NULL: there is no such process. */
static const char *find_field(char stat[STAT_MAX_BYTES], pid_t pid, int number)
{
    const char *at = ct_small_file_stat(stat, STAT_MAX_BYTES, pid, 0);

    for (int field = STATE_FIELD; at && field < number; field++)
        at = strchr(at + 1, ' ');
    return at;
}

uint64_t ct_small_file_started(pid_t pid)
{
    char stat[STAT_MAX_BYTES];
    const char *at = find_field(stat, pid, START_FIELD);

    return at ? strtoull(at, NULL, 10) : 0;
}

uint64_t ct_small_file_ticks(pid_t pid)
{
    char stat[STAT_MAX_BYTES];
    const char *at = find_field(stat, pid, USER_FIELD);
    uint64_t user;
    char *rest;

    if (!at)
        return 0;
    user = strtoull(at, &rest, 10);
    return user + strtoull(rest, NULL, 10);
}

/* Appends the children that one thread has started to `count` others; returns the new count. */
static int add_children(pid_t *list, int count, int max, pid_t pid, pid_t thread)
{
    char text[CHILDREN_MAX_BYTES];
    const char *at = text;

    (void)ct_small_file_of(text, sizeof text, pid, thread, "children");
    while (count < max) {
        char *end;
        const long child = strtol(at, &end, 10);

        if (end == at || child <= 0)
            break;
        list[count++] = (pid_t)child;
        at = end;
    }
    return count;
}

int ct_small_file_children(pid_t *list, int max, pid_t pid)
{
    char path[32];
    int count = 0;
    DIR *threads;

    (void)ct_format(path, sizeof path, "/proc/%d/task", (int)pid);
    if (!(threads = opendir(path)))
        return 0;
    for (struct dirent *it; count < max && (it = readdir(threads));)
        if (it->d_name[0] != '.')
            count = add_children(list, count, max, pid,
                                 (pid_t)strtol(it->d_name, NULL, 10));
    closedir(threads);
    return count;
}

bool ct_small_file_has_ended(pid_t pid, uint64_t started)
{
    uint64_t now;

    if (kill(pid, 0) < 0 && errno == ESRCH)
        return true;
    now = ct_small_file_started(pid);
    return now != 0 && now != started;
}

bool ct_small_file_is_foreign(void)
{
    char self[16] = ""; /* our pid, as /proc knows it */

    (void)!readlink("/proc/self", self, sizeof self - 1);
    return strtol(self, NULL, 10) != getpid();
}

uint64_t ct_small_file_pid_namespace(void)
{
    static _Atomic uint64_t known; /* a process never changes its namespace */
    struct stat status;

    if (known == 0 && stat("/proc/self/ns/pid", &status) == 0)
        known = status.st_ino;
    return known;
}
