/* SPDX-License-Identifier: Apache-2.0 */
/* The deadlines of a store's calls, of which the test sees each. A thread is the server. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "worker_sdk/client/store.h"
#include "worker_sdk/net/addr.h"

enum {
    TIMEOUT_MS = 60000
};

static struct {
    uint64_t made; /* deadlines; each is a minute later than the one before */
    uint64_t first, last;
    unsigned polls;
} seen;

uint64_t __real_ct_deadline_ms(uint64_t timeout_ms);
uint64_t __wrap_ct_deadline_ms(uint64_t timeout_ms);
uint64_t __wrap_ct_deadline_ms(uint64_t timeout_ms)
{
    return __real_ct_deadline_ms(timeout_ms) + 60000 * seen.made++;
}

int __real_ct_client_poll(int fd, short events, uint64_t deadline_ms);
int __wrap_ct_client_poll(int fd, short events, uint64_t deadline_ms);
int __wrap_ct_client_poll(int fd, short events, uint64_t deadline_ms)
{
    if (seen.polls++ == 0)
        seen.first = deadline_ms;
    seen.last = deadline_ms;
    return __real_ct_client_poll(fd, events, deadline_ms);
}

/* Serves one connection until its end. */
static void *serve(void *context)
{
    const int listener = *(const int *)context;
    const int fd = accept(listener, NULL, NULL);
    struct store *store = NULL;
    struct store_client *client;
    uint8_t bytes[4096];
    ssize_t n;

    if (fd < 0 || store_create(&store) < 0)
        abort();
    client = store_add_client(store, NULL, NULL);
    while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0 &&
           store_receive(client, bytes, (size_t)n) == 0) {
        struct ct_buf *out = store_output(client);

        while (ct_buf_length(out) > 0 &&
               (n = send(fd, ct_buf_data(out), ct_buf_length(out), MSG_NOSIGNAL)) > 0)
            ct_buf_consume(out, (size_t)n);
    }
    store_destroy(store);
    close(fd);
    return NULL;
}

/* A get is a WAIT and a GET: together they may take as long as one. */
TEST(both_requests_of_a_get_have_one_deadline)
{
    struct ct_addr addr = {
        .v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)},
        .length = sizeof addr.v4};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ctrun_error err;
    struct ctrun_store *store;
    pthread_t thread;
    size_t length;
    void *value;

    assert_int_equal(bind(listener, &addr.any, addr.length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, &addr.any, &addr.length), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, &listener), 0);
    assert_int_equal(
        ct_store_connect(&store, "127.0.0.1", ct_addr_port(&addr), TIMEOUT_MS, &err),
        0);
    assert_int_equal(ctrun_store_set(store, "key", "value", 5, &err), 0);
    seen.polls = 0;
    assert_int_equal(ctrun_store_get(store, "key", &value, &length, &err), 0);
    assert_string_equal(value, "value");
    assert_true(seen.polls >= 2);
    assert_int_equal(seen.last, seen.first);
    free(value);
    assert_int_equal(ctrun_store_get(store, "key", NULL, &length, &err), -EINVAL);
    assert_int_equal(ctrun_store_get(store, "key", &value, NULL, &err), -EINVAL);
    assert_int_equal(ctrun_store_wait(store, NULL, 1, TIMEOUT_MS, &err), -EINVAL);
    assert_string_equal(err.text, "the list of keys is NULL");
    ctrun_store_close(store);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(listener);
}

/* As ctrun_store_open() leaves it when it fails. */
TEST(a_store_that_is_null_is_refused)
{
    const char *const keys[] = {"a", "b"};
    struct ctrun_error err;
    int64_t sum;
    size_t length;
    void *value;

    assert_int_equal(ctrun_store_set(NULL, "a", "v", 1, &err), -EINVAL);
    assert_string_equal(err.text, "the store is NULL");
    assert_int_equal(ctrun_store_get(NULL, "a", &value, &length, NULL), -EINVAL);
    assert_int_equal(ctrun_store_add(NULL, "a", 1, &sum, NULL), -EINVAL);
    assert_int_equal(ctrun_store_wait(NULL, keys, 2, 1, NULL), -EINVAL);
    assert_int_equal(ctrun_store_delete(NULL, "a", NULL), -EINVAL);
}
