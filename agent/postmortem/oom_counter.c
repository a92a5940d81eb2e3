/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup of the killed process counts the kill, even when an ancestor's limit was hit;
 * workers are in the agent's cgroup. */
#include "agent/postmortem/oom_counter.h"

#include "agent/postmortem/facts.h"
#include "worker_sdk/base/str.h"

static bool read_count(const struct cgroup_path *cgroup, uint64_t *count)
{
    return cgroup_path_read_key(cgroup,
                                cgroup->is_v1 ? "memory.oom_control" : "memory.events",
                                "oom_kill ", count);
}

void oom_counter_init(struct oom_counter *counter, const char *membership,
                      const char *root)
{
    *counter = (struct oom_counter){0};
    (void)cgroup_path_find(&counter->cgroup, "memory", membership, root);
    counter->has_count = read_count(&counter->cgroup, &counter->oom_kills);
}

bool oom_counter_has_oom_killed(struct oom_counter *counter, char *proof, size_t size)
{
    const uint64_t before = counter->oom_kills;

    if (!read_count(&counter->cgroup, &counter->oom_kills) ||
        counter->oom_kills <= before)
        return false;
    (void)ct_format(proof, size, "oom_kill %llu -> %llu in %.200s",
                    (unsigned long long)before, (unsigned long long)counter->oom_kills,
                    cgroup_path_name(&counter->cgroup));
    return true;
}

/* ---- The limit ----------------------------------------------------------------------- */

/* The cgroup with the lowest limit, from ours up to the root. UINT64_MAX: none has one. */
static uint64_t find_tightest(struct cgroup_path *out, const struct cgroup_path *own)
{
    const char *file = own->is_v1 ? "memory.limit_in_bytes" : "memory.max";
    struct cgroup_path at = *own;
    uint64_t lowest = UINT64_MAX;
    uint64_t limit;

    do
        if (cgroup_path_read(&at, file, &limit) && limit < lowest) {
            lowest = limit;
            *out = at;
        }
    while (cgroup_path_go_up(&at));
    return lowest;
}

static uint64_t read_used(const struct cgroup_path *cgroup)
{
    uint64_t used = 0;

    (void)cgroup_path_read(
        cgroup, cgroup->is_v1 ? "memory.usage_in_bytes" : "memory.current", &used);
    return used;
}

uint64_t oom_counter_get_limit(const struct oom_counter *counter, uint64_t *used)
{
    struct cgroup_path tightest;
    const uint64_t limit = find_tightest(&tightest, &counter->cgroup);

    if (used && limit != UINT64_MAX)
        *used = read_used(&tightest);
    return limit;
}

/* How often the limit was hit: v1 has a file with that number, v2 a line in a file. */
static uint64_t read_hits(const struct cgroup_path *cgroup)
{
    uint64_t hits = 0;

    if (cgroup->is_v1)
        (void)cgroup_path_read(cgroup, "memory.failcnt", &hits);
    else
        (void)cgroup_path_read_key(cgroup, "memory.events", "max ", &hits);
    return hits;
}

bool oom_counter_describe_limit(const struct oom_counter *counter, char *dst,
                                size_t size)
{
    struct cgroup_path tightest;
    const uint64_t limit = find_tightest(&tightest, &counter->cgroup);
    char limit_text[FACTS_SIZE_MAX];
    char used_text[FACTS_SIZE_MAX];
    uint64_t used;

    if (limit == UINT64_MAX)
        return false;
    if (!cgroup_path_read(&tightest,
                          tightest.is_v1 ? "memory.max_usage_in_bytes" : "memory.peak",
                          &used))
        used = read_used(&tightest);
    facts_format_size(limit_text, limit);
    facts_format_size(used_text, used);
    return ct_format(dst, size, "%s of cgroup %s, used %s, hit %llu times", limit_text,
                     cgroup_path_name(&tightest), used_text,
                     (unsigned long long)read_hits(&tightest)) >= 0;
}
