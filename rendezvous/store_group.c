/* SPDX-License-Identifier: Apache-2.0 */
/* Stock torchrun agents share one key space on a server that outlives their runs (ctrund). What
 * tells their runs apart is the name of their common state:
 *
 *     /torch.rendezvous.ID             the state; an agent's first COMPARE_SET is on it
 *     /torch.rendezvous.ID.ROUND/...   the keys of one round
 *
 * An agent keeps one connection for life. So when the last of those is gone that named this state,
 * the run is over, its keys are given back, and the same run id may be used again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store_private.h"
#include "worker_sdk/base/alloc.h"

static const char prefix[] = "/torch.rendezvous.";

struct store_group {
    struct ct_list link;
    size_t clients;
    size_t length;
    uint8_t key[]; /* of the state */
};

static bool begins_with(struct ct_tcpstore_blob key, const void *with, size_t length)
{
    return key.length >= length && memcmp(key.data, with, length) == 0;
}

static struct store_group *find(const struct store *store, struct ct_tcpstore_blob key)
{
    struct ct_list *it;

    ct_list_for_each(it, &store->groups) {
        struct store_group *group = ct_list_entry(it, struct store_group, link);

        if (group->length == key.length && begins_with(key, group->key, group->length))
            return group;
    }
    return NULL;
}

static struct store_group *create(struct store *store, struct ct_tcpstore_blob key)
{
    struct store_group *group = ct_zalloc(sizeof *group + key.length);

    if (!group)
        return NULL;
    group->length = key.length;
    memcpy(group->key, key.data, key.length);
    ct_list_add(&store->groups, &group->link);
    store->data_bytes += sizeof *group + key.length;
    return group;
}

int store_group_join(struct store_client *client, struct ct_tcpstore_blob key)
{
    struct store *store = client->store;
    struct store_group *group;

    if (client->group || key.length == sizeof prefix - 1 ||
        !begins_with(key, prefix, sizeof prefix - 1))
        return 0;
    if (!(group = find(store, key)) && !(group = create(store, key)))
        return -ENOMEM;
    group->clients++;
    client->group = group;
    return 0;
}

/* The state itself, or '.', decimal digits and '/' behind its name. */
static bool is_of(const struct store_group *group, const struct store_entry *entry)
{
    const struct ct_tcpstore_blob key = {entry->key, entry->node.key_length};
    size_t at = group->length;

    if (!begins_with(key, group->key, group->length))
        return false;
    if (key.length == at)
        return true;
    if (key.data[at++] != '.' || at == key.length || key.data[at] == '/')
        return false;
    while (at < key.length && key.data[at] >= '0' && key.data[at] <= '9')
        at++;
    return at < key.length && key.data[at] == '/';
}

void store_group_leave(struct store_client *client)
{
    struct store *store = client->store;
    struct store_group *group = client->group;
    struct ct_list *it, *keep;

    client->group = NULL;
    if (!group || --group->clients > 0)
        return;
    ct_list_for_each_safe(it, keep, &store->entries) {
        struct store_entry *entry = ct_list_entry(it, struct store_entry, link);

        if (entry->has_value && is_of(group, entry))
            store_entry_clear(store, entry);
    }
    ct_list_remove(&group->link);
    store->data_bytes -= sizeof *group + group->length;
    free(group);
}
