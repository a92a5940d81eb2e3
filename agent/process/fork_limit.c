/* SPDX-License-Identifier: Apache-2.0 */
/* A cgroup that is full, ours or one above it, is the cause. Else it is the user's limit, which is named if there is
 * one: to count a user's threads, /proc would have to be read. Root has no such limit. Lines of /proc/self/cgroup:
 * "0::/path" is v2, "8:pids:/path" is v1. */
#include "agent/process/fork_limit.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    MEMBERSHIP_MAX = 4 * 4096 /* with version 1, a line for each controller */
};

/* False for "max", too: no limit. */
static bool read_number(const char *directory, const char *name, uint64_t *out)
{
    char path[PATH_MAX + 16];
    char text[32];

    return ct_format(path, sizeof path, "%s/%s", directory, name) >= 0 &&
           ct_small_file_line(text, sizeof text, path) > 0 &&
           ct_parse_u64(text, 0, UINT64_MAX, out) == 0;
}

static bool is_full(const char *directory, uint64_t *limit)
{
    uint64_t count;

    return read_number(directory, "pids.max", limit) &&
           read_number(directory, "pids.current", &count) && count >= *limit;
}

/* From the cgroup up to the root of the hierarchy, whose path ends at root_length. */
static bool describe_cgroup(char *dst, size_t size, char *directory, size_t root_length)
{
    uint64_t limit;

    while (!is_full(directory, &limit)) {
        if (strlen(directory) <= root_length)
            return false;
        *strrchr(directory, '/') = '\0';
    }
    return ct_format(
               dst, size,
               "cgroup %.200s is at its limit of %llu processes and threads (pids.max)",
               directory[root_length] ? directory + root_length : "/",
               (unsigned long long)limit) >= 0;
}

/* Tries one line of the membership file. */
static bool try_line(char *dst, size_t size, const char *line, const char *root)
{
    const bool is_v2 = ct_starts_with(line, "0::");
    const char *path = strchr(line, '/');
    char directory[PATH_MAX];

    if (!path || (!is_v2 && !strstr(line, ":pids:")))
        return false;
    if (strcmp(path, "/") == 0)
        path = ""; /* the root, or the only cgroup that a container sees */
    return ct_format(directory, sizeof directory, "%s%s%s", root, is_v2 ? "" : "/pids",
                     path) >= 0 &&
           describe_cgroup(dst, size, directory, strlen(directory) - strlen(path));
}

static bool find_full_cgroup(char *dst, size_t size, const char *membership,
                             const char *root)
{
    char text[MEMBERSHIP_MAX];
    char *rest = text;

    (void)ct_small_file_read(text, sizeof text, membership);
    for (char *line; (line = strsep(&rest, "\n"));)
        if (try_line(dst, size, line, root))
            return true;
    return false;
}

void fork_limit_describe(char *dst, size_t size, const char *membership,
                         const char *root)
{
    struct rlimit limit;

    if (find_full_cgroup(dst, size, membership, root))
        return;
    if (getuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY)
        (void)ct_format(dst, size,
                        "this user may have %llu processes and threads (ulimit -u)",
                        (unsigned long long)limit.rlim_cur);
    else
        (void)ct_copy(dst, size, "which limit of processes was reached is unknown");
}
