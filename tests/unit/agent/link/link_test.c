/* SPDX-License-Identifier: Apache-2.0 */
/* --wrap=poll: a signal arrives while the link waits for room. */
#include "agent/link/link_private.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    LAST_BYTES = 16
};

int __wrap_poll(struct pollfd *list, nfds_t count, int timeout_ms);

static int peer;
static int polls;

static void read_all(char last[LAST_BYTES])
{
    char bytes[65536];
    ssize_t n;

    while ((n = recv(peer, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        memcpy(last, bytes + n - LAST_BYTES, LAST_BYTES);
}

int __wrap_poll(struct pollfd *list, nfds_t count, int timeout_ms)
{
    char last[LAST_BYTES];

    (void)list;
    (void)count;
    (void)timeout_ms;
    if (polls++ == 0) {
        errno = EINTR;
        return -1;
    }
    read_all(last);
    return 1;
}

static void on_nothing(void *context, unsigned events)
{
    (void)context;
    (void)events;
}

static void fill(int fd)
{
    static const char zeros[4096];

    while (send(fd, zeros, sizeof zeros, MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
}

TEST(the_last_message_is_sent_though_a_signal_arrives)
{
    static const char message[LAST_BYTES] = "the last one";
    char last[LAST_BYTES] = "";
    struct link_options options = {0};
    struct link *link;
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    peer = ends[1];
    assert_int_equal(loop_create(&options.loop), 0);
    assert_int_equal(link_open(&link, &options, NULL), 0);
    link->socket = loop_watch_open(options.loop, ends[0], on_nothing, NULL);
    link->state = LINK_UP;
    fill(ends[0]);
    assert_int_equal(ct_buf_append(&link->out, message, sizeof message), 0);
    link_close(link, 60000);
    loop_run(options.loop);
    assert_int_equal(loop_destroy(options.loop), 0);
    assert_int_equal(polls, 2);
    read_all(last);
    assert_string_equal(last, message);
    close(peer);
}

static int downs;
static char down_text[CTRUN_ERROR_TEXT_MAX];

static void on_up(void *context, const struct ct_welcome *welcome)
{
    (void)context;
    (void)welcome;
}

static void on_down(void *context, const struct ctrun_error *why)
{
    (void)context;
    (void)ct_copy(down_text, sizeof down_text, why->text);
    downs++;
}

/* A new connection, whose server has proven itself, or not yet. */
static void greet(struct link *link, bool is_proven)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    close(ends[1]);
    loop_watch_close(link->socket);
    link->socket = loop_watch_open(link->options.loop, ends[0], on_nothing, NULL);
    link->state = LINK_GREETING;
    link->deadline_ms = ct_now_ms() + 60000;
    link->handshake.is_proven = is_proven;
}

TEST(a_program_without_a_proof_ends_no_node_whose_server_had_one)
{
    static const struct ct_auth_token token = {.length = 1};
    const struct ct_refuse no = {.code = CTRUN_E_AUTH, .text = "run: rm -rf"};
    const struct ct_message refuse = {CT_MESSAGE_REFUSE, .refuse = &no};
    const struct ct_welcome hello = {.heartbeat_ms = 1000, .lost_after_ms = 5000};
    const struct ct_message welcome = {CT_MESSAGE_WELCOME, .welcome = &hello};
    struct ct_addr server;
    struct link_options options = {.servers = &server,
                                   .server_count = 1,
                                   .token = &token,
                                   .on_up = on_up,
                                   .on_down = on_down};
    struct link *link;

    assert_int_equal(ct_addr_parse("127.0.0.1", 1, &server), 0);
    assert_int_equal(loop_create(&options.loop), 0);
    assert_int_equal(link_open(&link, &options, NULL), 0);
    greet(link, false); /* a first join: what the server says is shown at once */
    link_on_message(link, &refuse);
    assert_int_equal(downs, 1);
    assert_string_equal(down_text, "127.0.0.1:1: run: rm -rf");
    greet(link, true);
    link_on_message(link, &welcome);
    assert_int_equal(link->had_proof, true);
    for (int i = 0; i < 2; i++) { /* refuses; leaves out its proof */
        greet(link, false);
        link_on_message(link, i == 0 ? &refuse : &welcome);
        assert_int_equal(downs, 1);
        assert_int_equal(link->state, LINK_CONNECTING);
        assert_null(strstr(link->why.text, "rm"));
    }
    greet(link, true);
    link_on_message(link, &refuse);
    assert_int_equal(downs, 2);
    link_close(link, 0);
    loop_run(options.loop);
    assert_int_equal(loop_destroy(options.loop), 0);
}

static void refuse_full(struct link *link)
{
    const struct ct_refuse refuse = {.code = -EXFULL, .text = "it is full"};

    link->state = LINK_GREETING;
    link_on_message(link, &(struct ct_message){CT_MESSAGE_REFUSE, .refuse = &refuse});
}

/* Its name has a second address, at which nobody listens. */
TEST(that_the_server_is_full_stays_the_reason_until_it_is_another)
{
    struct ct_addr servers[2];
    struct link_options options = {.servers = servers, .server_count = 2};
    struct link *link;

    assert_int_equal(ct_addr_parse("127.0.0.1", 7, &servers[0]), 0);
    assert_int_equal(ct_addr_parse("::1", 7, &servers[1]), 0);
    assert_int_equal(loop_create(&options.loop), 0);
    assert_int_equal(link_open(&link, &options, NULL), 0);
    link_connect(link, 600000);
    refuse_full(link);
    assert_int_equal(link->state, LINK_CONNECTING);
    assert_string_equal(link->why.text, "127.0.0.1:7: it is full");
    link_fail_attempt(link, -ECONNREFUSED, "connect");
    assert_int_equal(link->why.code, -EXFULL);
    link_fail_attempt(link, -ECONNRESET, "receive");
    assert_int_equal(link->why.code, -EXFULL);
    assert_string_equal(link->why.text, "127.0.0.1:7: it is full");
    link_fail_attempt(link, -ECONNREFUSED, "connect");
    assert_int_equal(link->server, 0);
    link_fail_attempt(link, -ECONNREFUSED, "connect");
    assert_int_equal(link->why.code, CTRUN_E_NO_HOST);
    link_close(link, 0);
    loop_run(options.loop);
    assert_int_equal(loop_destroy(options.loop), 0);
}
