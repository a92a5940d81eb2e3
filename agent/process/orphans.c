/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/orphans.h"

#include <signal.h>
#include <unistd.h>

#include "agent/process/process_name.h"
#include "agent/process/reap.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

void orphans_note(struct orphans *orphans, pid_t pid)
{
    char name[PROCESS_NAME_MAX];

    for (int i = 0; i < orphans->count; i++)
        if (orphans->pids[i] == pid)
            return;
    if (orphans->count == ORPHANS_COUNTED_MAX)
        return;
    orphans->pids[orphans->count++] = pid;
    if (orphans->count <= ORPHANS_NAMED_MAX)
        (void)ct_append_item(orphans->text, sizeof orphans->text, ", ", "pid %d (%s)",
                             (int)pid, process_name(name, pid));
}

const char *orphans_text(struct orphans *orphans)
{
    const int more = orphans->count - ORPHANS_NAMED_MAX;

    if (more > 0)
        (void)ct_append(orphans->text, sizeof orphans->text, " and %d more", more);
    return orphans->text;
}

void orphans_emit(const struct orphans *orphans, uint64_t generation, const char *text)
{
    ct_event_emit("orphans_killed", CT_INT("generation", generation),
                  CT_INT("count", orphans->count), CT_STR("processes", text));
}

/* ---- Orphans of one dead worker ------------------------------------------------------------ */

struct walk {
    const struct orphans_pass *before;
    struct orphans_pass now;
    struct orphans *named;
    int alive;
};

static int find_pid(const struct orphans_pass *pass, pid_t pid)
{
    for (int i = 0; i < pass->count; i++)
        if (pass->pids[i] == pid)
            return i;
    return -1;
}

/* A process killed in the pass before may still be dying, and be an orphan by now. */
static bool is_own(const struct walk *walk, const struct reap_process *process)
{
    const int before = find_pid(walk->before, process->pid);

    return process->session == walk->now.session ||
           find_pid(&walk->now, process->parent) >= 0 ||
           (process->parent == getpid() && before >= 0 &&
            walk->before->started[before] == process->started);
}

static void note_process(void *context, const struct reap_process *process)
{
    struct walk *walk = context;

    if (!is_own(walk, process))
        return;
    if (walk->named)
        orphans_note(walk->named, process->pid);
    if (walk->now.count < ORPHANS_PASS_MAX) {
        walk->now.pids[walk->now.count] = process->pid;
        walk->now.started[walk->now.count++] = process->started;
    }
    walk->alive++;
}

int orphans_kill(struct orphans_pass *pass, struct orphans *named)
{
    struct walk walk = {.before = pass, .named = named};

    walk.now.session = pass->session;
    (void)reap_scan(NULL, note_process, &walk);
    /* Not during the scan: the children of a dead process could no longer be found. */
    for (int i = 0; i < walk.now.count; i++)
        reap_kill(&(struct reap_process){.pid = walk.now.pids[i],
                                         .started = walk.now.started[i]});
    *pass = walk.now;
    return walk.alive;
}
