/* SPDX-License-Identifier: Apache-2.0 */
/* The notes of a session's groups, in a store that a thread of the test serves. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/session/session_private.h"

static _Atomic int served; /* the connection to the session */

static void serve_one(struct store *store, int fd)
{
    struct store_client *client = store_add_client(store, NULL, NULL);
    uint8_t bytes[4096];
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0 &&
           store_receive(client, bytes, (size_t)n) == 0) {
        struct ct_buf *out = store_output(client);

        while (ct_buf_length(out) > 0 &&
               (n = send(fd, ct_buf_data(out), ct_buf_length(out), MSG_NOSIGNAL)) > 0)
            ct_buf_consume(out, (size_t)n);
    }
    store_remove_client(client);
}

/* Serves two connections, one after the other. */
static void *serve(void *context)
{
    const int listener = *(const int *)context;
    struct store *store = NULL;

    if (store_create(&store) < 0)
        abort();
    for (int i = 0; i < 2; i++) {
        const int fd = accept(listener, NULL, NULL);

        if (fd < 0)
            abort();
        served = fd;
        serve_one(store, fd);
        close(fd);
    }
    store_destroy(store);
    return NULL;
}

static int listen_at(struct ct_addr *addr)
{
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *addr = (struct ct_addr){
        .v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
        .length = sizeof addr->v4};
    assert_int_equal(bind(listener, &addr->any, addr->length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, &addr->any, &addr->length), 0);
    return listener;
}

TEST(notes_are_left_and_read_and_the_first_of_a_key_stays)
{
    struct ctrun_session session = {.master_addr = "127.0.0.1"};
    const struct ct_board board = ct_session_board(&session);
    char text[CT_NOTE_MAX], longer[2 * CT_NOTE_MAX];
    struct ct_addr addr;
    int listener = listen_at(&addr);
    pthread_t thread;

    pthread_mutex_init(&session.board_lock, NULL);
    assert_true(board.put(board.context, "key", "no store") < 0);
    session.master_port = ct_addr_port(&addr);
    assert_int_equal(pthread_create(&thread, NULL, serve, &listener), 0);
    assert_int_equal(board.read(board.context, "key", text), 0);
    assert_int_equal(board.put_first(board.context, "key", "one", text), 0);
    assert_string_equal(text, "one");
    assert_int_equal(board.put_first(board.context, "key", "two", text), 0);
    assert_string_equal(text, "one");
    assert_int_equal(board.put(board.context, "key", "three"), 0);
    assert_int_equal(board.read(board.context, "key", text), 1);
    assert_string_equal(text, "three");
    assert_int_equal(shutdown(served, SHUT_RDWR), 0);
    assert_int_equal(board.put_first(board.context, "other", "again", text), 0);
    assert_string_equal(text, "again");
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(board.put(board.context, "key", longer), 0);
    assert_int_equal(board.read(board.context, "key", text), 1);
    assert_int_equal(strlen(text), CT_NOTE_MAX - 1);
    /* It is not waited for where another thread has the connection. */
    pthread_mutex_lock(&session.board_lock);
    assert_int_equal(board.read(board.context, "key", text), -EAGAIN);
    pthread_mutex_unlock(&session.board_lock);
    ctrun_store_close(session.board_store);
    session.board_store = NULL;
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(listener);
    assert_true(board.read(board.context, "key", text) < 0);
    assert_true(board.put_first(board.context, "key", "four", text) < 0);
    ctrun_store_close(session.board_store);
    pthread_mutex_destroy(&session.board_lock);
}
