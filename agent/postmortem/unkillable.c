/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/unkillable.h"

#include <dirent.h>
#include <unistd.h>

#include "agent/postmortem/facts.h"
#include "agent/process/reap.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

/* The freezer cgroup of a process that is in one, v1 or v2; false when it is in none. */
static bool find_freezer(char *dst, size_t size, pid_t pid)
{
    char text[4096];
    char file[512];
    char state[64];
    const char *name;

    (void)ct_small_file_of(text, sizeof text, pid, 0, "cgroup");
    if ((name = strstr(text, ":freezer:"))) {
        name += strlen(":freezer:");
        (void)ct_format(dst, size, "%.*s", (int)strcspn(name, "\n"), name);
        (void)ct_format(file, sizeof file, "/sys/fs/cgroup/freezer%s/freezer.state",
                        dst);
        (void)ct_small_file_read(state, sizeof state, file);
        if (ct_starts_with(state, "FR"))
            return true; /* FROZEN, FREEZING */
    }
    if (!(name = strstr(text, "0::")))
        return false;
    (void)ct_format(dst, size, "%.*s", (int)strcspn(name + 3, "\n"), name + 3);
    (void)ct_format(file, sizeof file, "/sys/fs/cgroup%s/cgroup.freeze", dst);
    (void)ct_small_file_read(state, sizeof state, file);
    return state[0] == '1';
}

static bool is_device(const char *path)
{
    return ct_starts_with(path, "/dev/nvidia") ||
           ct_starts_with(path, "/dev/infiniband") ||
           ct_starts_with(path, "/dev/kfd") || ct_starts_with(path, "/dev/dri");
}

/* Adds the accelerators that the process has open, each once. */
static void add_devices(char *dst, size_t size, pid_t pid)
{
    char path[96];
    char target[256];
    DIR *dir;

    (void)ct_format(path, sizeof path, "/proc/%d/fd", (int)pid);
    if (!(dir = opendir(path)))
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        ssize_t n;

        if (ct_format(path, sizeof path, "/proc/%d/fd/%.20s", (int)pid, entry->d_name) <
                0 ||
            (n = readlink(path, target, sizeof target - 1)) <= 0)
            continue;
        target[n] = '\0';
        if (is_device(target) && !strstr(dst, target))
            (void)ct_append(dst, size, "%s%s", strstr(dst, "holds") ? ", " : "; holds ",
                            target);
    }
    closedir(dir);
}

static void describe(char *dst, pid_t pid, bool has_survived)
{
    const size_t size = UNKILLABLE_WHERE_MAX;
    struct reap_process process = {.state = '?'};
    char where[64];
    char freezer[128];

    (void)reap_look(pid, &process);
    ct_small_file_wait(where, sizeof where, pid, pid);
    (void)ct_format(dst, size, "state %c, kernel %s", process.state,
                    *where ? where : "unknown");
    if (find_freezer(freezer, sizeof freezer, pid))
        (void)ct_append(dst, size, ", frozen by cgroup %s", freezer);
    if (has_survived || process.state == 'D')
        add_devices(dst, size, pid);
}

void unkillable_describe(char *dst, pid_t pid)
{
    describe(dst, pid, true);
}

void unkillable_describe_stuck(char *dst, pid_t pid)
{
    describe(dst, pid, false);
}

void unkillable_explain(struct ct_failure *failure, pid_t pid)
{
    char where[UNKILLABLE_WHERE_MAX];

    unkillable_describe(where, pid);
    facts_add(failure, CT_FACT_IS_IN, "%s", where);
    facts_add(failure, CT_FACT_NOW,
              "giving up on it; exit %d (do not reuse this node); other nodes are free",
              CT_EXIT_UNKILLABLE);
    if (getenv("SLURM_JOB_ID"))
        facts_add(failure, CT_FACT_DO,
                  "drain %s: scontrol update nodename=%s state=drain "
                  "reason=\"ctrun unkillable %d\"",
                  failure->host, failure->host, (int)pid);
    else
        facts_add(failure, CT_FACT_DO,
                  "start nothing on %s before pid %d is gone; see journalctl -k",
                  failure->host, (int)pid);
}

static void take_first(void *context, const struct reap_process *process)
{
    pid_t *first = context;

    if (*first == 0)
        *first = process->pid;
}

pid_t unkillable_find(void)
{
    pid_t first = 0;

    (void)reap_scan(NULL, take_first, &first);
    return first;
}
