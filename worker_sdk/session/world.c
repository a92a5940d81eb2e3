/* SPDX-License-Identifier: Apache-2.0 */
/* For libraries that have their own groups: returns the agent's decision which ranks continue
 * (shrink.c), and does nothing else. */
#include <errno.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/session/session_private.h"

bool ctrun_world_shrinks(struct ctrun_session *session)
{
    return session && session->survives &&
           ct_agent_socket_check_ranks(&session->agent, session->losses, NULL) < 0;
}

bool ctrun_world_changes(struct ctrun_session *session)
{
    return ctrun_world_shrinks(session) ||
           (session && session->survives &&
            ct_agent_socket_should_grow(&session->agent, session->epoch));
}

const char *ctrun_world_store(const struct ctrun_session *session, int *port)
{
    if (port)
        *port = session ? session->master_port : 0;
    return session ? session->master_addr : NULL;
}

/* Returns how many ranks continue; -1: more than there is room for. *is_in: this rank is one of
 * them. */
static int list_ranks(const struct ct_worker_world *world, int own, int *ranks, int max,
                      bool *is_in)
{
    int count = 0;

    *is_in = false;
    for (int i = 0; i < CT_WORLD_BYTES * 8; i++) {
        if (!(world->ranks[i / 8] & 1u << i % 8))
            continue;
        if (count == max)
            return -1;
        *is_in |= i == own;
        ranks[count++] = i;
    }
    return count;
}

int ctrun_world_next(struct ctrun_session *session, uint64_t timeout_ms, int *ranks,
                     int max, uint32_t *epoch, struct ctrun_error *err)
{
    struct ct_worker_world world;
    bool is_in;
    int count, rc;

    if (!session)
        return ct_fail_null(err, "session");
    if (!ranks || !epoch)
        return ct_fail_null(err, ranks ? "epoch" : "list of ranks");
    if (!session->survives)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "next world: ranks continue without a lost one only if the "
                       "workers were started with ctrun --survive=torch");
    if ((rc = ct_agent_socket_ask_world(&session->agent, session->epoch,
                                        ct_deadline_ms(timeout_ms), &world, err)) < 0)
        return ct_wrap(err, "next world"), rc;
    count = list_ranks(&world, session->rank, ranks, max, &is_in);
    if (count < 0) /* the answer stays: the next call gets it with more room */
        return ct_fail(
            err, -EINVAL,
            "next world: more ranks continue than the %d that there is room for", max);
    session->epoch = *epoch = world.epoch;
    session->losses = world.losses;
    ct_session_move_store(session, &world);
    /* all ranks count from zero again */
    session->stop_point = (struct ct_stop_point){0};
    if (!is_in)
        return ct_fail(
            err, CTRUN_E_CHANGED,
            "next world: rank %d counts as lost: the others continue without it",
            session->rank);
    session->is_new = false;
    return count;
}
