/* SPDX-License-Identifier: Apache-2.0 */
/* N agents against the rendezvous server at 127.0.0.1:PORT, in one process. Prints one JSON object:
 *
 *     join_ms       first connection to the last START
 *     failure_ms    one agent's FAILURE to the last STOP
 *     rejoin_ms     that FAILURE to the last START of the next round
 *     loss_ms       a connection closed without a message to the last START of the N - 1 others
 *     messages      that all agents got, without those that come by the clock: acknowledgements and
 *                   WAITING
 *     ranks         different group ranks in the first round
 *
 *     agents PORT N RUN          join, failure, rejoin
 *     agents PORT N RUN lose     join, loss; leases and heartbeats are the server's defaults */
#include <err.h>

#include "tests/bench/swarm.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/message.h"

enum {
    DEADLINE_MS = 60000,
    HEARTBEAT_MS = 1000,
};

static struct ct_message in;
static union ct_message_room room;
static const char *run_id;
static bool will_lose;
static struct {
    int waiting; /* agents that have not got `wanted` of `generation` */
    enum ct_message_kind wanted;
    uint64_t generation;
    long messages;
    uint64_t *stopped; /* of each agent: the generation of its last STOPPED */
    bool *is_rank;
    int ranks;
} seen;

static void say(struct swarm *swarm, struct swarm_conn *conn, enum ct_message_kind kind,
                const void *body)
{
    const struct ct_message out = {kind, .body = body};

    if (ct_message_encode(&swarm->out, &out) < 0)
        errx(1, "a message that cannot be written");
    swarm_send(swarm, conn);
}

static void hello(struct swarm *swarm, struct swarm_conn *conn)
{
    struct ct_hello out = {.pid = 1};

    (void)ct_copy(out.run_id, sizeof out.run_id, run_id);
    (void)ct_format(out.host, sizeof out.host, "n%d", conn->index);
    out.max_nodes = (uint32_t)swarm->count;
    out.min_nodes = out.max_nodes - will_lose;
    out.last_call_ms = 30000; /* as torchrun */
    out.max_restarts = 1;
    out.lost_after_ms = will_lose ? 0 : DEADLINE_MS; /* without heartbeats */
    say(swarm, conn, CT_MESSAGE_HELLO, &out);
}

static void join(struct swarm *swarm, struct swarm_conn *conn)
{
    const struct ct_join out = {
        .slots = 8, .node_rank_hint = -1, .store_port = 29500, .role = "default"};

    say(swarm, conn, CT_MESSAGE_JOIN, &out);
}

/* As an agent whose workers are gone at once. The decision that follows an UNDECIDED one changes
 * nothing then: one answer a round. */
static void answer_stop(struct swarm *swarm, struct swarm_conn *conn)
{
    const uint64_t generation = in.stop->generation;
    const struct ct_stopping stopping = {.generation = generation};
    const struct ct_stopped stopped = {.generation = generation};

    if (seen.stopped[conn->index] == generation)
        return;
    seen.stopped[conn->index] = generation;
    say(swarm, conn, CT_MESSAGE_STOPPING, &stopping);
    say(swarm, conn, CT_MESSAGE_STOPPED, &stopped);
    join(swarm, conn);
}

static void on_start(const struct ct_start *start, int count)
{
    const int expected = count - (will_lose && start->generation > 1);

    if (start->group_world_size != (uint32_t)expected ||
        start->group_rank >= (uint32_t)expected)
        errx(1, "group rank %u of %u", start->group_rank, start->group_world_size);
    if (start->generation != 1 || seen.is_rank[start->group_rank])
        return;
    seen.is_rank[start->group_rank] = true;
    seen.ranks++;
}

static void on_message(struct swarm *swarm, struct swarm_conn *conn)
{
    if (in.kind == CT_MESSAGE_WELCOME)
        join(swarm, conn);
    else if (in.kind == CT_MESSAGE_START)
        on_start(in.start, swarm->count);
    else if (in.kind == CT_MESSAGE_REFUSE)
        errx(1, "agent %d: %s", conn->index, in.refuse->text);
    seen.messages += in.kind != CT_MESSAGE_HEARTBEAT_ACK &&
                     in.kind != CT_MESSAGE_WAITING;
    if (in.kind == seen.wanted &&
        (in.kind == CT_MESSAGE_START ? in.start->generation : in.stop->generation) ==
            seen.generation)
        seen.waiting--;
    if (in.kind == CT_MESSAGE_STOP)
        answer_stop(swarm, conn);
}

static void on_bytes(struct swarm *swarm, struct swarm_conn *conn)
{
    struct ct_frame frame;
    int taken;

    while ((taken = ct_frame_decode(ct_buf_data(&conn->in), ct_buf_length(&conn->in),
                                    &frame)) > 0) {
        if (ct_message_decode(&frame, &in, &room, sizeof room) < 0)
            errx(1, "agent %d: a message that cannot be read", conn->index);
        ct_buf_consume(&conn->in, (size_t)taken);
        on_message(swarm, conn);
    }
    if (taken < 0)
        errx(1, "agent %d: bytes that are no message", conn->index);
}

static void expect(int count, enum ct_message_kind kind, uint64_t generation)
{
    seen.wanted = kind;
    seen.generation = generation;
    seen.waiting = count;
}

static void fail(struct swarm *swarm)
{
    const struct ct_failure out = {
        .generation = 1, .cause = CT_CAUSE_EXIT, .code = 1, .pid = 1, .step = -1};

    say(swarm, &swarm->conns[swarm->count / 2], CT_MESSAGE_FAILURE, &out);
}

static double ms_since(uint64_t ns)
{
    return (double)(ct_now_ns() - ns) / 1e6;
}

/* Milliseconds from the first connection to the last START. */
static double measure_join(struct swarm *swarm, int port, int count)
{
    const uint64_t began = ct_now_ns();

    expect(count, CT_MESSAGE_START, 1);
    swarm_open(swarm, port, count);
    swarm_run(swarm, &seen.waiting, DEADLINE_MS, "START");
    return ms_since(began);
}

static void measure_failure(struct swarm *swarm)
{
    const uint64_t began = ct_now_ns();

    expect(swarm->count, CT_MESSAGE_STOP, 1);
    fail(swarm);
    swarm_run(swarm, &seen.waiting, DEADLINE_MS, "STOP");
    printf("\"failure_ms\": %.3f, ", ms_since(began));
    expect(swarm->count, CT_MESSAGE_START, 2);
    swarm_run(swarm, &seen.waiting, DEADLINE_MS, "the next START");
    printf("\"rejoin_ms\": %.3f, ", ms_since(began));
}

static void beat(struct swarm *swarm, uint64_t sequence)
{
    const struct ct_heartbeat out = {.generation = 1, .sequence = sequence, .step = -1};

    for (int i = 0; i < swarm->count; i++)
        if (swarm->conns[i].fd >= 0)
            say(swarm, &swarm->conns[i], CT_MESSAGE_HEARTBEAT, &out);
}

static void measure_loss(struct swarm *swarm)
{
    const uint64_t began = ct_now_ns();

    expect(swarm->count - 1, CT_MESSAGE_START, 2);
    swarm_drop(&swarm->conns[swarm->count - 1]);
    for (uint64_t i = 1; seen.waiting > 0; i++) {
        if (i * HEARTBEAT_MS > DEADLINE_MS)
            errx(1, "%d agents wait for a round without the lost one", seen.waiting);
        beat(swarm, i);
        swarm_idle(swarm, &seen.waiting, HEARTBEAT_MS);
    }
    printf("\"loss_ms\": %.3f, ", ms_since(began));
}

int main(int argc, char **argv)
{
    struct swarm swarm = {.on_open = hello, .on_bytes = on_bytes};
    const int count = argc >= 4 ? (int)strtol(argv[2], NULL, 10) : 0;
    double join_ms;

    if (count < 1 || argc > 5)
        errx(2, "usage: agents PORT N RUN [lose]");
    run_id = argv[3];
    will_lose = argc == 5;
    seen.is_rank = calloc((size_t)count, sizeof *seen.is_rank);
    seen.stopped = calloc((size_t)count, sizeof *seen.stopped);
    if (!seen.is_rank || !seen.stopped)
        err(1, "agents");
    join_ms = measure_join(&swarm, (int)strtol(argv[1], NULL, 10), count);
    printf("{\"agents\": %d, \"join_ms\": %.3f, ", count, join_ms);
    if (will_lose)
        measure_loss(&swarm);
    else
        measure_failure(&swarm);
    printf("\"messages\": %ld, \"ranks\": %d}\n", seen.messages, seen.ranks);
    swarm_close(&swarm);
    free(seen.stopped);
    free(seen.is_rank);
    return 0;
}
