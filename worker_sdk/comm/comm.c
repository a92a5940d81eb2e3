/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing of groups. */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/flight.h"
#include "worker_sdk/comm/group_private.h"
#include "worker_sdk/comm/host/host.h"

/* ---- Opening and closing ---------------------------------------------------------------- */

/* The i-th member. */
static int rank_at(const struct ct_backend_setup *setup, int i)
{
    const struct ct_group_place *place = setup->place;

    if (setup->options->ranks)
        return setup->options->ranks[i];
    return place->ranks ? place->ranks[i] : i;
}

/* A lost rank is refused here at once: it would never answer. */
static bool is_left(const struct ct_group_place *place, int rank)
{
    for (int i = 0; place->ranks && i < place->rank_count; i++)
        if (place->ranks[i] == rank)
            return true;
    return !place->ranks;
}

/* Fills setup with the members; `ranks` has room for world_size. */
static int find_members(struct ct_backend_setup *setup, int *ranks,
                        struct ctrun_error *err)
{
    const struct ct_group_place *place = setup->place;
    const struct ctrun_group_options *options = setup->options;

    setup->ranks = ranks;
    setup->me = -1;
    setup->size = options->ranks ? (int)options->rank_count
                  : place->ranks ? place->rank_count
                                 : place->world_size;
    for (int i = 0; i < setup->size; i++) {
        ranks[i] = rank_at(setup, i);
        /* Ascending, so that all members number each other alike and agree on the lowest without
         * communication. */
        if (ranks[i] < 0 || ranks[i] >= place->world_size ||
            (i && ranks[i] <= ranks[i - 1]))
            return ct_fail(
                err, -EINVAL,
                "open group: member %d is rank %d: ranks must ascend, from 0 to %d", i,
                ranks[i], place->world_size - 1);
        if (!is_left(place, ranks[i]))
            return ct_fail(err, CTRUN_E_PEER_LOST, "open group: rank %d is lost",
                           ranks[i]);
        if (ranks[i] == place->rank)
            setup->me = i;
    }
    return 0;
}

/* A new rank has no previous group, so a group with new ranks takes nothing from the old one. */
static void find_old(struct ct_backend_setup *setup,
                     const struct ct_backend_ops *backend)
{
    const struct ctrun_group *old = setup->place->old;

    if (!old || old->backend != backend || setup->place->takes_all)
        return;
    setup->old = old->self;
    setup->old_key = old->key;
    setup->old_ranks = old->ranks;
    setup->old_size = old->size;
}

static void find_parent(struct ct_backend_setup *setup)
{
    setup->parent = setup->place->parent ? setup->place->parent->self : NULL;
    setup->color = setup->place->color;
}

/* Whether a member is on another node: only then does the loss of another node matter to the
 * group. */
static bool leaves_node(const struct ct_backend_setup *setup)
{
    const struct ct_group_place *place = setup->place;

    return setup->ranks[0] < place->local_first ||
           setup->ranks[setup->size - 1] >= place->local_first + place->local_count;
}

static int check_numbers(const struct ctrun_group_options *options,
                         struct ctrun_error *err)
{
    if (options->min_ctas < 0 || options->max_ctas < 0 ||
        (options->max_ctas && options->min_ctas > options->max_ctas))
        return ct_fail(err, -EINVAL,
                       "open group: min_ctas is %d and max_ctas %d: must be 0 or more, "
                       "and min_ctas at most max_ctas",
                       options->min_ctas, options->max_ctas);
    if (options->shm != 0 && options->shm != 1)
        return ct_fail(err, -EINVAL, "open group: shm is %d: must be 0 or 1",
                       options->shm);
    return 0;
}

static int check_place(const struct ct_group_place *place,
                       const struct ctrun_group_options *options,
                       struct ctrun_error *err)
{
    if (place->world_size < 1 || place->world_size > CT_GROUP_MEMBERS_MAX)
        return ct_fail(err, -EINVAL,
                       "open group: the world has %d ranks, but groups work with 1 to "
                       "%d ranks",
                       place->world_size, CT_GROUP_MEMBERS_MAX);
    if (place->rank < 0 || place->rank >= place->world_size)
        return ct_fail(err, -EINVAL,
                       "open group: rank %d is not in a world of %d ranks", place->rank,
                       place->world_size);
    if (options->ranks &&
        (options->rank_count < 1 || options->rank_count > (size_t)place->world_size))
        return ct_fail(err, -EINVAL,
                       "open group: rank_count is %zu: must be 1 to %d, the ranks of "
                       "the world",
                       options->rank_count, place->world_size);
    return check_numbers(options, err);
}

static int find_backend(const struct ct_backend_ops **out, const char *name,
                        struct ctrun_error *err)
{
    if (!name || strcmp(name, "host") == 0) {
        *out = &ct_host_backend;
        return 0;
    }
    if (strcmp(name, "nccl") == 0)
        return ct_plugin_load(out, name, err);
    return ct_fail(err, -EINVAL,
                   "open group: there is no back end '%s': use host or nccl", name);
}

static void name_group(struct ctrun_group *group, const struct ct_group_place *place)
{
    if (place->key)
        (void)ct_copy(group->key, sizeof group->key, place->key);
    else if (place->epoch)
        (void)ct_format(group->key, sizeof group->key, "ctrun/group/%llu.%llu.%u.%llu",
                        (unsigned long long)place->generation,
                        (unsigned long long)place->restart_count, place->epoch,
                        (unsigned long long)(*place->sequence)++);
    else
        (void)ct_format(group->key, sizeof group->key, "ctrun/group/%llu.%llu.%llu",
                        (unsigned long long)place->generation,
                        (unsigned long long)place->restart_count,
                        (unsigned long long)(*place->sequence)++);
    (void)ct_copy(group->root, sizeof group->root, group->key);
}

/* The store of a place, and whether the back end has used it: from then on others may know of the
 * group. */
struct meeting {
    const struct ct_bootstrap *store;
    bool has_begun;
};

static int meet_set(void *context, const char *key, const void *value, size_t length,
                    uint64_t deadline_ms, struct ctrun_error *err)
{
    struct meeting *meeting = context;

    meeting->has_begun = true;
    return meeting->store->set(meeting->store->context, key, value, length, deadline_ms,
                               err);
}

static int meet_get(void *context, const char *key, void **value, size_t *length,
                    uint64_t deadline_ms, struct ctrun_error *err)
{
    struct meeting *meeting = context;

    meeting->has_begun = true;
    return meeting->store->get(meeting->store->context, key, value, length, deadline_ms,
                               err);
}

static int meet_wait(void *context, const char *key, uint64_t deadline_ms,
                     struct ctrun_error *err)
{
    struct meeting *meeting = context;

    meeting->has_begun = true;
    return meeting->store->wait(meeting->store->context, key, deadline_ms, err);
}

/* A group that nobody else can know of does not count: the call may be repeated, and then has the
 * number that the other members have. */
static int open_backend(struct ctrun_group *group, struct ct_backend_setup *setup,
                        struct ctrun_error *err)
{
    const struct ct_group_place *place = setup->place;
    struct meeting meeting = {.store = &place->bootstrap};
    struct ct_group_place there = *place;
    int rc;

    there.bootstrap = (struct ct_bootstrap){
        .context = &meeting, .set = meet_set, .get = meet_get, .wait = meet_wait};
    setup->place = &there;
    rc = group->backend->open(&group->self, setup, err);
    setup->place = place;
    if (rc < 0 && !place->key && !meeting.has_begun)
        (*place->sequence)--;
    return rc;
}

/* options may be NULL: then *all stays as it is. */
static int read_options(struct ctrun_group_options *all,
                        const struct ctrun_group_options *options, const char *name,
                        struct ctrun_error *err)
{
    const struct ctrun_group_options usual = CTRUN_GROUP_OPTIONS_INIT;
    int rc = 0;

    if (options && (rc = ct_sized_read(all, sizeof *all, options,
                                       "CTRUN_GROUP_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "%s: options", name), rc;
    if (all->timeout_ms == 0)
        all->timeout_ms = usual.timeout_ms;
    return 0;
}

static void fill(struct ctrun_group *group, const struct ct_backend_setup *setup)
{
    const struct ct_group_place *place = setup->place;

    group->size = setup->size;
    group->me = setup->me;
    group->rank = place->rank;
    group->owner = getpid();
    group->timeout_ms = setup->options->timeout_ms;
    group->stream = setup->options->stream;
    group->shm = setup->options->shm;
    group->min_ctas = setup->options->min_ctas;
    group->max_ctas = setup->options->max_ctas;
    group->epoch = place->epoch;
    group->is_whole = setup->size ==
                      (place->ranks ? place->rank_count : place->world_size);
    group->lacks_state = place->is_new;
    ct_list_init(&group->queue);
}

/* On success the group owns `ranks`; the back end borrows `setup` and what it points to during
 * open(). The lock and the condition come last, because free_all() does not undo them. */
int ct_group_open(struct ctrun_group **out, const struct ct_group_place *place,
                  const struct ctrun_group_options *options, struct ctrun_error *err)
{
    struct ctrun_group_options all = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_backend_setup setup = {.place = place, .options = &all};
    struct ctrun_group *group = NULL;
    int *ranks = NULL;
    int rc;

    *out = NULL;
    if ((rc = read_options(&all, options, "open group", err)) < 0 ||
        (rc = check_place(place, &all, err)) < 0)
        return rc;
    if (!(ranks = ct_zalloc_array((size_t)place->world_size, sizeof *ranks)) ||
        !(group = ct_zalloc(sizeof *group))) {
        rc = ct_fail(err, -ENOMEM, "open group: out of memory");
        goto free_all;
    }
    if ((rc = find_members(&setup, ranks, err)) < 0 ||
        (rc = find_backend(&group->backend, setup.options->backend, err)) < 0)
        goto free_all;
    /* Before non-members return: they count the group, too, so that the next group has the same key
     * on all ranks. */
    name_group(group, place);
    if (setup.me < 0)
        goto free_all; /* this rank is no member */
    setup.key = group->key;
    find_old(&setup, group->backend);
    find_parent(&setup);
    if (leaves_node(&setup) || place->losses.sees_ranks)
        setup.losses = place->losses;
    setup.losses.leaves_node = leaves_node(&setup);
    setup.deadline_ms = ct_deadline_ms(setup.options->timeout_ms);
    fill(group, &setup);
    if ((rc = open_backend(group, &setup, err)) < 0)
        goto free_all;
    pthread_mutex_init(&group->lock, NULL);
    pthread_mutex_init(&group->turn, NULL);
    ct_cond_init(&group->changed);
    group->flight = ct_flight_add_group(group->key, group->me, group->size);
    group->ranks = ranks;
    *out = group;
    return 0;
free_all:
    free(ranks);
    free(group);
    return rc;
}

/* The thread is joined before the back end is closed, because it may be using the back end. */
void ctrun_group_close(struct ctrun_group *group)
{
    if (!group || ct_group_is_inherited(group))
        return;
    ct_group_stop(group);
    group->backend->close(group->self);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->turn);
    pthread_mutex_destroy(&group->lock);
    free(group->batch);
    free(group->ranks);
    free(group);
}

int ctrun_group_rank(const struct ctrun_group *group)
{
    return group ? group->me : -EINVAL;
}

int ctrun_group_size(const struct ctrun_group *group)
{
    return group ? group->size : -EINVAL;
}

/* The only call that another thread may make while this group is in use. It does not enter the
 * group: it would then wait for the call that it is to end. */
void ctrun_group_abort(struct ctrun_group *group)
{
    if (group && !ct_group_is_inherited(group))
        ct_group_abort(group, "aborted the group");
}

int ctrun_group_alloc(struct ctrun_group *group, size_t bytes, void **out,
                      struct ctrun_error *err)
{
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (bytes == 0)
        return ct_fail(err, -EINVAL, "group alloc: 0 bytes");
    if ((rc = ct_group_enter(group, "group alloc", err)) < 0)
        return rc;
    ct_group_drain(group); /* alloc is a collective, in order with earlier calls */
    return ct_group_leave(
        group, group->backend->alloc(group->self, bytes,
                                     ct_deadline_ms(group->timeout_ms), out, err));
}

int ctrun_group_free(struct ctrun_group *group, void *at, struct ctrun_error *err)
{
    int rc;

    if (!at)
        return 0;
    if ((rc = ct_group_enter(group, "group free", err)) < 0)
        return rc;
    ct_group_drain(group); /* running calls may use the memory */
    if ((rc = group->backend->free(group->self, at)) < 0)
        rc = ct_fail(err, -EINVAL,
                     "group free: %p is not the beginning of memory of this group", at);
    return ct_group_leave(group, rc);
}

/* ---- Splitting -------------------------------------------------------------------------- */

/* What each member tells the others, as words on the wire. */
struct choice {
    int32_t color;
    int32_t can_split; /* the parent, by its back end */
};
enum {
    CHOICE_WORDS = sizeof(struct choice) / sizeof(int32_t)
};

/* The name of a part consists of the parent's name, the number of the split, which is the same on
 * all members, and the color. */
static int name_part(char key[CT_GROUP_KEY_MAX], const struct ctrun_group *parent,
                     int number, int color, struct ctrun_error *err)
{
    if (ct_format(key, CT_GROUP_KEY_MAX, "%s.%d-%d", parent->key, number, color) >= 0)
        return 0;
    return ct_fail(err, -ENAMETOOLONG,
                   "split: too many splits of splits: the name of the group exceeds "
                   "%d bytes; split a group that was split less often",
                   CT_GROUP_KEY_MAX - 1);
}

/* What only this member has wrong. Checked before the members meet: the parent lives, the others
 * wait, and the call may be repeated. */
static int check_part(const struct ctrun_group *parent, int color,
                      const struct ctrun_group_options *options,
                      struct ctrun_error *err)
{
    const struct ct_backend_ops *backend;
    char key[CT_GROUP_KEY_MAX];
    int rc;

    if (color == CTRUN_SPLIT_NONE)
        return 0;
    if ((rc = check_numbers(options, err)) < 0 ||
        (rc = find_backend(&backend, options->backend, err)) < 0)
        return rc;
    return name_part(key, parent, parent->split_count + 1, color, err);
}

static int open_part(struct ctrun_group **out, const struct ct_group_place *place,
                     struct ctrun_group *parent, const struct choice *choices,
                     const struct ctrun_group_options *given, struct ctrun_error *err)
{
    const int color = choices[parent->me].color;
    struct ctrun_group_options options = *given;
    struct ct_group_place there = *place;
    char key[CT_GROUP_KEY_MAX];
    size_t count = 0;
    int *ranks;
    int rc;

    if ((rc = name_part(key, parent, parent->split_count, color, err)) < 0)
        return rc;
    if (!(ranks = ct_zalloc_array((size_t)parent->size, sizeof *ranks)))
        return ct_fail(err, -ENOMEM, "split: out of memory");
    for (int i = 0; i < parent->size; i++)
        if (choices[i].color == color)
            ranks[count++] = parent->ranks[i];
    there.key = key;
    options.ranks = ranks;
    options.rank_count = count;
    rc = ct_group_open(out, &there, &options, err);
    free(ranks);
    return rc;
}

/* Whether the parts are made out of the parent: the same on all members. */
static bool all_can_split(const struct choice *choices, int size)
{
    for (int i = 0; i < size; i++)
        if (!choices[i].can_split)
            return false;
    return true;
}

/* This member will not repeat its part with the others: they would wait for it in the next call. */
static int end_parent(struct ctrun_group *parent, int rc, const struct ctrun_error *why,
                      struct ctrun_error *err)
{
    parent->backend->abort(parent->self, rc, why->text);
    return ct_fail(err, rc, "%s", why->text);
}

/* The parent is in use until all members have done their share. */
static int split_parent(struct ctrun_group **out, const struct ct_group_place *place,
                        struct ctrun_group *parent, const struct choice *choices,
                        const struct ctrun_group_options *options,
                        struct ctrun_error *err)
{
    const int color = choices[parent->me].color;
    struct ct_group_place there = *place;
    struct ctrun_error why;
    int rc;

    parent->backend->set_splitting(parent->self, true);
    there.parent = parent;
    there.color = color;
    if ((rc = ct_group_enter(parent, "split", &why)) == 0)
        rc = ct_group_leave(
            parent, color >= 0
                        ? open_part(out, &there, parent, choices, options, &why)
                        : parent->backend->split_none(
                              parent->self, ct_deadline_ms(options->timeout_ms), &why));
    if (rc == 0) {
        parent->backend->set_splitting(parent->self, false);
        return 0;
    }
    return end_parent(parent, rc, &why, err);
}

/* Asked for a part with the parent's back end. */
static bool can_split(const struct ctrun_group *parent,
                      const struct ctrun_group_options *options)
{
    return parent->backend->can_split && options->backend &&
           strcmp(options->backend, parent->backend->name) == 0 &&
           parent->backend->can_split(parent->self);
}

int ct_group_split(struct ctrun_group **out, const struct ct_group_place *place,
                   struct ctrun_group *parent, int color,
                   const struct ctrun_group_options *given, struct ctrun_error *err)
{
    struct ctrun_group_options options;
    struct choice own = {.color = color}, *choices;
    struct ct_call call = {
        .kind = CT_CALL_SPLIT, .in = &own, .count = CHOICE_WORDS, .dtype = CTRUN_I32};
    struct ctrun_error why;
    int rc;

    *out = NULL;
    if (color < CTRUN_SPLIT_NONE)
        return ct_fail(err, -EINVAL,
                       "split: color %d: must be 0 or more, or CTRUN_SPLIT_NONE (%d)",
                       color, CTRUN_SPLIT_NONE);
    if ((rc = ct_group_check(parent, "split", err)) < 0)
        return rc;
    options = ct_group_options(parent);
    if ((rc = read_options(&options, given, "split", err)) < 0 ||
        (rc = check_part(parent, color, &options, err)) < 0)
        return rc;
    if (!(choices = ct_zalloc_array((size_t)parent->size, sizeof *choices)))
        return ct_fail(err, -ENOMEM, "split: out of memory");
    own.can_split = can_split(parent, &options);
    call.out = choices;
    rc = ct_group_call(parent, &call, NULL, err);
    parent->split_count += rc == 0; /* else the parent has failed on all ranks */
    if (rc == 0 && all_can_split(choices, parent->size))
        rc = split_parent(out, place, parent, choices, &options, err);
    else if (rc == 0 && color >= 0 &&
             (rc = open_part(out, place, parent, choices, &options, &why)) < 0)
        rc = end_parent(parent, rc, &why, err);
    free(choices);
    return rc;
}
