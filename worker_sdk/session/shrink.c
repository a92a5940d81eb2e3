/* SPDX-License-Identifier: Apache-2.0 */
/* Who is left goes on in the same process.
 *
 * Who that is the agent decides, once all of its ranks that live have asked: so there is one answer, and by the
 * time it comes nobody is in a collective of the world before. Each decision has a number, and
 * groups have it in their names; nothing of an earlier one is ever met by a later one. A rank that dies on
 * the way makes the meeting fail, and all that live ask again. */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/session/session_private.h"

static bool is_in(const struct ct_worker_world *world, int rank)
{
    return rank < CT_WORLD_BYTES * 8 && world->ranks[rank / 8] & 1u << rank % 8;
}

/* What ranks count together, they count from zero again: one of them may have been further. */
static int take_world(struct ctrun_session *session,
                      const struct ct_worker_world *world, struct ctrun_error *err)
{
    int *ranks;

    if (!is_in(world, session->rank))
        return ct_fail(err, CTRUN_E_CHANGED,
                       "shrink: rank %d counts as lost: the others go on without it",
                       session->rank);
    if (!(ranks = ct_zalloc_array((size_t)session->world_size, sizeof *ranks)))
        return ct_fail(err, -ENOMEM, "shrink: no memory");
    session->rank_count = 0;
    for (int i = 0; i < session->world_size; i++)
        if (is_in(world, i))
            ranks[session->rank_count++] = i;
    free(session->ranks);
    session->ranks = ranks;
    session->epoch = world->epoch;
    session->losses = world->losses;
    session->group_sequence = 0;
    session->stop_point = (struct ct_stop_point){0};
    return 0;
}

static int ask_agent(struct ctrun_session *session, uint64_t deadline_ms,
                     struct ctrun_error *err)
{
    struct ct_worker_world world;
    int rc = ct_agent_socket_ask_world(&session->agent, session->epoch, deadline_ms,
                                       &world, err);

    if (rc < 0)
        return (void)ct_wrap(err, "shrink"), rc;
    return take_world(session, &world, err);
}

/* Members that are still in a call of it get out, with the reason that we know. */
static void end_old(struct ctrun_session *session, struct ctrun_group *old)
{
    struct ctrun_error why;
    char text[64];

    if (ct_agent_socket_check_ranks(&session->agent, session->losses, &why) < 0) {
        ct_group_end(old, why.code, why.text);
        return;
    }
    (void)ct_format(text, sizeof text, "rank %d called ctrun_group_shrink()",
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
    if (!session->survives)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "shrink: nobody keeps this process when a rank is lost: start "
                       "it with ctrun --survive=sdk");
    return 0;
}

bool ctrun_may_shrink(const struct ctrun_session *session)
{
    return session->survives;
}

int ctrun_group_shrink(struct ctrun_group **out, struct ctrun_session *session,
                       struct ctrun_group *old,
                       const struct ctrun_group_options *options,
                       struct ctrun_error *err)
{
    const uint64_t deadline_ms = ct_deadline_ms(ct_group_timeout_ms(old));
    int rc = check_shrink(session, err);
    bool must_ask;

    *out = NULL;
    if (rc < 0)
        return rc;
    end_old(session, old);
    must_ask = is_undecided(session, old);
    for (;;) {
        struct ct_group_place place;

        if (must_ask && (rc = ask_agent(session, deadline_ms, err)) < 0)
            return rc;
        place = ct_session_place(session);
        rc = ct_group_shrink(out, &place, old, options, err);
        if ((rc != CTRUN_E_PEER_LOST && rc != CTRUN_E_ABORTED) ||
            ct_now_ms() >= deadline_ms)
            return rc;
        must_ask = true; /* somebody has died since, or has met one who did */
    }
}
