/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/meet_seat.h"

#include "launcher/seat.h"
#include "worker_sdk/base/str.h"

enum {
    C10D_PORT = 29400
};

int meet_seat_check(const struct options *options, const struct nnodes *nodes,
                    int total, struct ctrun_error *err)
{
    static const enum option_id alone[] = {OPTION_STANDALONE, OPTION_NODE_RANK,
                                           OPTION_MASTER_ADDR, OPTION_MASTER_PORT,
                                           OPTION_LOCAL_ADDR};

    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (options->values[alone[i]].source == OPTION_TYPED ||
            options->values[alone[i]].source == OPTION_FROM_FILE ||
            (alone[i] == OPTION_STANDALONE && options->values[alone[i]].is_on))
            return ct_fail(err, CTRUN_E_USAGE,
                           "--%s: not with --hosts, which gives every node its rank "
                           "and the place to meet; --rdzv-endpoint names another",
                           option_table[alone[i]].name);
    if (nodes->max > total)
        return ct_fail(err, CTRUN_E_USAGE, "--nnodes=%s: --hosts names %d host%s",
                       option_text(options, OPTION_NNODES), total,
                       total > 1 ? "s" : "");
    if (option_has_text(options, OPTION_RDZV_BACKEND) &&
        strcmp(option_text(options, OPTION_RDZV_BACKEND), "c10d") != 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-backend=%s: not with --hosts, which uses c10d",
                       option_text(options, OPTION_RDZV_BACKEND));
    return 0;
}

int meet_seat_resolve(struct config *config, const struct options *options,
                      struct ctrun_error *err)
{
    const struct seat *seat = seat_get();
    const char *typed = option_text(options, OPTION_RDZV_ENDPOINT);
    int rc;

    if (!seat->is_given)
        return 0;
    if (!option_has_text(options, OPTION_NNODES))
        config->nodes.min = config->nodes.max = seat->total;
    if ((rc = meet_seat_check(options, &config->nodes, seat->total, err)) < 0)
        return rc;
    config->node_id = seat->place;
    config->node_count = seat->total;
    if (!option_has_text(options, OPTION_RDZV_ID))
        (void)ct_copy(config->run_id, sizeof config->run_id, seat->run_id);
    if (!*seat->endpoint && !*typed) { /* one node meets nobody */
        config->backend = CONFIG_LOCAL;
        config->node_rank = -1;
        return ct_endpoint_parse("127.0.0.1:0", &config->endpoint, err) < 0 ? -1 : 1;
    }
    config->backend = CONFIG_C10D;
    config->node_rank = seat->place;
    if ((rc = ct_endpoint_parse(*seat->endpoint ? seat->endpoint : typed,
                                &config->endpoint, err)) < 0)
        return rc;
    if (*seat->endpoint)
        config->is_host = CONFIG_HOST_NO; /* it is served already */
    else if (config->endpoint.port < 0)
        config->endpoint.port = C10D_PORT;
    return 1;
}
