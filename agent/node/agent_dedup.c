/* SPDX-License-Identifier: Apache-2.0 */
/* --collapse: one line merger in front of each console. */
#include "agent/node/agent_private.h"

#include <errno.h>

#include "agent/output/line_dedup.h"

enum {
    RANKS_MAX_BYTES = 64 /* for more ranks a number is shown, not a list */
};

static char *prefix_of(void *context, const uint64_t *workers, bool is_teed)
{
    const struct agent *agent = context;
    const struct agent_options *options = agent->options;
    const int count = (int)options->join.slots;
    char local_ranks[RANKS_MAX_BYTES];
    char ranks[RANKS_MAX_BYTES];

    line_dedup_format(local_ranks, sizeof local_ranks, workers, count, 0);
    line_dedup_format(ranks, sizeof ranks, workers, count, agent->start.rank_base);
    return options->ranks_prefix(options->context, local_ranks, ranks, is_teed);
}

static struct console_dedup *open_one(struct agent *agent, struct console *console)
{
    const struct console_dedup_options options = {
        .loop = agent->loop,
        .console = console,
        .workers = (int)agent->options->join.slots,
        .context = agent,
        .prefix = prefix_of,
    };

    return console_dedup_open(&options);
}

/* If both streams go to one console they share the merger, too: lines keep their order. */
int agent_open_dedup(struct agent *agent, struct ctrun_error *err)
{
    if (!agent->options->ranks_prefix)
        return 0;
    agent->dedup_err = open_one(agent, agent->console_err);
    agent->dedup_out = agent->console_out == agent->console_err
                           ? agent->dedup_err
                           : open_one(agent, agent->console_out);
    return agent->dedup_err && agent->dedup_out
               ? 0
               : ct_fail(err, -ENOMEM, "--collapse: out of memory");
}

void agent_flush_dedup(struct agent *agent, bool is_end)
{
    console_dedup_flush(agent->dedup_err, is_end);
    if (agent->dedup_out != agent->dedup_err)
        console_dedup_flush(agent->dedup_out, is_end);
}

void agent_close_dedup(struct agent *agent)
{
    if (agent->dedup_out != agent->dedup_err)
        console_dedup_close(agent->dedup_out);
    console_dedup_close(agent->dedup_err);
}
