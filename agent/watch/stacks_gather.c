/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/stacks_gather.h"

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

struct node {
    uint32_t number;
    char host[CT_HOST_MAX];
    bool has_ended;
    struct ct_buf text;
};

struct stacks_gather {
    uint32_t ticket;
    bool is_complete; /* nodes that were asked */
    uint32_t asked, left_out;
    uint32_t count; /* by rising number; `asked` at most */
    struct node nodes[CT_STACKS_NODES_MAX];
};

struct stacks_gather *stacks_gather_create(uint32_t ticket)
{
    struct stacks_gather *gather = ct_zalloc(sizeof *gather);

    if (gather)
        gather->ticket = ticket;
    return gather;
}

void stacks_gather_destroy(struct stacks_gather *gather)
{
    for (uint32_t i = 0; gather && i < gather->count; i++)
        ct_buf_deinit(&gather->nodes[i].text);
    free(gather);
}

uint32_t stacks_gather_ticket(const struct stacks_gather *gather)
{
    return gather->ticket;
}

/* ---- What comes -------------------------------------------------------------------------- */

/* The server sends one message for each node that it asked, each with the number of these nodes.
 * Nodes are kept by rising number, because the text has that order. A number that comes twice
 * counts once. */
static void add_node(struct stacks_gather *gather, const struct ct_stacks *message)
{
    uint32_t at = gather->count;

    gather->is_complete = true;
    gather->asked = message->nodes < CT_STACKS_NODES_MAX ? message->nodes
                                                         : CT_STACKS_NODES_MAX;
    gather->left_out = message->left_out;
    if (gather->count >= gather->asked)
        return;
    while (at > 0 && gather->nodes[at - 1].number > message->node)
        at--;
    if (at > 0 && gather->nodes[at - 1].number == message->node)
        return;
    memmove(&gather->nodes[at + 1], &gather->nodes[at],
            (gather->count - at) * sizeof gather->nodes[0]);
    gather->nodes[at] = (struct node){.number = message->node};
    (void)ct_copy(gather->nodes[at].host, CT_HOST_MAX, message->host); /* same size */
    ct_buf_init(&gather->nodes[at].text, CT_STACKS_ALL_MAX_BYTES);
    gather->count++;
}

static void add_text(struct stacks_gather *gather, const struct ct_stacks *message)
{
    for (uint32_t i = 0; i < gather->count; i++) {
        struct node *node = &gather->nodes[i];

        if (node->number != message->node || node->has_ended)
            continue;
        /* Ignores further text of a node that has sent more than it may. */
        node->has_ended = message->what == CT_STACKS_END ||
                          ct_buf_length(&node->text) + strlen(message->text) >
                              CT_STACKS_ALL_MAX_BYTES / gather->asked;
        if (ct_buf_append(&node->text, message->text, strlen(message->text)) < 0)
            node->has_ended = true;
    }
}

bool stacks_gather_on_stacks(struct stacks_gather *gather,
                             const struct ct_stacks *message)
{
    uint32_t ended = 0;

    if (message->ticket != gather->ticket)
        return false;
    if (message->what == CT_STACKS_ASKED)
        add_node(gather, message);
    else if (message->what == CT_STACKS_TEXT || message->what == CT_STACKS_END)
        add_text(gather, message);
    for (uint32_t i = 0; i < gather->count; i++)
        ended += gather->nodes[i].has_ended;
    return gather->is_complete && ended == gather->asked;
}

/* ---- What is shown ----------------------------------------------------------------------- */

static int write_own(struct ct_buf *out, uint32_t node, const char *host,
                     const struct ct_buf *own)
{
    int rc = 0;

    if (ct_buf_length(own) == 0)
        return 0;
    rc = ct_buf_printf(out, "node %u (%s):\n", node, host);
    return rc < 0 ? rc : ct_buf_append(out, ct_buf_data(own), ct_buf_length(own));
}

static int write_node(struct ct_buf *out, const struct node *node, uint64_t waited_ms)
{
    int rc;

    if (!node->has_ended)
        return ct_buf_printf(out, "node %u (%s): no answer in %.1f s\n", node->number,
                             node->host, (double)waited_ms / 1000);
    rc = ct_buf_printf(out, "node %u (%s):\n", node->number, node->host);
    return rc < 0 ? rc
                  : ct_buf_append(out, ct_buf_data(&node->text),
                                  ct_buf_length(&node->text));
}

int stacks_gather_write(const struct stacks_gather *gather, struct ct_buf *out,
                        uint32_t own_node, const char *own_host,
                        const struct ct_buf *own, uint64_t waited_ms)
{
    bool has_own = false;
    int rc = 0;

    for (uint32_t i = 0; rc >= 0 && i < gather->count; i++) {
        if (!has_own && gather->nodes[i].number > own_node) {
            has_own = true;
            rc = write_own(out, own_node, own_host, own);
        }
        if (rc >= 0)
            rc = write_node(out, &gather->nodes[i], waited_ms);
    }
    if (rc >= 0 && !has_own)
        rc = write_own(out, own_node, own_host, own);
    if (rc >= 0 && !gather->is_complete)
        rc = ct_buf_printf(out,
                           "the other nodes: no answer from the rendezvous in %.1f s\n",
                           (double)waited_ms / 1000);
    if (rc >= 0 && gather->left_out > 0)
        rc = ct_buf_printf(out, "and %u more nodes: give a rank to see its stack\n",
                           gather->left_out);
    return rc;
}
