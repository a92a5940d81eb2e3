/* SPDX-License-Identifier: Apache-2.0 */
/* N clients of the TCPStore at 127.0.0.1:PORT, in one process: each connects, sets its key, adds
 * one to a counter and waits for a key, which one more connection sets when all were counted.
 * Prints one JSON object:
 *
 *     connect_ms     first connection to the last, requests sent
 *     barrier_ms     first connection to the last released WAIT
 *
 *     store_clients PORT N */
#include <err.h>

#include "tests/bench/swarm.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/tcpstore/codec.h"

enum {
    DEADLINE_MS = 60000,
    ADD_REPLY_BYTES = 8,
    WAIT_REPLY_BYTES = 1
};

static const struct ct_tcpstore_blob counter = {(const uint8_t *)"/counter", 8};
static const struct ct_tcpstore_blob released = {(const uint8_t *)"/released", 9};
static bool *is_counted; /* its ADD was answered */
static int waiting;

static void add(struct swarm *swarm, const struct ct_tcpstore_request *request,
                const struct ct_tcpstore_blob *list)
{
    if (ct_tcpstore_encode_request(&swarm->out, CT_TCPSTORE_D2, request, list) < 0)
        errx(1, "a request that cannot be written");
}

static void validate(struct swarm *swarm)
{
    const struct ct_tcpstore_request request = {.query = CT_TCPSTORE_VALIDATE,
                                                .nonce = CT_TCPSTORE_MAGIC};

    add(swarm, &request, NULL);
}

/* The last connection is the one that releases the others. */
static void begin(struct swarm *swarm, struct swarm_conn *conn)
{
    static const uint8_t value[32] = {'x'};
    char key[32];
    const int length = ct_format(key, sizeof key, "/client/%d", conn->index);
    const struct ct_tcpstore_request set = {
        .query = CT_TCPSTORE_SET,
        .key = {(const uint8_t *)key, (size_t)length},
        .value = {value, sizeof value}};
    const struct ct_tcpstore_request count = {
        .query = CT_TCPSTORE_ADD, .key = counter, .number = 1};
    const struct ct_tcpstore_request wait = {.query = CT_TCPSTORE_WAIT, .count = 1};

    validate(swarm);
    if (conn->index == swarm->count - 1) {
        swarm_send(swarm, conn);
        return;
    }
    add(swarm, &set, NULL);
    add(swarm, &count, NULL);
    add(swarm, &wait, &released);
    swarm_send(swarm, conn);
}

static void release(struct swarm *swarm, struct swarm_conn *conn)
{
    const struct ct_tcpstore_request set = {
        .query = CT_TCPSTORE_SET, .key = released, .value = released};

    add(swarm, &set, NULL);
    swarm_send(swarm, conn);
}

static void on_bytes(struct swarm *swarm, struct swarm_conn *conn)
{
    struct ct_reader reader;

    if (!is_counted[conn->index] && ct_buf_length(&conn->in) >= ADD_REPLY_BYTES) {
        ct_reader_init(&reader, ct_buf_data(&conn->in), ADD_REPLY_BYTES);
        is_counted[conn->index] = true;
        if (ct_read_u64(&reader) == (uint64_t)swarm->count - 1)
            release(swarm, &swarm->conns[swarm->count - 1]);
        ct_buf_consume(&conn->in, ADD_REPLY_BYTES);
    }
    if (is_counted[conn->index] && ct_buf_length(&conn->in) >= WAIT_REPLY_BYTES) {
        if (*ct_buf_data(&conn->in) != CT_TCPSTORE_READY)
            errx(1, "client %d: WAIT was answered with %d", conn->index,
                 *ct_buf_data(&conn->in));
        ct_buf_consume(&conn->in, WAIT_REPLY_BYTES);
        waiting--;
    }
}

int main(int argc, char **argv)
{
    struct swarm swarm = {.on_open = begin, .on_bytes = on_bytes};
    const int count = argc == 3 ? (int)strtol(argv[2], NULL, 10) : 0;
    double connect_ms;
    uint64_t began;

    if (count < 1)
        errx(2, "usage: store_clients PORT N");
    if (!(is_counted = calloc((size_t)count, sizeof *is_counted)))
        err(1, "store_clients");
    waiting = count;
    began = ct_now_ns();
    swarm_open(&swarm, (int)strtol(argv[1], NULL, 10), count + 1);
    connect_ms = (double)(ct_now_ns() - began) / 1e6;
    swarm_run(&swarm, &waiting, DEADLINE_MS, "the key that releases them");
    printf("{\"clients\": %d, \"connect_ms\": %.3f, \"barrier_ms\": %.3f}\n", count,
           connect_ms, (double)(ct_now_ns() - began) / 1e6);
    swarm_close(&swarm);
    free(is_counted);
    return 0;
}
