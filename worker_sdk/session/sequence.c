/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the groups that this process has begun to open, for their names: a name that was used in a
 * store leads to the ranks that met there. So a later session continues the count of an earlier one. */
#include <pthread.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/session/session_private.h"

/* Where names must differ: one store, one run, one decision who is left. */
struct sequence {
    struct sequence *next;
    char run[CT_HOST_MAX + 80];
    _Atomic uint64_t count;
};

/* Never freed: there is one for each world that this process was a member of. */
static struct sequence *sequences;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Lock held. NULL: out of memory. */
static struct sequence *get_sequence(const char *run)
{
    struct sequence *sequence = sequences;

    while (sequence && strcmp(sequence->run, run) != 0)
        sequence = sequence->next;
    if (sequence || !(sequence = ct_zalloc(sizeof *sequence)))
        return sequence;
    (void)ct_copy(sequence->run, sizeof sequence->run, run);
    sequence->next = sequences;
    sequences = sequence;
    return sequence;
}

int ct_session_count_groups(struct ctrun_session *session,
                            const struct ct_worker_world *world)
{
    const bool has_moved = world && world->store_port != 0;
    struct sequence *sequence;
    char run[sizeof sequence->run];

    (void)ct_format(run, sizeof run, "%s:%d rank %d of %llu.%d.%u",
                    has_moved ? world->store_addr : session->master_addr,
                    has_moved ? world->store_port : session->master_port, session->rank,
                    (unsigned long long)session->generation, session->restart_count,
                    world ? world->epoch : session->epoch);
    pthread_mutex_lock(&mutex);
    sequence = get_sequence(run);
    pthread_mutex_unlock(&mutex);
    if (!sequence)
        return -ENOMEM;
    session->group_sequence = &sequence->count;
    return 0;
}
