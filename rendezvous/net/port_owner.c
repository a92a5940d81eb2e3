/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/port_owner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

enum {
    TCP_LISTEN = 0x0a
}; /* column "st" of /proc/net/tcp, see proc(5) */

/* Inode of the listening socket on `port` in one of the two tables; 0: none. */
static unsigned long find_inode(const char *path, int port)
{
    FILE *file = fopen(path, "re");
    char line[512];
    unsigned long found = 0;

    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file)) {
        unsigned local_port, state;
        unsigned long inode;

        /* sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode */
        if (sscanf(line,
                   "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu",
                   &local_port, &state, &inode) == 3 &&
            state == TCP_LISTEN && (int)local_port == port)
            found = inode;
    }
    (void)fclose(file); /* only read from */
    return found;
}

static bool has_socket(const char *pid, const char *socket_name)
{
    char path[300], target[64];
    struct dirent *entry;
    bool found = false;
    DIR *dir;

    (void)ct_format(path, sizeof path, "/proc/%s/fd", pid);
    if (!(dir = opendir(path)))
        return false; /* no permission, or the process has ended */
    while (!found && (entry = readdir(dir))) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, target,
                                    sizeof target - 1);

        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, socket_name) == 0;
    }
    (void)closedir(dir);
    return found;
}

/* The command line, arguments separated by blanks, cut to what fits. */
static void read_command(const char *pid, char *dst, size_t size)
{
    char path[300];
    size_t length = 0;
    FILE *file;

    (void)ct_format(path, sizeof path, "/proc/%s/cmdline", pid);
    if ((file = fopen(path, "re"))) {
        length = fread(dst, 1, size - 1, file);
        (void)fclose(file);
    }
    while (length > 0 && dst[length - 1] == '\0')
        length--;
    for (size_t i = 0; i < length; i++) {
        if (!isprint((unsigned char)dst[i]))
            dst[i] = ' ';
    }
    dst[length] = '\0';
}

/* Writes the process that listens at the port into pid[NAME_MAX + 1]; errors as
 * port_owner_describe(). */
static int find_owner(int port, char *pid)
{
    unsigned long inode = find_inode("/proc/net/tcp6", port);
    char socket_name[64];
    struct dirent *entry;
    int rc = -EACCES;
    DIR *proc;

    if (!inode && !(inode = find_inode("/proc/net/tcp", port)))
        return -ENOENT;
    (void)ct_format(socket_name, sizeof socket_name, "socket:[%lu]", inode);
    if (!(proc = opendir("/proc")))
        return rc;
    while (rc < 0 && (entry = readdir(proc))) {
        if (!isdigit((unsigned char)entry->d_name[0]) ||
            !has_socket(entry->d_name, socket_name))
            continue;
        (void)ct_copy(pid, NAME_MAX + 1, entry->d_name);
        rc = 0;
    }
    (void)closedir(proc);
    return rc;
}

int port_owner_describe(int port, char *dst)
{
    char pid[NAME_MAX + 1], command[128];
    const int rc = find_owner(port, pid);

    if (rc == 0) {
        read_command(pid, command, sizeof command);
        (void)ct_format(dst, PORT_OWNER_TEXT_MAX, "pid %s (%s)", pid, command);
    } else {
        (void)ct_copy(
            dst, PORT_OWNER_TEXT_MAX,
            rc == -ENOENT
                ? "no process listens now: a connection uses the port, or its "
                  "owner has just ended"
                : "a process that this user may not look at");
    }
    return rc;
}

bool port_owner_may_run(int port, const char *prefix)
{
    char pid[NAME_MAX + 1], path[300], program[PATH_MAX];
    const char *name;
    ssize_t length;

    if (find_owner(port, pid) < 0)
        return true;
    (void)ct_format(path, sizeof path, "/proc/%s/exe", pid);
    if ((length = readlink(path, program, sizeof program - 1)) <= 0)
        return true;
    program[length] = '\0';
    name = strrchr(program, '/');
    return strncmp(name ? name + 1 : program, prefix, strlen(prefix)) == 0;
}

int port_owner_choose(unsigned long inode, const pid_t *pids, int count)
{
    char socket_name[64], pid[24];

    (void)ct_format(socket_name, sizeof socket_name, "socket:[%lu]", inode);
    for (int i = 0; inode && i < count; i++) {
        (void)ct_format(pid, sizeof pid, "%d", (int)pids[i]);
        if (has_socket(pid, socket_name))
            return i;
    }
    return -1;
}
