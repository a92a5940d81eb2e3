/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/notice_start.h"

#include <unistd.h>

#include "launcher/config/host_slot.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

/* The first node prints it if there are several nodes or stderr is a terminal: a one-node run in a
 * pipeline prints nothing. */
static bool is_wanted(const struct ct_start *start)
{
    return start->group_rank == 0 &&
           (start->group_world_size > 1 ||
            (isatty(STDERR_FILENO) && !host_slot_get()->is_given));
}

/* "3 nodes, 8+8+7 = 23 workers", "8 workers" */
static void format_world(char *dst, size_t size, int nodes, const char *layout,
                         uint32_t workers)
{
    char by_node[CT_LAYOUT_MAX + 32] = "";

    if (nodes > 1)
        (void)ct_format(by_node, sizeof by_node, "%d nodes, %s = ", nodes, layout);
    (void)ct_format(dst, size, "%s%u worker%s", by_node, workers,
                    workers == 1 ? "" : "s");
}

/* Printed once a run, and not with --quiet. */
static void warn_open(const struct config *config)
{
    if (config->rdzv.token.length == 0 && !config->rdzv.uses_munge &&
        !config->rdzv.accepts_anybody && messages_is_shown(MESSAGES_NEWS))
        messages_warn(
            0, "no token: every program that reaches the rendezvous can take part in "
               "this run and stop it; give every node the same --rdzv-token-file, or "
               "--auth=none (CTRUN_AUTH=none) if only your machines reach the network");
}

/* In a job of Slurm the run is reached from the login node, too. */
static void format_way(char *dst, size_t size, const struct config *config)
{
    const char *job = ct_env_find(config->env, "SLURM_JOB_ID");
    const char *node = ct_env_find(config->env, "SLURMD_NODENAME");

    *dst = '\0';
    if (job && *job && node && *node)
        (void)ct_format(dst, size, "srun --jobid=%.32s --overlap -N1 -n1 -w %.200s ",
                        job, node);
}

void notice_logs(const struct ct_start *start, const char *folder)
{
    if (is_wanted(start))
        messages_notice("log files: %s", folder);
    else
        ct_info("log files: %s", folder);
}

void notice_start(const struct config *config, const struct ct_start *start,
                  bool is_first, char printed[CT_LAYOUT_MAX])
{
    const struct config_task *task = &config->run.task;
    const char *layout = task->is_rank ? task->layout : start->layout;
    char world[CT_LAYOUT_MAX + 64];
    char way[320];

    if (!is_wanted(start))
        return;
    format_world(world, sizeof world,
                 task->is_rank ? task->node_count : (int)start->group_world_size,
                 layout, start->world_size);
    format_way(way, sizeof way, config);
    if (!*printed)
        messages_notice("run '%s': %s; %sctrunctl status shows it", config->run.run_id,
                        world, way);
    else if (strcmp(printed, layout) != 0)
        messages_notice("%s", world);
    if (is_first && config->run.nodes.max > 1)
        warn_open(config);
    (void)ct_copy(printed, CT_LAYOUT_MAX, layout);
    if (*start->unlike)
        messages_warn(CTRUN_E_FINGERPRINT,
                      "'%s' on %s is not the file that %s runs; "
                      "different builds of a program may not work together",
                      config->work.program.name, start->unlike, config->run.host);
    if (*start->versions)
        messages_warn(CTRUN_E_FINGERPRINT,
                      "%s; different versions may hang or crash in collectives",
                      start->versions);
}
