/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/rdzv_host_slot.h"

#include "launcher/config/host_slot.h"
#include "worker_sdk/base/str.h"

int rdzv_host_slot_check(const struct options *options, const struct nnodes *nodes,
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
                           "and the endpoint; --rdzv-endpoint sets another endpoint",
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

int rdzv_host_slot_resolve(const struct rdzv_target *to, const struct options *options,
                           struct ctrun_error *err)
{
    const struct host_slot *slot = host_slot_get();
    const char *typed = option_text(options, OPTION_RDZV_ENDPOINT);
    int rc;

    if (!slot->is_given)
        return 0;
    if (!option_has_text(options, OPTION_NNODES))
        to->run->nodes.min = to->run->nodes.max = slot->total;
    if ((rc = rdzv_host_slot_check(options, &to->run->nodes, slot->total, err)) < 0)
        return rc;
    to->run->node_id = slot->place;
    to->run->node_count = slot->total;
    if (!option_has_text(options, OPTION_RDZV_ID))
        (void)ct_copy(to->run->run_id, sizeof to->run->run_id, slot->run_id);
    if (!*slot->endpoint && !*typed) { /* one node needs no other */
        to->rdzv->backend = CONFIG_LOCAL;
        to->run->node_rank = -1;
        return ct_endpoint_parse("127.0.0.1:0", &to->rdzv->endpoint, err) < 0 ? -1 : 1;
    }
    to->rdzv->backend = CONFIG_C10D;
    to->run->node_rank = slot->place;
    if ((rc = ct_endpoint_parse_typed(*slot->endpoint ? slot->endpoint : typed,
                                      &to->rdzv->endpoint, err)) < 0)
        return rc;
    if (*slot->endpoint)
        to->rdzv->is_host = CONFIG_HOST_NO; /* its server listens already */
    else if (to->rdzv->endpoint.port < 0)
        to->rdzv->endpoint.port = CT_C10D_PORT;
    return 1;
}
