/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "agent/control/worker_socket_private.h"
#include "agent/postmortem/crash.h"
#include "worker_sdk/base/alloc.h"

/* The call record of a process that is gone. */
struct gone_flight {
    struct ct_list node;
    int rank;
    uint64_t generation;
    int record;
};

struct crash {
    struct ct_list node;
    int rank;
    uint64_t generation;
    pid_t pid;
    int record;
};

/* The record's descriptor is ours, unless worker_socket_take_crash() has passed it to its caller
 * (-1). */
static void forget_crash(struct crash *crash)
{
    ct_list_remove(&crash->node);
    worker_socket_close_fd(&crash->record);
    free(crash);
}

static struct crash *find_crash(const struct worker_socket *worker_socket, int rank,
                                uint64_t generation)
{
    struct ct_list *it;

    ct_list_for_each(it, &worker_socket->crashes) {
        struct crash *crash = ct_list_entry(it, struct crash, node);

        if (crash->rank == rank && crash->generation == generation)
            return crash;
    }
    return NULL;
}

static int count_crashes(const struct worker_socket *worker_socket)
{
    struct ct_list *it;
    int count = 0;

    ct_list_for_each(it, &worker_socket->crashes)
        count++;
    return count;
}

/* A process may end before we know of it, so its record is kept until it is taken. A worker may start many children
 * that crash, and a process may lie about its rank: only the last record of a rank counts, and there are no more of
 * them than may connect. */
void worker_socket_keep_crash(struct connection *connection)
{
    struct worker_socket *worker_socket = connection->worker_socket;
    struct crash *earlier;
    struct crash *crash;

    if (connection->crash_record < 0 || !crash_is_recorded(connection->crash_record) ||
        !(crash = ct_zalloc(sizeof *crash)))
        return;
    crash->rank = connection->rank;
    crash->generation = connection->generation;
    crash->pid = connection->pid;
    crash->record = connection->crash_record;
    connection->crash_record = -1;
    if ((earlier = find_crash(worker_socket, crash->rank, crash->generation)))
        forget_crash(earlier);
    else if (count_crashes(worker_socket) >= worker_socket->count_max)
        forget_crash(ct_list_entry(worker_socket->crashes.next, struct crash, node));
    ct_list_add(&worker_socket->crashes, &crash->node);
}

void worker_socket_forget_crashes(struct worker_socket *worker_socket)
{
    struct ct_list *it;
    struct ct_list *keep;

    ct_list_for_each_safe(it, keep, &worker_socket->crashes)
        forget_crash(ct_list_entry(it, struct crash, node));
}

/* Processes that are still connected are children of the worker, or the worker that has just
 * ended: the worker's record is kept last, so no other replaces it. */
static void keep_crashes(struct worker_socket *worker_socket, const struct crash *found,
                         pid_t pid)
{
    struct ct_list *it;

    if (found && found->pid == pid)
        return;
    for (int pass = 0; pass <= 1; pass++)
        ct_list_for_each(it, &worker_socket->connections) {
            struct connection *connection = ct_list_entry(it, struct connection, node);

            if ((connection->pid == pid) == (pass == 1))
                worker_socket_keep_crash(connection);
        }
}

int worker_socket_take_crash(struct worker_socket *worker_socket, int rank,
                             uint64_t generation, pid_t pid)
{
    struct crash *crash;
    int record;

    keep_crashes(worker_socket, find_crash(worker_socket, rank, generation), pid);
    if (!(crash = find_crash(worker_socket, rank, generation)))
        return -1;
    record = crash->record;
    crash->record = -1;
    forget_crash(crash);
    return record;
}

static void forget_flight(struct worker_socket *worker_socket,
                          struct gone_flight *flight)
{
    worker_socket->flight_count--;
    ct_list_remove(&flight->node);
    worker_socket_close_fd(&flight->record);
    free(flight);
}

void worker_socket_forget_flights(struct worker_socket *worker_socket)
{
    while (!ct_list_is_empty(&worker_socket->flights))
        forget_flight(worker_socket, ct_list_entry(worker_socket->flights.next,
                                                   struct gone_flight, node));
}

/* Keeps call records until there are as many as connections are allowed; later records are
 * dropped. */
void worker_socket_keep_flight(struct connection *connection)
{
    struct worker_socket *worker_socket = connection->worker_socket;
    struct gone_flight *flight;

    if (connection->flight < 0 ||
        worker_socket->flight_count >= worker_socket->count_max ||
        !(flight = ct_zalloc(sizeof *flight)))
        return;
    flight->rank = connection->rank;
    flight->generation = connection->generation;
    flight->record = connection->flight;
    connection->flight = -1;
    worker_socket->flight_count++;
    ct_list_add(&worker_socket->flights, &flight->node);
}

void worker_socket_each_flight(const struct worker_socket *worker_socket,
                               uint64_t generation, worker_socket_flight_fn *fn,
                               void *context)
{
    struct ct_list *it;

    ct_list_for_each(it, &worker_socket->connections) {
        const struct connection *connection = ct_list_entry(it, struct connection,
                                                            node);

        if (connection->flight >= 0 && connection->generation == generation)
            fn(context, connection->rank, connection->flight);
    }
    ct_list_for_each(it, &worker_socket->flights) {
        const struct gone_flight *flight = ct_list_entry(it, struct gone_flight, node);

        if (flight->generation == generation)
            fn(context, flight->rank, flight->record);
    }
}
