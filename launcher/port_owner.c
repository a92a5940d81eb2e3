/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/port_owner.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

enum {
    TCP_LISTEN = 10,
    INODES_MAX = 16
}; /* linux/tcp_states.h */

/* Socket inodes that listen on port, v4 or v6. */
static int find_inodes(const char *table, uint16_t port, unsigned long *inodes,
                       int count)
{
    FILE *file = fopen(table, "re");
    char line[512];

    if (!file)
        return count;
    while (count < INODES_MAX && fgets(line, sizeof line, file)) {
        unsigned local_port;
        unsigned state;
        unsigned long inode;

        if (sscanf(
                line,
                " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu",
                &local_port, &state, &inode) == 3 &&
            local_port == port && state == TCP_LISTEN)
            inodes[count++] = inode;
    }
    fclose(file);
    return count;
}

static bool holds_one_of(const char *pid, const unsigned long *inodes, int count)
{
    char path[300];
    char link[64];
    bool found = false;
    DIR *dir;

    (void)ct_format(path, sizeof path, "/proc/%s/fd", pid);
    if (!(dir = opendir(path)))
        return false;
    for (struct dirent *it; !found && (it = readdir(dir));) {
        ssize_t length = readlinkat(dirfd(dir), it->d_name, link, sizeof link - 1);
        unsigned long inode;

        if (length <= 0)
            continue;
        link[length] = '\0';
        if (sscanf(link, "socket:[%lu]", &inode) != 1)
            continue;
        for (int i = 0; i < count; i++)
            found |= inodes[i] == inode;
    }
    closedir(dir);
    return found;
}

/* pid "." is /proc itself. */
static size_t read_text(const char *pid, const char *name, char *dst, size_t size)
{
    char path[300];
    ssize_t got;
    int fd;

    dst[0] = '\0';
    (void)ct_format(path, sizeof path, "/proc/%s/%s", pid, name);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    got = read(fd, dst, size - 1);
    close(fd);
    got = got < 0 ? 0 : got;
    dst[got] = '\0';
    return (size_t)got;
}

/* Field 22 of stat is the start, in ticks since boot; the name before it may hold anything. */
static uint64_t running_ms(const char *pid)
{
    char text[1024];
    double uptime = 0;
    unsigned long long start;
    const char *rest;

    read_text(".", "uptime", text, sizeof text);
    (void)sscanf(text, "%lf", &uptime);
    read_text(pid, "stat", text, sizeof text);
    if (!(rest = strrchr(text, ')')) ||
        sscanf(rest + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
               "%*d %*d "
               "%llu",
               &start) != 1)
        return 0;
    uptime -= (double)start / (double)sysconf(_SC_CLK_TCK);
    return uptime > 0 ? (uint64_t)(uptime * 1000) : 0;
}

static void describe(const char *pid, struct port_owner *out)
{
    char path[300];
    struct stat info;
    struct passwd entry;
    struct passwd *found = NULL;
    char room[1024];
    size_t length = read_text(pid, "cmdline", out->command, sizeof out->command);

    for (size_t i = 0; i < length; i++)
        if (!isprint((unsigned char)out->command[i]))
            out->command[i] = ' ';
    while (length && out->command[length - 1] == ' ')
        out->command[--length] = '\0';
    out->pid = (int)strtol(pid, NULL, 10);
    out->running_ms = running_ms(pid);
    (void)ct_format(path, sizeof path, "/proc/%s", pid);
    if (stat(path, &info) == 0 &&
        getpwuid_r(info.st_uid, &entry, room, sizeof room, &found) == 0 && found)
        (void)ct_copy(out->user, sizeof out->user, found->pw_name);
    else
        (void)ct_copy(out->user, sizeof out->user, "unknown");
}

int port_owner_find(uint16_t port, struct port_owner *out)
{
    unsigned long inodes[INODES_MAX];
    int count = find_inodes("/proc/net/tcp", port, inodes, 0);
    int found = 0;
    DIR *dir;

    count = find_inodes("/proc/net/tcp6", port, inodes, count);
    if (!count || !(dir = opendir("/proc")))
        return 0;
    for (struct dirent *it; !found && (it = readdir(dir));) {
        if (!isdigit((unsigned char)it->d_name[0]) ||
            !holds_one_of(it->d_name, inodes, count))
            continue;
        describe(it->d_name, out);
        found = 1;
    }
    closedir(dir);
    return found;
}
