/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round/member.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

/* ---- Table ------------------------------------------------------------------------------- */

void member_table_deinit(struct member_table *table)
{
    member_for_each(member, table) {
        ct_lease_end(&member->lease);
        ct_lease_end(&member->away);
        ct_list_remove(&member->news);
        free(member);
    }
    free(table->list);
    *table = (struct member_table){0};
}

/* The list is in the order of the ids, which is that of arrival. A member stays
 * where it is in memory until it is removed. This is the index of the first one
 * whose id is not below `id`. */
static size_t lower_bound(const struct member_table *table, uint64_t id)
{
    size_t low = 0, high = table->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (table->list[middle]->link.id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int grow(struct member_table *table)
{
    size_t capacity = table->capacity ? 2 * table->capacity : 8;
    struct member **list;

    if (table->count < table->capacity)
        return 0;
    list = ct_realloc_array(table->list, capacity, sizeof *list);
    if (!list)
        return -1;
    table->list = list;
    table->capacity = capacity;
    return 0;
}

struct member *member_add(struct member_table *table, const struct member_link *link)
{
    struct member *member;

    assert(table->count == 0 || table->list[table->count - 1]->link.id < link->id);
    if (grow(table) < 0 || !(member = ct_zalloc(sizeof *member)))
        return NULL;
    member->link = *link;
    member->step = -1;
    ct_list_init(&member->lease.node);
    ct_list_init(&member->away.node);
    ct_list_init(&member->news);
    table->list[table->count++] = member;
    return member;
}

/* A member is linked into two lease queues and into the list of news, all intrusive: it is unlinked
 * first. */
void member_remove(struct member_table *table, uint64_t id)
{
    struct member *member = member_find(table, id);
    size_t at = lower_bound(table, id);

    if (!member)
        return;
    ct_lease_end(&member->lease);
    ct_lease_end(&member->away);
    ct_list_remove(&member->news);
    free(member);
    table->count--;
    memmove(table->list + at, table->list + at + 1,
            (table->count - at) * sizeof(struct member *));
}

struct member *member_find(const struct member_table *table, uint64_t id)
{
    size_t at = lower_bound(table, id);

    if (at == table->count || table->list[at]->link.id != id)
        return NULL;
    return table->list[at];
}

bool member_is_in_world(const struct member *member)
{
    switch (member->state) {
    case MEMBER_RUNNING:
    case MEMBER_SUCCEEDED:
    case MEMBER_STOPPING:
    case MEMBER_LEAVING: return true;
    case MEMBER_CONNECTED:
    case MEMBER_READY:
    case MEMBER_LEFT: break;
    }
    return false;
}

const char *member_state_name(enum member_state state)
{
    static const char *const names[] = {
        [MEMBER_CONNECTED] = "connected", [MEMBER_READY] = "ready",
        [MEMBER_RUNNING] = "running",     [MEMBER_SUCCEEDED] = "succeeded",
        [MEMBER_STOPPING] = "stopping",   [MEMBER_LEAVING] = "leaving",
        [MEMBER_LEFT] = "left",
    };

    return names[state];
}

/* ---- World ------------------------------------------------------------------------------- */

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Who gets a place: survivors keep theirs, the lowest ranks first, because rank 0's node has the worker
 * store and its checkpoints; others in order of arrival. */
static int compare_claim(const void *left, const void *right)
{
    const struct member *a = *(struct member *const *)left;
    const struct member *b = *(struct member *const *)right;

    if (a->is_survivor != b->is_survivor)
        return a->is_survivor ? -1 : 1;
    if (a->is_survivor && a->start.group_rank != b->start.group_rank)
        return a->start.group_rank < b->start.group_rank ? -1 : 1;
    return compare_u64(a->link.id, b->link.id);
}

/* Who comes first: hints in their order, then the endpoint's host, then arrival. */
static int compare_order(const void *left, const void *right)
{
    const struct member *a = *(struct member *const *)left;
    const struct member *b = *(struct member *const *)right;
    bool a_is_hinted = a->join.node_rank_hint >= 0;
    bool b_is_hinted = b->join.node_rank_hint >= 0;

    if (a_is_hinted != b_is_hinted)
        return a_is_hinted ? -1 : 1;
    if (a_is_hinted && a->join.node_rank_hint != b->join.node_rank_hint)
        return a->join.node_rank_hint < b->join.node_rank_hint ? -1 : 1;
    if (!a->join.is_endpoint != !b->join.is_endpoint)
        return a->join.is_endpoint ? -1 : 1;
    return compare_u64(a->link.id, b->link.id);
}

/* `out` has room for the whole table: who gets a place is known once all claims are compared. */
size_t member_choose(const struct member_table *table, size_t max, struct member **out)
{
    size_t count = 0;

    member_for_each(it, table) {
        if (it->state == MEMBER_READY)
            out[count++] = it;
    }
    if (count > max) {
        qsort(out, count, sizeof *out, compare_claim);
        count = max;
    }
    if (count > 0)
        qsort(out, count, sizeof *out, compare_order);
    return count;
}

/* Every member has at least one role: without a list, the one that all its workers have. */
static int role_count(const struct member *member)
{
    return member->join.roles.count > 0 ? member->join.roles.count : 1;
}

static const char *role_name(const struct member *member, int number)
{
    return member->join.roles.count > 0 ? member->join.roles.list[number].name
                                        : member->join.role;
}

static uint32_t role_slots(const struct member *member, int number)
{
    return member->join.roles.count > 0 ? member->join.roles.list[number].slots
                                        : member->join.slots;
}

/* The place of the role `name` in `member`; NULL: not there. *slots gets its number of workers. */
static struct ct_role_place *find_role(struct member *member, const char *name,
                                       uint32_t *slots)
{
    for (int i = 0; i < role_count(member); i++)
        if (strcmp(role_name(member, i), name) == 0) {
            *slots = role_slots(member, i);
            return &member->start.roles[i];
        }
    return NULL;
}

/* Numbers the ranks of role `name` over all members from first[0] on. */
static void assign_role(struct member **first, size_t count, const char *name)
{
    struct ct_role_place *place;
    uint32_t size = 0;
    uint32_t slots;

    for (size_t i = 0; i < count; i++)
        if ((place = find_role(first[i], name, &slots))) {
            place->rank_base = size;
            size += slots;
        }
    for (size_t i = 0; i < count; i++)
        if ((place = find_role(first[i], name, &slots)))
            place->world_size = size;
}

static void assign_roles(struct member **world, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memset(world[i]->start.roles, 0, sizeof world[i]->start.roles);
    for (size_t i = 0; i < count; i++)
        for (int j = 0; j < role_count(world[i]); j++)
            if (world[i]->start.roles[j].world_size == 0) /* a new role name */
                assign_role(world + i, count - i, role_name(world[i], j));
    for (size_t i = 0; i < count; i++) {
        struct member_start *start = &world[i]->start;

        start->role_count = world[i]->join.roles.count;
        start->role_rank_base = start->roles[0].rank_base;
        start->role_world_size = start->roles[0].world_size;
    }
}

/* The ranks of a node are consecutive, from rank_base on: agents find a worker by the difference
 * (worker_group.c), and round_ranks.c finds the node of a rank. */
void member_assign_ranks(struct member **world, size_t count)
{
    uint32_t size = 0;

    for (size_t i = 0; i < count; i++) {
        world[i]->start.group_rank = (uint32_t)i;
        world[i]->start.group_world_size = (uint32_t)count;
        world[i]->start.rank_base = size;
        size += world[i]->join.slots;
    }
    for (size_t i = 0; i < count; i++)
        world[i]->start.world_size = size;
    assign_roles(world, count);
}
