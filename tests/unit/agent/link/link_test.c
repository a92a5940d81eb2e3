/* SPDX-License-Identifier: Apache-2.0 */
/* --wrap=poll: a signal arrives while the link waits for room. */
#include "agent/link/link_private.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/test.h"

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
