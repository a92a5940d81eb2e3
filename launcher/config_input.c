/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads standard input. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "launcher/config_private.h"
#include "worker_sdk/base/str.h"

/* How many ranks there will be; 0: the nodes' sizes may differ. */
static int count_ranks(const struct config *config)
{
    if (config->nodes.max == 1)
        return config->nproc;
    return config->task.is_rank ? config->nodes.max : 0;
}

int config_input_resolve(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_STDIN);
    const int count = count_ranks(out);
    uint64_t rank;

    out->stdin_rank = CONFIG_STDIN_ALL;
    if (strcmp(text, "all") == 0)
        return 0;
    out->stdin_rank = CONFIG_STDIN_NONE;
    if (strcmp(text, "none") == 0)
        return 0;
    if (ct_parse_u64(text, 0, INT_MAX, &rank) < 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--stdin=%s: must be a rank of the job, all or none", text);
    if (count > 0 && rank >= (uint64_t)count)
        return ct_fail(err, CTRUN_E_USAGE, "--stdin=%s: there %s %d rank%s, 0 to %d",
                       text, count == 1 ? "is" : "are", count, count == 1 ? "" : "s",
                       count - 1);
    out->stdin_rank = (int)rank;
    return 0;
}
