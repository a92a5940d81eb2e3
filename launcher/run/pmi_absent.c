/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/pmi_absent.h"

#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    NAME_MAX_BYTES = 32
};

static void format_name(char dst[NAME_MAX_BYTES], size_t node)
{
    (void)ct_format(dst, NAME_MAX_BYTES, "ctrun-node-%zu", node);
}

void pmi_absent_publish(struct pmi_absent *absent, struct pmi_client *client)
{
    char name[NAME_MAX_BYTES];

    if (absent->is_published || absent->is_failed)
        return;
    format_name(name, absent->node);
    absent->is_published =
        pmi_client_publish(client, name, absent->nodes->names[absent->node], NULL) == 0;
    absent->is_failed = !absent->is_published;
}

/* Returns the first node that came; `count` if none was found. Of many nodes, one that is not the
 * first looks no further. */
static size_t look(struct pmi_absent *absent, struct pmi_client *client)
{
    const size_t count = absent->nodes->count;
    size_t first = count;

    for (size_t i = 0; i < count && !absent->is_failed && client->is_in_fence; i++) {
        char name[NAME_MAX_BYTES];
        int rc = absent->came[i];

        format_name(name, i);
        if (!rc && (rc = pmi_client_look_up(client, name, NULL)) < 0)
            absent->is_failed = true;
        absent->came[i] = rc > 0;
        if (rc > 0 && first == count)
            first = i;
        if (first < absent->node && count > PMI_ABSENT_FEW_NODES)
            break;
    }
    return first;
}

/* Another task of our node has published its name. */
static bool is_covered(struct pmi_absent *absent, struct pmi_client *client)
{
    char name[NAME_MAX_BYTES];
    int rc;

    if (absent->is_first || absent->is_published || absent->is_failed)
        return false;
    format_name(name, absent->node);
    rc = pmi_client_look_up(client, name, NULL);
    absent->is_failed = rc < 0;
    return rc > 0;
}

bool pmi_absent_find(struct pmi_absent *absent, struct pmi_client *client,
                     char dst[CT_MISSING_MAX])
{
    const size_t count = absent->nodes->count;
    struct hostlist away = {0};
    size_t first = count;
    bool is_known;

    if (is_covered(absent, client)) {
        (void)ct_copy(dst, CT_MISSING_MAX, "(another task of this node says which)");
        return false;
    }
    pmi_absent_publish(absent, client);
    if (!absent->came && !(absent->came = ct_zalloc_array(count, sizeof *absent->came)))
        absent->is_failed = true;
    if (!absent->is_failed)
        first = look(absent, client);
    if (!absent->is_failed && first < absent->node && count > PMI_ABSENT_FEW_NODES) {
        (void)ct_format(dst, CT_MISSING_MAX, "(%s says which)",
                        absent->nodes->names[first]); /* cut is fine */
        return false;
    }
    if (absent->is_failed || !absent->came[absent->node]) {
        (void)ct_copy(dst, CT_MISSING_MAX,
                      "(not known: srun's PMI does not say who came)");
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (!absent->came[i])
            (void)hostlist_add(&away,
                               absent->nodes->names[i]); /* else it is not listed */
    is_known = away.count > 0;
    if (!is_known)
        (void)ct_copy(dst, CT_MISSING_MAX, "(a task of a node of which another came)");
    else
        (void)hostlist_format(&away, dst, CT_MISSING_MAX);
    hostlist_deinit(&away);
    return is_known;
}

void pmi_absent_deinit(struct pmi_absent *absent)
{
    free(absent->came);
}
