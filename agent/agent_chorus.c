/* SPDX-License-Identifier: Apache-2.0 */
/* --collapse: one chorus in front of each console. */
#include "agent/agent_private.h"

#include <errno.h>

#include "agent/collapse.h"

enum {
    RANKS_MAX_BYTES = 64 /* a longer list says less than a number */
};

static char *prefix_of(void *context, const uint64_t *workers, bool is_teed)
{
    const struct agent *agent = context;
    const struct agent_options *options = agent->options;
    const int count = (int)options->join.slots;
    char local_ranks[RANKS_MAX_BYTES];
    char ranks[RANKS_MAX_BYTES];

    collapse_format(local_ranks, sizeof local_ranks, workers, count, 0);
    collapse_format(ranks, sizeof ranks, workers, count, agent->start.rank_base);
    return options->ranks_prefix(options->context, local_ranks, ranks, is_teed);
}

static struct chorus *open_one(struct agent *agent, struct console *console)
{
    const struct chorus_options options = {
        .loop = agent->loop,
        .console = console,
        .workers = (int)agent->options->join.slots,
        .context = agent,
        .prefix = prefix_of,
    };

    return chorus_open(&options);
}

int agent_open_chorus(struct agent *agent, struct ctrun_error *err)
{
    if (!agent->options->ranks_prefix)
        return 0;
    agent->chorus_err = open_one(agent, agent->console_err);
    agent->chorus_out = agent->console_out == agent->console_err
                            ? agent->chorus_err
                            : open_one(agent, agent->console_out);
    return agent->chorus_err && agent->chorus_out
               ? 0
               : ct_fail(err, -ENOMEM, "--collapse: out of memory");
}

void agent_flush_chorus(struct agent *agent, bool is_end)
{
    chorus_flush(agent->chorus_err, is_end);
    if (agent->chorus_out != agent->chorus_err)
        chorus_flush(agent->chorus_out, is_end);
}

void agent_close_chorus(struct agent *agent)
{
    if (agent->chorus_out != agent->chorus_err)
        chorus_close(agent->chorus_out);
    chorus_close(agent->chorus_err);
}
