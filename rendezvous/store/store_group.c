/* SPDX-License-Identifier: Apache-2.0 */
/* Stock torchrun agents share one key space on a server that outlives their runs (ctrund). Their
 * runs differ by the name of their common state:
 *
 *     /torch.rendezvous.ID             the state; an agent's first COMPARE_SET is on it
 *     /torch.rendezvous.ID.ROUND/...   the keys of one round
 *
 * An agent keeps one connection for life. So when the last connection that used this name is gone,
 * the run is over, its keys are freed, and the same run id may be used again.
 *
 * Each entry is in the list of its run. A finished run is removed from the table at once, and its
 * keys do not exist for clients any more; their memory (there may be a million keys) is freed in
 * pieces. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store_private.h"
#include "worker_sdk/base/alloc.h"

enum {
    SPLITS_MAX = 4 /* places in a name where ID may end; with more it is no run's */
};

static const char prefix[] = "/torch.rendezvous.";

struct store_group {
    struct store_map_node node; /* in store.groups; key: the name of the state */
    struct ct_list over;        /* in store.over */
    struct ct_list entries;     /* struct store_entry */
    size_t clients;
    size_t keys;
    size_t key_bytes;
    bool is_over;
    uint8_t key[];
};

static bool is_of_a_run(struct ct_tcpstore_blob key)
{
    return key.length >= sizeof prefix &&
           memcmp(key.data, prefix, sizeof prefix - 1) == 0;
}

static struct store_group *find(const struct store *store, struct ct_tcpstore_blob key)
{
    struct store_map_node *node = store_map_find(
        &store->groups, store_map_hash(&store->groups, key.data, key.length), key.data,
        key.length);

    return node ? (struct store_group *)(void *)((char *)node -
                                                 offsetof(struct store_group, node))
                : NULL;
}

static size_t group_bytes(const struct store_group *group)
{
    return sizeof *group + group->node.key_length;
}

static struct store_group *create(struct store *store, struct ct_tcpstore_blob key)
{
    struct store_group *group = ct_zalloc(sizeof *group + key.length);

    if (!group)
        return NULL;
    memcpy(group->key, key.data, key.length);
    ct_list_init(&group->over);
    ct_list_init(&group->entries);
    group->node = (struct store_map_node){
        group->key, key.length, store_map_hash(&store->groups, key.data, key.length)};
    if (store_map_add(&store->groups, &group->node) < 0) {
        free(group);
        return NULL;
    }
    store->data_bytes += group_bytes(group);
    return group;
}

static void tidy(struct store *store, struct store_group *group)
{
    if (group->clients > 0 || !ct_list_is_empty(&group->entries))
        return;
    if (!group->is_over)
        store_map_remove(&store->groups, &group->node);
    ct_list_remove(&group->over);
    store->data_bytes -= group_bytes(group);
    free(group);
}

/* ---- The run of an entry ------------------------------------------------------------------ */

/* Where ".digits/" begins after `at`; the length if there is none. */
static size_t next_split(struct ct_tcpstore_blob key, size_t at)
{
    for (; at < key.length; at++) {
        size_t end = at + 1;

        while (key.data[at] == '.' && end < key.length && key.data[end] >= '0' &&
               key.data[end] <= '9')
            end++;
        if (end > at + 1 && end < key.length && key.data[end] == '/')
            return at;
    }
    return key.length;
}

/* The group with the longest name that fits the key; if there is none, a new group with the
 * shortest possible name. */
static struct store_group *choose(struct store *store, struct ct_tcpstore_blob key)
{
    struct ct_tcpstore_blob name = {key.data, next_split(key, sizeof prefix)};
    struct ct_tcpstore_blob shortest = name;
    struct store_group *found = find(store, key);

    if (found)
        return found;
    for (int i = 0; i < SPLITS_MAX && name.length < key.length; i++) {
        struct store_group *group = find(store, name);

        found = group ? group : found;
        name.length = next_split(key, name.length + 1);
    }
    return found ? found : create(store, shortest);
}

void store_group_attach(struct store *store, struct store_entry *entry)
{
    const struct ct_tcpstore_blob key = {entry->key, entry->node.key_length};

    if (!is_of_a_run(key) || !(entry->group = choose(store, key)))
        return; /* without memory the key outlives its run */
    ct_list_add(&entry->group->entries, &entry->of_group);
}

void store_group_detach(struct store *store, struct store_entry *entry)
{
    struct store_group *group = entry->group;

    ct_list_remove(&entry->of_group);
    entry->group = NULL;
    if (group)
        tidy(store, group);
}

bool store_group_has_dropped(const struct store_entry *entry)
{
    return entry->group && entry->group->is_over;
}

void store_group_count(struct store *store, struct store_entry *entry, int count)
{
    const size_t bytes = entry->node.key_length;

    if (store_group_has_dropped(entry))
        return;                         /* removed together with its run */
    store->stats.keys += (size_t)count; /* undoes the wrap-around */
    store->key_bytes += (size_t)count * bytes;
    if (entry->group) {
        entry->group->keys += (size_t)count;
        entry->group->key_bytes += (size_t)count * bytes;
    }
}

/* ---- A run begins and ends --------------------------------------------------------------- */

int store_group_join(struct store_client *client, struct ct_tcpstore_blob key)
{
    struct store *store = client->store;
    struct store_group *group;

    if (client->group || !is_of_a_run(key))
        return 0;
    if (!(group = find(store, key)) && !(group = create(store, key)))
        return -ENOMEM;
    group->clients++;
    client->group = group;
    return 0;
}

void store_group_leave(struct store_client *client)
{
    struct store *store = client->store;
    struct store_group *group = client->group;

    client->group = NULL;
    if (!group || --group->clients > 0)
        return;
    store->stats.keys -= group->keys;
    store->key_bytes -= group->key_bytes;
    store_map_remove(&store->groups, &group->node);
    group->is_over = true;
    ct_list_add(&store->over, &group->over);
    tidy(store, group);
}

struct store_entry *store_group_find_dropped(const struct store *store)
{
    const struct store_group *group;

    if (ct_list_is_empty(&store->over))
        return NULL;
    group = ct_list_entry(store->over.next, struct store_group, over);
    return ct_list_entry(group->entries.next, struct store_entry, of_group);
}
