/* SPDX-License-Identifier: Apache-2.0 */
/* Whose call records are given when ranks are lost and the others continue in a new world. */
#include <fcntl.h>

#include "agent/control/worker_socket_private.h"
#include "tests/lib/test.h"

enum {
    GENERATION = 3
};

static struct worker_socket worker_socket;

static int begin(void **state)
{
    worker_socket = (struct worker_socket){.count_max = 8};
    ct_list_init(&worker_socket.connections);
    ct_list_init(&worker_socket.crashes);
    ct_list_init(&worker_socket.flights);
    return 0;
}

static int end(void **state)
{
    worker_socket_forget_flights(&worker_socket);
    return worker_socket.flight_count;
}

static void connect_rank(struct connection *connection, int rank)
{
    *connection = (struct connection){
        .worker_socket = &worker_socket,
        .is_known = true,
        .rank = rank,
        .generation = GENERATION,
        .flight = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    assert_true(connection->flight >= 0);
    ct_list_add(&worker_socket.connections, &connection->node);
}

static void disconnect(struct connection *connection)
{
    ct_list_remove(&connection->node);
    worker_socket_keep_flight(connection);
    ct_close(&connection->flight);
}

/* Ranks below `count` continue. */
static void send_world(uint32_t epoch, int count)
{
    worker_socket_send_world(
        &worker_socket, &(struct ct_worker_world){
                            .epoch = epoch, .ranks = {(uint8_t)((1 << count) - 1)}});
}

static void count_one(void *context, int rank, int fd)
{
    ((int *)context)[rank]++;
    assert_true(fd >= 0);
}

static void assert_records(int of_rank_0, int of_rank_1)
{
    int counts[2] = {0};

    worker_socket_each_flight(&worker_socket, GENERATION, count_one, counts);
    assert_int_equal(counts[0], of_rank_0);
    assert_int_equal(counts[1], of_rank_1);
}

TEST_AROUND(the_record_of_a_gone_process_is_kept, begin, end)
{
    struct connection connections[2];

    for (int i = 0; i <= 1; i++)
        connect_rank(&connections[i], i);
    disconnect(&connections[1]);
    assert_records(1, 1);
    send_world(1, 2);
    disconnect(&connections[0]); /* lost in this world */
    assert_records(1, 0);
}

TEST_AROUND(a_lost_rank_that_still_lives_does_not_come_back, begin, end)
{
    struct connection connections[2];

    for (int i = 0; i <= 1; i++)
        connect_rank(&connections[i], i);
    send_world(1, 1);
    assert_records(1, 0);
    disconnect(&connections[1]);
    assert_records(1, 0);
    disconnect(&connections[0]);
}

TEST_AROUND(a_new_rank_does_not_stand_beside_the_one_before, begin, end)
{
    struct connection connections[2], joined;

    for (int i = 0; i <= 1; i++)
        connect_rank(&connections[i], i);
    disconnect(&connections[1]);
    connect_rank(&joined, 1);
    send_world(1, 2);
    assert_records(1, 1);
    disconnect(&joined);
    assert_records(1, 1);
    disconnect(&connections[0]);
}
