/* SPDX-License-Identifier: Apache-2.0 */
/* Workers whose file timer ran out, and workers that the kernel does not release (D state). */
#include <errno.h>
#include <signal.h>

#include "agent/node/agent_private.h"

/* ---- File timer ------------------------------------------------------------------------- */

static int parse_timer(void *context, const char *line, size_t length,
                       struct agent_timer *out)
{
    const struct agent_options *options = ((struct agent *)context)->options;

    return options->parse_timer(options->context, line, length, out);
}

/* Every process of our user can write to the pipe; we signal only processes of our workers. */
static bool is_ours(void *context, pid_t pid)
{
    return worker_group_has_process(((struct agent *)context)->group, pid);
}

static void on_expired(void *context, pid_t pid, const char *scope, int signal)
{
    worker_group_expire(((struct agent *)context)->group, pid, scope, signal);
}

int agent_open_file_timer(struct agent *agent, struct ctrun_error *err)
{
    const struct file_timer_options options = {
        .loop = agent->loop,
        .path = agent->options->timer_file,
        .grace_ms = agent->options->grace_ms,
        .context = agent,
        .parse = parse_timer,
        .is_ours = is_ours,
        .on_expired = on_expired,
    };

    return options.path ? file_timer_open(&agent->file_timer, &options, err) : 0;
}

/* ---- Uninterruptible sleep -------------------------------------------------------------- */

/* As after a process that SIGKILL does not end: this node cannot run another round. */
static void on_stuck(void *context, pid_t process, pid_t thread, const char *where,
                     uint64_t for_ms)
{
    struct agent *agent = context;
    struct ctrun_error *err = &agent->result->error;

    if (agent->state != AGENT_RUNNING)
        return;
    (void)ct_fail(
        err, CTRUN_E_UNKILLABLE,
        "rank %d: pid %d thread %d has been in uninterruptible sleep (state D) "
        "for %.1f s, kernel %s",
        worker_group_find_rank(agent->group, process), process, thread,
        (double)for_ms / 1000, where);
    agent_send_leave(agent, err->text);
    agent_stop(agent, AFTER_END, SIGTERM, agent->options->grace_ms,
               "a worker is stuck in the kernel");
}

int agent_open_dstate_watch(struct agent *agent, struct ctrun_error *err)
{
    const struct dstate_watch_options options = {
        .loop = agent->loop,
        .limit_ms = agent->options->stuck_limit_ms,
        .context = agent,
        .on_stuck = on_stuck,
    };

    if (options.limit_ms == 0 ||
        dstate_watch_create(&agent->dstate_watch, &options) == 0)
        return 0;
    return ct_fail(err, -ENOMEM, "state D check: out of memory");
}
