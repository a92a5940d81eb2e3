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
    ct_close(&crash->record);
    free(crash);
}

static struct crash *find_crash(const struct worker_socket *worker_socket, int rank,
                                uint64_t generation)
{
    ct_list_for_each(struct crash, crash, &worker_socket->crashes, node) {
        if (crash->rank == rank && crash->generation == generation)
            return crash;
    }
    return NULL;
}

/* A process may end before we notice, so its record is kept until it is taken. A worker may
 * start many children that crash, and a process may send a wrong rank: so only the last record
 * of a rank is kept, and no more records than connections are allowed. */
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
    else if (ct_list_count(&worker_socket->crashes) >= worker_socket->count_max)
        forget_crash(ct_list_entry(worker_socket->crashes.next, struct crash, node));
    ct_list_add(&worker_socket->crashes, &crash->node);
}

void worker_socket_forget_crashes(struct worker_socket *worker_socket)
{
    ct_list_for_each_safe(struct crash, crash, &worker_socket->crashes, node)
        forget_crash(crash);
}

/* Processes that are still connected are children of the worker, or the worker that has just
 * ended: the worker's record is kept last, so no other replaces it. */
static void keep_crashes(struct worker_socket *worker_socket, const struct crash *found,
                         pid_t pid)
{
    if (found && found->pid == pid)
        return;
    for (int pass = 0; pass <= 1; pass++)
        ct_list_for_each(struct connection, connection, &worker_socket->connections,
                         node) {
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
    ct_close(&flight->record);
    free(flight);
}

void worker_socket_forget_flights(struct worker_socket *worker_socket)
{
    while (!ct_list_is_empty(&worker_socket->flights))
        forget_flight(worker_socket, ct_list_entry(worker_socket->flights.next,
                                                   struct gone_flight, node));
}

/* The others continue without it. Its process may still live. */
static bool is_left_behind(const struct worker_socket *worker_socket, int rank)
{
    return worker_socket->world.epoch > 0 &&
           !worker_socket_is_in(&worker_socket->world, rank);
}

/* Keeps call records until there are as many as connections are allowed; later records are
 * dropped. */
void worker_socket_keep_flight(struct connection *connection)
{
    struct worker_socket *worker_socket = connection->worker_socket;
    struct gone_flight *flight;

    if (connection->flight < 0 || is_left_behind(worker_socket, connection->rank) ||
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
    ct_list_for_each(const struct connection, connection, &worker_socket->connections,
                     node) {
        if (connection->flight >= 0 && connection->generation == generation &&
            !is_left_behind(worker_socket, connection->rank))
            fn(context, connection->rank, connection->flight);
    }
    ct_list_for_each(const struct gone_flight, flight, &worker_socket->flights, node) {
        if (flight->generation == generation)
            fn(context, flight->rank, flight->record);
    }
}
