/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/leftovers_kill.h"

#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "agent/process/reap.h"

struct walk {
    const struct leftovers_kill *before;
    struct leftovers_kill now;
    struct leftovers *named;
    int alive;
};

static bool has_pid(const struct leftovers_kill *remains, pid_t pid)
{
    for (int i = 0; i < remains->count; i++)
        if (remains->pids[i] == pid)
            return true;
    return false;
}

/* Who was killed in the pass before may still be dying, an orphan by now. */
static bool is_own(const struct walk *walk, const struct reap_process *process)
{
    return process->session == walk->now.session ||
           has_pid(&walk->now, process->parent) ||
           (process->parent == getpid() && has_pid(walk->before, process->pid));
}

static void note_process(void *context, const struct reap_process *process)
{
    struct walk *walk = context;

    if (!is_own(walk, process))
        return;
    if (walk->named)
        leftovers_note(walk->named, process->pid);
    if (walk->now.count < LEFTOVERS_KILL_MAX)
        walk->now.pids[walk->now.count++] = process->pid;
    walk->alive++;
}

int leftovers_kill(struct leftovers_kill *remains, struct leftovers *named)
{
    struct walk walk = {.before = remains, .named = named};

    walk.now.session = remains->session;
    (void)reap_scan(NULL, note_process, &walk);
    /* Not on the way: children of one that is dead could not be told any more. */
    for (int i = 0; i < walk.now.count; i++)
        (void)kill(walk.now.pids[i], SIGKILL); /* gone meanwhile: fine */
    *remains = walk.now;
    return walk.alive;
}
