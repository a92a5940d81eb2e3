/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup of the killed process counts the kill, even when an ancestor's limit was hit;
 * workers are in the agent's cgroup. Lines of /proc/self/cgroup: "0::/path" is v2,
 * "4:memory:/path" is v1. */
#include "agent/postmortem/oom_counter.h"

#include <stdio.h>
#include <string.h>

#include "agent/postmortem/facts.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    CGROUP_LINE_MAX = 1024
};

/* The number behind `key` in a file of lines "KEY NUMBER". */
static bool read_key(const char *path, const char *key, uint64_t *count)
{
    char line[CGROUP_LINE_MAX];
    bool is_found = false;
    FILE *file;

    if (*path == '\0' || !(file = fopen(path, "re")))
        return false;
    while (!is_found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        is_found = ct_starts_with(line, key) &&
                   ct_parse_u64(line + strlen(key), 0, UINT64_MAX, count) == 0;
    }
    (void)fclose(file);
    return is_found;
}

/* Both versions have such a line in the counter file. */
static bool read_count(const char *path, uint64_t *count)
{
    return read_key(path, "oom_kill ", count);
}

/* Tries one line of the membership file. */
static bool use_line(struct oom_counter *cgroup, const char *line, const char *root)
{
    const char *path = strchr(line, '/');
    const bool is_v2 = ct_starts_with(line, "0::");
    int rc;

    if (!path || (!is_v2 && !strstr(line, ":memory:")))
        return false;
    (void)ct_copy(cgroup->name, sizeof cgroup->name, path);
    if (strcmp(path, "/") == 0)
        path = ""; /* the root, or the only cgroup that a container sees */
    if (is_v2)
        rc = ct_format(cgroup->counter_file, sizeof cgroup->counter_file,
                       "%s%s/memory.events", root, path);
    else
        rc = ct_format(cgroup->counter_file, sizeof cgroup->counter_file,
                       "%s/memory%s/memory.oom_control", root, path);
    if (rc < 0 || !read_count(cgroup->counter_file, &cgroup->oom_kills))
        return false;
    (void)ct_format(cgroup->directory, sizeof cgroup->directory, "%.*s",
                    (int)(strrchr(cgroup->counter_file, '/') - cgroup->counter_file),
                    cgroup->counter_file); /* fits: it is shorter */
    cgroup->root_length = strlen(cgroup->directory) - strlen(path);
    return true;
}

void oom_counter_init(struct oom_counter *cgroup, const char *membership,
                      const char *root)
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

bool oom_counter_has_oom_killed(struct oom_counter *cgroup, char *proof, size_t size)
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

/* ---- The limit ----------------------------------------------------------------------- */

/* A number in DIRECTORY/NAME; false for "max", and for v1's largest number: they mean no limit. */
static bool read_bytes(const char *directory, const char *name, uint64_t *out)
{
    char path[640];
    char text[64];

    return ct_format(path, sizeof path, "%s/%s", directory, name) >= 0 &&
           ct_small_file_line(text, sizeof text, path) > 0 &&
           ct_parse_u64(text, 0, UINT64_MAX, out) == 0 && *out < (uint64_t)1 << 62;
}

/* How often the limit was hit: v1 has a file with that number, v2 a line in a file. */
static uint64_t read_hits(const char *directory)
{
    char path[640];
    uint64_t hits = 0;

    if (!read_bytes(directory, "memory.failcnt", &hits) &&
        ct_format(path, sizeof path, "%s/memory.events", directory) >= 0)
        (void)read_key(path, "max ", &hits);
    return hits;
}

/* The cgroup with the lowest limit, from ours up to the root. */
struct tightest {
    uint64_t limit; /* UINT64_MAX: none has one */
    char directory[sizeof((struct oom_counter *)NULL)->directory];
};

static void find_tightest(const struct oom_counter *cgroup, struct tightest *out)
{
    char directory[sizeof cgroup->directory];
    uint64_t limit;

    out->limit = UINT64_MAX;
    (void)ct_copy(directory, sizeof directory, cgroup->directory); /* same size */
    while (*directory) {
        if ((read_bytes(directory, "memory.max", &limit) ||
             read_bytes(directory, "memory.limit_in_bytes", &limit)) &&
            limit < out->limit) {
            out->limit = limit;
            (void)ct_copy(out->directory, sizeof out->directory, directory);
        }
        if (strlen(directory) <= cgroup->root_length)
            break;
        *strrchr(directory, '/') = '\0';
    }
}

uint64_t oom_counter_get_limit(const struct oom_counter *cgroup)
{
    struct tightest tightest;

    find_tightest(cgroup, &tightest);
    return tightest.limit;
}

bool oom_counter_describe_limit(const struct oom_counter *cgroup, char *dst,
                                size_t size)
{
    struct tightest tightest;
    char limit_text[FACTS_SIZE_MAX];
    char used_text[FACTS_SIZE_MAX];
    const char *name;
    uint64_t used = 0;

    find_tightest(cgroup, &tightest);
    if (tightest.limit == UINT64_MAX)
        return false;
    if (!read_bytes(tightest.directory, "memory.peak", &used) &&
        !read_bytes(tightest.directory, "memory.max_usage_in_bytes", &used))
        (void)read_bytes(tightest.directory, "memory.current", &used);
    facts_format_size(limit_text, tightest.limit);
    facts_format_size(used_text, used);
    name = tightest.directory + cgroup->root_length;
    return ct_format(dst, size, "%s of cgroup %s, used %s, hit %llu times", limit_text,
                     *name ? name : "/", used_text,
                     (unsigned long long)read_hits(tightest.directory)) >= 0;
}
