/* SPDX-License-Identifier: Apache-2.0 */
/* The server as ctrun embeds it: one run, a thread of its own, calls from other threads. What
 * ctrund sends and receives is tested in tests/server. */
#include <errno.h>
#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include "rendezvous/journal/journal.h"
#include "rendezvous/server/server.h"
#include "rendezvous/server/store_port.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/message.h"

enum {
    DEADLINE_S = 30
};

static uint16_t listen_somewhere(struct server *server)
{
    struct ct_addr addr;
    struct ctrun_error err;
    uint16_t port = 0;

    assert_int_equal(ct_addr_parse("127.0.0.1", 0, &addr), 0);
    assert_int_equal(server_listen(server, &addr, &port, &err), 0);
    assert_true(port > 0);
    return port;
}

static struct server *start_server(const struct server_options *options, uint16_t *port)
{
    struct ctrun_error err;
    struct server *server;

    assert_int_equal(server_create(&server, options, &err), 0);
    assert_int_equal(server_start(server, &err), 0);
    *port = listen_somewhere(server);
    return server;
}

static int dial(uint16_t port)
{
    struct timeval limit = {.tv_sec = DEADLINE_S};
    struct ct_addr addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(ct_addr_parse("127.0.0.1", port, &addr), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(connect(fd, &addr.any, addr.length), 0);
    return fd;
}

static void send_bytes(int fd, const void *data, size_t length)
{
    assert_int_equal(send(fd, data, length, MSG_NOSIGNAL), (ssize_t)length);
}

static void send_message(int fd, enum ct_message_kind kind, const void *body)
{
    const struct ct_message message = {kind, .body = body};
    struct ct_buf buf;

    ct_buf_init(&buf, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
    assert_int_equal(ct_message_encode(&buf, &message), 0);
    send_bytes(fd, ct_buf_data(&buf), ct_buf_length(&buf));
    ct_buf_deinit(&buf);
}

/* Reads whole messages until one of this kind. */
static void expect(int fd, enum ct_message_kind kind, struct ct_message *out)
{
    static union ct_message_room room;
    uint8_t data[CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES];

    do {
        struct ct_frame frame;
        size_t length = CT_FRAME_HEADER_BYTES;

        assert_int_equal(recv(fd, data, length, MSG_WAITALL), (ssize_t)length);
        length = data[4] | (size_t)data[5] << 8;
        if (length > 0)
            assert_int_equal(
                recv(fd, data + CT_FRAME_HEADER_BYTES, length, MSG_WAITALL),
                (ssize_t)length);
        assert_true(ct_frame_decode(data, CT_FRAME_HEADER_BYTES + length, &frame) > 0);
        assert_int_equal(ct_message_decode(&frame, out, &room, sizeof room), 0);
    } while (out->kind != kind);
}

static void hello(int fd, const char *run_id, uint32_t max_restarts)
{
    struct ct_hello hello = {.host = "n",
                             .min_nodes = 1,
                             .max_nodes = 1,
                             .max_restarts = max_restarts,
                             .lost_after_ms = 60000};

    assert_int_equal(ct_copy(hello.run_id, CT_RUN_ID_MAX, run_id), 0);
    send_message(fd, CT_MESSAGE_HELLO, &hello);
}

static void join(int fd)
{
    const struct ct_join join = {
        .slots = 1, .store_port = 1, .role = "default", .local_addr = "head"};

    send_message(fd, CT_MESSAGE_JOIN, &join);
}

/* ---- Tests ------------------------------------------------------------------------------- */

TEST(a_server_that_never_ran_is_destroyed_clean)
{
    struct ctrun_error err;
    struct server *server;
    uint64_t store;
    uint16_t port;

    assert_int_equal(server_create(&server, NULL, &err), 0);
    listen_somewhere(server);
    assert_int_equal(server_open_store(server, &port, &store, &err), 0);
    server_destroy(server);
    server_destroy(NULL);
}

TEST(another_run_is_refused_naming_both)
{
    const struct server_options options = {.run_id = "mine"};
    struct ct_message message;
    uint16_t port;
    struct server *server = start_server(&options, &port);
    int fd = dial(port);

    hello(fd, "yours", 0);
    expect(fd, CT_MESSAGE_REFUSE, &message);
    assert_int_equal(message.refuse->code, CTRUN_E_WRONG_RUN);
    assert_non_null(strstr(message.refuse->text, "'mine'"));
    assert_non_null(strstr(message.refuse->text, "'yours'"));
    close(fd);
    server_destroy(server);
}

TEST(a_busy_port_is_reported_with_its_owner)
{
    struct ctrun_error err;
    struct ct_addr addr;
    uint16_t port, again;
    struct server *server = start_server(NULL, &port);
    char pid[32];

    assert_int_equal(ct_addr_parse("127.0.0.1", port, &addr), 0);
    assert_int_equal(server_listen(server, &addr, &again, &err), CTRUN_E_PORT_BUSY);
    assert_true(ct_format(pid, sizeof pid, "pid %d (", (int)getpid()) > 0);
    assert_non_null(strstr(err.text, pid));
    server_destroy(server);
}

TEST(a_port_that_a_connection_uses_is_not_blamed_on_a_process)
{
    struct ctrun_error err;
    struct ct_addr addr;
    char begin[64];
    uint16_t port, again;
    struct server *server = start_server(NULL, &port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(ct_addr_parse("127.0.0.1", 0, &addr), 0);
    assert_int_equal(bind(fd, &addr.any, addr.length), 0); /* without listen() */
    assert_int_equal(getsockname(fd, &addr.any, &addr.length), 0);
    assert_int_equal(server_listen(server, &addr, &again, &err), CTRUN_E_PORT_BUSY);
    assert_true(ct_format(begin, sizeof begin,
                          "port %d is taken: no process listens now: ",
                          ct_addr_port(&addr)) > 0);
    assert_non_null(strstr(err.text, begin));
    close(fd);
    server_destroy(server);
}

/* TCPStore of torch >= 2.2: CHECK of key "k". 0: the key exists, 1: it does not. */
static uint8_t check_key(int fd)
{
    static const uint8_t query[] = {0x05, 1, 0, 0, 0, 0, 0, 0, 0,
                                    1,    0, 0, 0, 0, 0, 0, 0, 'k'};
    uint8_t reply;

    send_bytes(fd, query, sizeof query);
    assert_int_equal(recv(fd, &reply, 1, MSG_WAITALL), 1);
    return reply;
}

static int dial_store(uint16_t port)
{
    static const uint8_t validate[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    int fd = dial(port);

    send_bytes(fd, validate, sizeof validate);
    return fd;
}

static void set_key(int fd)
{
    static const uint8_t set[] = {0x01, 1, 0, 0, 0, 0, 0, 0, 0,  'k',
                                  1,    0, 0, 0, 0, 0, 0, 0, 'v'};

    send_bytes(fd, set, sizeof set);
    assert_int_equal(check_key(fd), 0);
}

TEST(the_static_endpoint_is_a_new_empty_store_for_every_world)
{
    const struct server_options options = {.run_id = "r", .endpoint_is_store = true};
    struct ct_message message;
    uint16_t port;
    struct server *server = start_server(&options, &port);
    int agent = dial(port), old, new;
    uint8_t byte;

    hello(agent, "r", 1);
    join(agent);
    expect(agent, CT_MESSAGE_START, &message);
    assert_int_equal(message.start->master_port, port);
    assert_string_equal(message.start->master_addr, "head");
    old = dial_store(port);
    set_key(old);

    send_message(agent, CT_MESSAGE_FAILURE,
                 &(struct ct_failure){.generation = 1, .cause = CT_CAUSE_EXIT});
    expect(agent, CT_MESSAGE_STOP, &message);
    send_message(agent, CT_MESSAGE_STOPPED, &(struct ct_stopped){.generation = 1});
    join(agent);
    expect(agent, CT_MESSAGE_START, &message);
    assert_int_equal(message.start->generation, 2);
    assert_true(recv(old, &byte, 1, 0) <= 0); /* its store was closed */
    new = dial_store(port);
    assert_int_equal(check_key(new), 1);
    close(agent);
    close(old);
    close(new);
    server_destroy(server);
}

/* ---- Journal ----------------------------------------------------------------------------- */

struct full_journal {
    struct journal_sink sink;
    int rc;           /* for a batch that is neither WHOLE nor END */
    unsigned refused; /* such batches */
    unsigned whole;
};

static int store_whole(void *context, const char *run_id, unsigned flags,
                       const uint8_t *batch, size_t length)
{
    struct full_journal *journal = context;

    journal->whole += flags == JOURNAL_WHOLE;
    journal->refused += flags == 0;
    return flags == 0 ? journal->rc : 0;
}

static struct full_journal full_journal(int rc)
{
    return (struct full_journal){.sink = {.store = store_whole}, .rc = rc};
}

/* A world of one node; what it sends next is the first step that is no WHOLE batch. */
static int start_world(uint16_t port)
{
    struct ct_message message;
    int agent = dial(port);

    hello(agent, "r", 1);
    join(agent);
    expect(agent, CT_MESSAGE_START, &message);
    return agent;
}

static void send_failure(int agent)
{
    send_message(agent, CT_MESSAGE_FAILURE,
                 &(struct ct_failure){.generation = 1, .cause = CT_CAUSE_EXIT});
}

static void expect_end(int fd)
{
    uint8_t bytes[4096];
    ssize_t n;

    do {
        n = recv(fd, bytes, sizeof bytes, 0);
    } while (n > 0);
    assert_true(n == 0 || errno == ECONNRESET);
}

TEST(a_full_journal_begins_again_with_a_whole_batch)
{
    struct full_journal journal = full_journal(-ENOBUFS);
    const struct server_options options = {.run_id = "r", .journal = &journal.sink};
    struct ct_message message;
    uint16_t port;
    struct server *server;
    int agent;

    journal.sink.context = &journal;
    server = start_server(&options, &port);
    agent = start_world(port);
    send_failure(agent);
    expect(agent, CT_MESSAGE_STOP, &message);
    send_message(agent, CT_MESSAGE_STOPPED, &(struct ct_stopped){.generation = 1});
    join(agent);
    expect(agent, CT_MESSAGE_START, &message);
    assert_int_equal(message.start->generation, 2);
    close(agent);
    server_destroy(server);
    assert_true(journal.refused >= 2);
    assert_true(journal.whole >= journal.refused + 2); /* and of two worlds */
}

TEST(a_run_without_a_journal_does_not_start_beside_its_workers)
{
    struct full_journal journal = full_journal(-EIO);
    const struct server_options options = {.journal = &journal.sink};
    struct ct_message message;
    uint16_t port;
    struct server *server;
    int agent;

    journal.sink.context = &journal;
    server = start_server(&options, &port);
    agent = start_world(port);
    send_failure(agent);
    expect_end(agent); /* the lease of its worker lasts */
    close(agent);
    agent = dial(port);
    hello(agent, "r", 1);
    join(agent);
    expect(agent, CT_MESSAGE_WAITING, &message);
    assert_true(message.waiting->held_ms > 0);
    close(agent);
    server_destroy(server);
}

TEST(a_run_given_up_leaves_no_connection_of_its_agents)
{
    struct full_journal journal = full_journal(-EIO);
    const struct server_options options = {.journal = &journal.sink};
    uint16_t port;
    struct server *server;
    int agent;

    journal.sink.context = &journal;
    server = start_server(&options, &port);
    agent = start_world(port);
    join(agent); /* out of turn: it is removed, and this step is not journalled */
    expect_end(agent);
    close(agent);
    server_destroy(server);
}

TEST(worker_stores_are_apart_and_end_when_closed)
{
    const struct server_options options = {.run_id = "r"};
    struct ctrun_error err;
    uint16_t endpoint, first_port, second_port;
    struct server *server = start_server(&options, &endpoint);
    uint64_t first, second;
    int a, b;
    uint8_t byte;

    assert_int_equal(server_open_store(server, &first_port, &first, &err), 0);
    assert_int_equal(server_open_store(server, &second_port, &second, &err), 0);
    a = dial_store(first_port);
    b = dial_store(second_port);
    set_key(a);
    assert_int_equal(check_key(b), 1);
    server_close_store(server, first);
    server_close_store(server, first);
    assert_true(recv(a, &byte, 1, 0) <= 0);
    assert_int_equal(check_key(b), 1);
    close(a);
    a = dial_store(endpoint); /* an embedded endpoint serves only its run */
    assert_true(recv(a, &byte, 1, 0) <= 0);
    close(a);
    close(b);
    server_destroy(server); /* a client is still connected to a store */
}

static void *open_and_close(void *context)
{
    struct server *server = context;

    for (int i = 0; i < 20; i++) {
        struct ctrun_error err;
        uint64_t store;
        uint16_t port;

        assert_int_equal(server_open_store(server, &port, &store, &err), 0);
        server_close_store(server, store);
    }
    return NULL;
}

TEST(stores_may_be_opened_from_many_threads)
{
    pthread_t threads[4];
    uint16_t port;
    struct server *server = start_server(NULL, &port);

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, server), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    server_destroy(server);
}

/* At an endpoint that is the worker store, too: by then there is no worker that --store-access could let in. */
TEST(who_comes_before_the_nodes_are_known_is_no_worker)
{
    struct allow_list list = {0};
    struct conn conn = {0};
    enum reject_kind kind;

    assert_int_equal(ct_addr_parse("10.0.0.2", 1, &conn.remote), 0);
    assert_int_equal(ct_addr_parse("10.0.0.1", 1, &conn.local), 0);
    assert_false(store_port_is_open_to(&list, &conn, &kind));
    assert_int_equal(kind, REJECT_EARLY);
    allow_list_seal(&list);
    assert_false(store_port_is_open_to(&list, &conn, &kind));
    assert_int_equal(kind, REJECT_NO_MEMBER);
}
