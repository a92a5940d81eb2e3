/* SPDX-License-Identifier: Apache-2.0 */
/* The victim's own cgroup counts the kill whichever ancestor's limit was hit, and workers are in
 * the agent's. Lines of /proc/self/cgroup: "0::/path" is v2, "4:memory:/path" is v1. */
#include "agent/cgroup.h"

#include <stdio.h>
#include <string.h>

#include "worker_sdk/base/str.h"

enum {
    CGROUP_LINE_MAX = 1024
};

/* The number behind "oom_kill " in the counter file; both versions have such a line. */
static bool read_count(const char *path, uint64_t *count)
{
    char line[CGROUP_LINE_MAX];
    bool is_found = false;
    FILE *file;

    if (*path == '\0' || !(file = fopen(path, "re")))
        return false;
    while (!is_found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        is_found = ct_starts_with(line, "oom_kill ") &&
                   ct_parse_u64(line + strlen("oom_kill "), 0, UINT64_MAX, count) == 0;
    }
    (void)fclose(file);
    return is_found;
}

/* Tries one line of the membership file. */
static bool use_line(struct cgroup *cgroup, const char *line, const char *root)
{
    const char *path = strchr(line, '/');
    const bool is_v2 = ct_starts_with(line, "0::");
    int rc;

    if (!path || (!is_v2 && !strstr(line, ":memory:")))
        return false;
    (void)ct_copy(cgroup->name, sizeof cgroup->name, path);
    if (strcmp(path, "/") == 0)
        path = ""; /* the root, or all that a container sees of its own */
    if (is_v2)
        rc = ct_format(cgroup->counter_file, sizeof cgroup->counter_file,
                       "%s%s/memory.events", root, path);
    else
        rc = ct_format(cgroup->counter_file, sizeof cgroup->counter_file,
                       "%s/memory%s/memory.oom_control", root, path);
    return rc >= 0 && read_count(cgroup->counter_file, &cgroup->oom_kills);
}

void cgroup_init(struct cgroup *cgroup, const char *membership, const char *root)
{
    char line[CGROUP_LINE_MAX];
    bool is_found = false;
    FILE *file = fopen(membership, "re");

    memset(cgroup, 0, sizeof *cgroup);
    while (file && !is_found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        is_found = use_line(cgroup, line, root);
    }
    if (!is_found)
        cgroup->counter_file[0] = '\0';
    if (file)
        (void)fclose(file);
}

bool cgroup_has_oom_killed(struct cgroup *cgroup, char *proof, size_t size)
{
    const uint64_t before = cgroup->oom_kills;

    if (!read_count(cgroup->counter_file, &cgroup->oom_kills) ||
        cgroup->oom_kills <= before)
        return false;
    (void)ct_format(proof, size, "oom_kill %llu -> %llu in %s",
                    (unsigned long long)before, (unsigned long long)cgroup->oom_kills,
                    cgroup->name);
    return true;
}
