/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/file_limit.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

struct limit_walk {
    bool is_lift;
    int count;
};

static void visit(void *context, const struct reap_process *process)
{
    struct limit_walk *walk = context;
    struct rlimit own, limit;

    if (prlimit(process->pid, RLIMIT_FSIZE, NULL, &limit) < 0 ||
        (walk->is_lift && limit.rlim_cur != 0) || getrlimit(RLIMIT_FSIZE, &own) < 0)
        return;
    limit.rlim_cur = !walk->is_lift                  ? 0
                     : own.rlim_cur < limit.rlim_max ? own.rlim_cur
                                                     : limit.rlim_max;
    walk->count += prlimit(process->pid, RLIMIT_FSIZE, &limit, NULL) == 0;
}

/* Twice: the first walk misses what is forked meanwhile. */
static int walk_all(const struct reap_keep *keep, bool is_lift)
{
    struct limit_walk walk = {.is_lift = is_lift};

    for (int i = 0; i < 2; i++) {
        walk.count = 0;
        (void)reap_scan(keep, visit, &walk);
    }
    return walk.count;
}

int file_limit_set(const struct reap_keep *keep)
{
    return walk_all(keep, false);
}

void file_limit_lift(const struct reap_keep *keep)
{
    (void)walk_all(keep, true);
}
