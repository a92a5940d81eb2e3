/* SPDX-License-Identifier: Apache-2.0 */
/* Load on a TCPStore at 127.0.0.1:PORT: CLIENTS connections keep DEPTH requests each under way
 * until OPS replies came; prints operations per second.
 *
 *     store_load PORT get|add|set CLIENTS DEPTH OPS
 *
 * `set` has no reply: each batch of sets is followed by one GETNUMKEYS, which is not counted. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/tcpstore/codec.h"

enum {
    CLIENTS_MAX = 1024,
    VALUE_BYTES = 32,
    READ_BYTES = 64 << 10,
    BATCH_MAX_BYTES = 1 << 20
};

struct load {
    struct ct_buf batch; /* DEPTH requests */
    size_t reply_bytes;  /* of one batch */
    long batches_left;   /* to be sent, all clients together */
    long batches_running;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void check(int rc)
{
    if (rc < 0) {
        errno = -rc;
        die("store_load");
    }
}

static int dial(int port)
{
    static const uint8_t validate[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (write(fd, validate, sizeof validate) != (ssize_t)sizeof validate)
        die("write");
    return fd;
}

static void send_all(int fd, const struct ct_buf *buf)
{
    const uint8_t *at = ct_buf_data(buf);
    size_t left = ct_buf_length(buf);

    while (left) {
        ssize_t n = write(fd, at, left);

        if (n <= 0)
            die("write");
        at += n;
        left -= (size_t)n;
    }
}

/* Fills the batch and makes sure that the key it reads exists. */
static void prepare(struct load *load, int port, const char *op, int depth)
{
    static const uint8_t value[VALUE_BYTES] = {'x'};
    const struct ct_tcpstore_blob key = {(const uint8_t *)"/load/key/17", 12};
    const struct ct_tcpstore_blob counter = {(const uint8_t *)"/load/counter", 13};
    const struct ct_tcpstore_request set = {
        .query = CT_TCPSTORE_SET, .key = key, .value = {value, sizeof value}};
    const struct ct_tcpstore_request get = {.query = CT_TCPSTORE_GET, .key = key};
    const struct ct_tcpstore_request add = {
        .query = CT_TCPSTORE_ADD, .key = counter, .number = 1};
    const struct ct_tcpstore_request count = {.query = CT_TCPSTORE_GETNUMKEYS};
    const struct ct_tcpstore_request *request = *op == 'g'   ? &get
                                                : *op == 'a' ? &add
                                                             : &set;
    uint8_t reply[8];
    int fd = dial(port);

    ct_buf_init(&load->batch, BATCH_MAX_BYTES);
    check(ct_tcpstore_encode_request(&load->batch, CT_TCPSTORE_D2, &set, NULL));
    check(ct_tcpstore_encode_request(&load->batch, CT_TCPSTORE_D2, &count, NULL));
    send_all(fd, &load->batch);
    if (recv(fd, reply, sizeof reply, MSG_WAITALL) != sizeof reply)
        die("read");
    close(fd);
    ct_buf_consume(&load->batch, ct_buf_length(&load->batch));
    for (int i = 0; i < depth; i++)
        check(ct_tcpstore_encode_request(&load->batch, CT_TCPSTORE_D2, request, NULL));
    if (request == &set)
        check(ct_tcpstore_encode_request(&load->batch, CT_TCPSTORE_D2, &count, NULL));
    load->reply_bytes = request == &get   ? (size_t)depth * (8 + VALUE_BYTES)
                        : request == &add ? (size_t)depth * 8
                                          : 8;
}

static void start_batch(struct load *load, int fd)
{
    if (!load->batches_left)
        return;
    load->batches_left--;
    load->batches_running++;
    send_all(fd, &load->batch);
}

static void run(struct load *load, struct pollfd *items, size_t *missing,
                nfds_t clients)
{
    static uint8_t bytes[READ_BYTES];

    for (nfds_t i = 0; i < clients; i++) {
        missing[i] = load->reply_bytes;
        start_batch(load, items[i].fd);
    }
    while (load->batches_running) {
        if (poll(items, clients, -1) < 0)
            die("poll");
        for (nfds_t i = 0; i < clients; i++) {
            ssize_t n;

            if (!items[i].revents)
                continue;
            n = recv(items[i].fd, bytes,
                     missing[i] < READ_BYTES ? missing[i] : READ_BYTES, 0);
            if (n <= 0)
                die("read");
            if (missing[i] -= (size_t)n)
                continue;
            missing[i] = load->reply_bytes;
            load->batches_running--;
            start_batch(load, items[i].fd);
        }
    }
}

int main(int argc, char **argv)
{
    static struct pollfd items[CLIENTS_MAX];
    static size_t missing[CLIENTS_MAX];
    struct load load = {0};
    uint64_t start;
    double ops;
    long clients;
    long depth;

    if (argc != 6)
        return 2;
    clients = strtol(argv[3], NULL, 10);
    depth = strtol(argv[4], NULL, 10);
    if (clients < 1 || clients > CLIENTS_MAX || depth < 1)
        return 2;
    prepare(&load, (int)strtol(argv[1], NULL, 10), argv[2], (int)depth);
    for (long i = 0; i < clients; i++)
        items[i] = (struct pollfd){.fd = dial((int)strtol(argv[1], NULL, 10)),
                                   .events = POLLIN};
    load.batches_left = strtol(argv[5], NULL, 10) / depth;
    start = ct_now_ns();
    ops = (double)(load.batches_left * depth);
    run(&load, items, missing, (nfds_t)clients);
    printf("%.0f\n", ops * 1e9 / (double)(ct_now_ns() - start));
    ct_buf_deinit(&load.batch);
    return 0;
}
