/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of a session. The ranks that are left continue in the same process, and new ranks,
 * started in place of lost ones, join them.
 *
 * The agent decides which ranks continue, once all of its live ranks have asked: so there is one
 * answer, and by then no rank is in a collective of the previous world. Each decision has a number
 * (epoch), which is part of the names of groups, so that groups of different epochs never meet. If
 * a rank dies meanwhile, opening the group fails, and all live ranks ask again.
 *
 *     survivor   ── should_grow() at the same call of all, or a loss ──> asks ─┐
 *                                                                              ├─> one answer: the group of all,
 *     new rank   ── group_open(): asks, and waits ─────────────────────────────┘   named by the old one's name
 *
 * A new rank does not know the old group's name: survivors put it into the store, under the number
 * of the decision. */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/flight.h"
#include "worker_sdk/session/session_private.h"

static bool is_in(const struct ct_worker_world *world, int rank)
{
    return rank < CT_WORLD_BYTES * 8 && world->ranks[rank / 8] & 1u << rank % 8;
}

/* The call that asks the agent, for messages: a new rank asks when it opens its first group. */
static const char *name_call(const struct ctrun_session *session)
{
    return session->is_new ? "open group" : "shrink";
}

/* Resets the counters that all ranks must have equal: one rank may have been ahead. */
static int take_world(struct ctrun_session *session,
                      const struct ct_worker_world *world, struct ctrun_error *err)
{
    int *ranks;
    int count = 0;

    if (!is_in(world, session->rank))
        return ct_fail(err, CTRUN_E_CHANGED,
                       "%s: rank %d counts as lost: the others continue without it",
                       name_call(session), session->rank);
    ranks = ct_zalloc_array((size_t)session->world_size, sizeof *ranks);
    /* Before the first change: a call that failed for lack of memory may be repeated. */
    if (!ranks || ct_session_count_groups(session, world) < 0) {
        free(ranks);
        return ct_fail(err, -ENOMEM, "%s: out of memory", name_call(session));
    }
    for (int i = 0; i < session->world_size; i++)
        if (is_in(world, i))
            ranks[count++] = i;
    free(session->ranks);
    session->ranks = ranks;
    session->rank_count = count;
    session->epoch = world->epoch;
    session->losses = world->losses;
    ct_session_move_store(session, world);
    session->stop_point = session->grow_point = (struct ct_stop_point){0};
    session->has_met = session->has_regrouped = false;
    return 0;
}

static int ask_agent(struct ctrun_session *session, uint64_t deadline_ms,
                     struct ctrun_error *err)
{
    struct ct_worker_world world;
    int rc = ct_agent_socket_ask_world(&session->agent, session->epoch, deadline_ms,
                                       &world, err);

    if (rc < 0)
        return ct_wrap(err, "%s", name_call(session)), rc;
    if ((rc = take_world(session, &world, err)) < 0 || session->rank_count < 2)
        return rc;
    return ct_session_open_store(session, deadline_ms, err);
}

/* Ends the old group with the reason that we know, so that members still in a call of it return. */
static void end_old(struct ctrun_session *session, struct ctrun_group *old)
{
    struct ctrun_error why;
    char text[80];

    if (ct_agent_socket_check_ranks(&session->agent, session->losses, &why) < 0) {
        ct_group_end(old, why.code, why.text);
        return;
    }
    (void)ct_format(text, sizeof text,
                    "rank %d called ctrun_group_shrink() or ctrun_group_grow()",
                    session->rank);
    ct_group_end(old, CTRUN_E_ABORTED, text);
}

static bool is_undecided(struct ctrun_session *session, const struct ctrun_group *old)
{
    return ct_group_epoch(old) == session->epoch ||
           ct_agent_socket_check_ranks(&session->agent, session->losses, NULL) < 0;
}

static int check_shrink(const struct ctrun_session *session, struct ctrun_error *err)
{
    int rc = ct_session_check(session, "shrink", err);

    if (rc < 0)
        return rc;
    if (!session->survives)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "shrink: a group continues without a lost rank only if the "
                       "workers were started with ctrun --survive=sdk");
    return 0;
}

bool ctrun_may_shrink(const struct ctrun_session *session)
{
    return session && session->survives;
}

/* ---- Where new ranks find the others ------------------------------------------------------ */

static void name_root(char key[CT_BOOTSTRAP_KEY_MAX],
                      const struct ctrun_session *session)
{
    (void)ct_format(key, CT_BOOTSTRAP_KEY_MAX, "ctrun/world/%llu.%d.%u",
                    (unsigned long long)session->generation, session->restart_count,
                    session->epoch);
}

/* Stores the name of the first group of all ranks in this epoch; any of its members may write it
 * first. */
static int publish_root(struct ctrun_session *session, const struct ctrun_group *old,
                        struct ct_group_place *place, uint64_t deadline_ms,
                        struct ctrun_error *err)
{
    const char *root = ct_group_root(old);
    char key[CT_BOOTSTRAP_KEY_MAX];

    place->takes_all = session->grows && !session->has_met && ct_group_is_whole(old);
    if (!place->takes_all)
        return 0;
    name_root(key, session);
    return place->bootstrap.set(session, key, root, strlen(root), deadline_ms, err);
}

/* *root is the caller's to free. */
static int find_root(struct ctrun_session *session, struct ct_group_place *place,
                     char **root, uint64_t deadline_ms, struct ctrun_error *err)
{
    char key[CT_BOOTSTRAP_KEY_MAX];
    void *value;
    size_t length;
    int rc;

    name_root(key, session);
    if ((rc = place->bootstrap.get(session, key, &value, &length, deadline_ms, err)) <
        0)
        return rc;
    if (length >= CT_BOOTSTRAP_KEY_MAX) {
        free(value);
        return ct_fail(err, CTRUN_E_PROTOCOL,
                       "open group: key '%s' of the store has %zu bytes: no name of a "
                       "group is that long",
                       key, length);
    }
    *root = strndup(value, length);
    free(value);
    return *root ? 0 : ct_fail(err, -ENOMEM, "open group: out of memory");
}

static int meet_all(struct ctrun_group **out, struct ctrun_session *session,
                    const struct ctrun_group_options *options, uint64_t deadline_ms,
                    struct ctrun_error *err)
{
    struct ct_group_place place = ct_session_place(session);
    char *root;
    int rc = find_root(session, &place, &root, deadline_ms, err);

    if (rc < 0)
        return rc;
    rc = ct_group_join(out, &place, root, options, err);
    free(root);
    return rc;
}

static bool has_lost(int rc)
{
    return rc == CTRUN_E_PEER_LOST || rc == CTRUN_E_ABORTED;
}

static int join(struct ctrun_group **out, struct ctrun_session *session,
                const struct ctrun_group_options *given, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    uint64_t deadline_ms;
    int rc = given ? ct_sized_read(&options, sizeof options, given,
                                   "CTRUN_GROUP_OPTIONS_INIT", err)
                   : 0;

    if (rc < 0)
        return ct_wrap(err, "open group: options"), rc;
    if (options.ranks || (options.backend && strcmp(options.backend, "host") != 0))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "open group: this rank replaces a lost one: its first group "
                       "must have all ranks and the back end host");
    deadline_ms = ct_deadline_ms(options.timeout_ms);
    do {
        if ((rc = ask_agent(session, deadline_ms, err)) == 0 &&
            (rc = ct_session_open_store(session, deadline_ms, err)) == 0)
            rc = meet_all(out, session, &options, deadline_ms, err);
    } while (has_lost(rc) && ct_now_ms() < deadline_ms);
    if (rc == 0)
        session->is_new = false;
    return rc;
}

/* ---- Groups ----------------------------------------------------------------------------- */

/* Sends the record of calls once; the first group makes it. */
static void share_flight(struct ctrun_session *session)
{
    const int fd = session->has_flight ? -1 : ct_flight_open();

    session->has_flight = true;
    if (fd >= 0)
        ct_agent_socket_share_flight(&session->agent, fd);
}

int ctrun_group_open(struct ctrun_group **out, struct ctrun_session *session,
                     const struct ctrun_group_options *options, struct ctrun_error *err)
{
    struct ct_group_place place;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if ((rc = ct_session_check(session, "open group", err)) < 0)
        return rc;
    share_flight(session);
    if (session->is_new)
        return join(out, session, options, err);
    if (session->world_size > 1 &&
        (rc = ct_session_open_store(
             session, ct_deadline_ms(session->options.timeout_ms), err)) < 0)
        return rc;
    place = ct_session_place(session);
    return ct_group_open(out, &place, options, err);
}

int ctrun_group_split(struct ctrun_group **out, struct ctrun_session *session,
                      struct ctrun_group *parent, int color,
                      const struct ctrun_group_options *options,
                      struct ctrun_error *err)
{
    struct ct_group_place place;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if ((rc = ct_session_check(session, "split", err)) < 0)
        return rc;
    place = ct_session_place(session);
    return ct_group_split(out, &place, parent, color, options, err);
}

/* Only the first of several groups asks the agent, and asks again if a rank dies meanwhile: a rank
 * that asked for a later group would open that one, while the others, who have opened all of theirs,
 * begin with the first. Once a group was opened since the decision, all those from before it are
 * later ones. */
static bool is_first(const struct ctrun_session *session, const struct ctrun_group *old)
{
    return !session->has_regrouped || ct_group_epoch(old) == session->epoch;
}

/* Another rank has died after the decision, and `old` is not the first group. */
static int begin_again(struct ctrun_session *session, struct ctrun_error *err)
{
    session->has_regrouped = false;
    ct_wrap(err, "shrink: begin again with the first group");
    if (err)
        err->code = CTRUN_E_PEER_LOST;
    return CTRUN_E_PEER_LOST;
}

static int regroup_once(struct ctrun_group **out, struct ctrun_session *session,
                        struct ctrun_group *old,
                        const struct ctrun_group_options *options, uint64_t deadline_ms,
                        struct ctrun_error *err)
{
    struct ct_group_place place = ct_session_place(session);
    int rc = publish_root(session, old, &place, deadline_ms, err);

    if (rc == 0)
        rc = ct_group_shrink(out, &place, old, options, err);
    /* Only now: a caller that corrects its options and calls again must meet all, too. */
    session->has_met |= rc == 0 && place.takes_all;
    session->has_regrouped |= rc == 0;
    return rc;
}

static int regroup(struct ctrun_group **out, struct ctrun_session *session,
                   struct ctrun_group *old, const struct ctrun_group_options *options,
                   const char *name, struct ctrun_error *err)
{
    uint64_t deadline_ms;
    bool may_ask, must_ask;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if ((rc = ct_group_check(old, name, err)) < 0 ||
        (rc = check_shrink(session, err)) < 0)
        return rc;
    deadline_ms = ct_deadline_ms(ct_group_timeout_ms(old));
    may_ask = is_first(session, old);
    end_old(session, old);
    must_ask = is_undecided(session, old);
    for (;;) {
        if (must_ask)
            rc = may_ask ? ask_agent(session, deadline_ms, err)
                         : ct_agent_socket_check_ranks(&session->agent, session->losses,
                                                       err);
        if (rc == 0)
            rc = regroup_once(out, session, old, options, deadline_ms, err);
        if (has_lost(rc) && !may_ask)
            return begin_again(session, err);
        if (!has_lost(rc) || ct_now_ms() >= deadline_ms)
            return rc;
        must_ask = true; /* another rank has died since, or a peer met one that died */
    }
}

int ctrun_group_shrink(struct ctrun_group **out, struct ctrun_session *session,
                       struct ctrun_group *old,
                       const struct ctrun_group_options *options,
                       struct ctrun_error *err)
{
    return regroup(out, session, old, options, "shrink", err);
}

/* The same as ctrun_group_shrink(): the agent decides which ranks are left and which are new. */
int ctrun_group_grow(struct ctrun_group **out, struct ctrun_session *session,
                     struct ctrun_group *old, const struct ctrun_group_options *options,
                     struct ctrun_error *err)
{
    return regroup(out, session, old, options, "grow", err);
}
