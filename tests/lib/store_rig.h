/* SPDX-License-Identifier: Apache-2.0 */
/* A store without sockets: clients named 'a' to 'h', requests in, replies compared. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

enum {
    RIG_CLIENTS = 8
};

struct rig {
    struct store *store;
    struct store_client *clients[RIG_CLIENTS]; /* added when first used */
    int results[RIG_CLIENTS];                  /* of the last store_receive() */
    size_t notices[RIG_CLIENTS];               /* calls of on_output */
    size_t step; /* bytes per segment; 0: whole requests */
    /* Requests are tried with their first allocation failing, their second, and so on, each
     * time on a new connection, until one succeeds. */
    bool is_starved;
    size_t starved; /* tries that failed */
};

static inline void rig_on_output(void *context)
{
    (*(size_t *)context)++;
}

static inline void rig_init(struct rig *rig, size_t step)
{
    *rig = (struct rig){.step = step};
    assert_int_equal(store_create(&rig->store), 0);
}

static inline void rig_deinit(struct rig *rig)
{
    store_destroy(rig->store);
}

/* A test whose state is a rig of whole requests. */
#define RIG_TEST(test) TEST_AROUND(test, rig_setup, rig_teardown)

static inline int rig_setup(void **state)
{
    static struct rig rig;

    rig_init(&rig, 0);
    *state = &rig;
    return 0;
}

static inline int rig_teardown(void **state)
{
    rig_deinit(*state);
    return 0;
}

static inline struct store_client *rig_client(struct rig *rig, char name)
{
    int i = name - 'a';

    assert_in_range(i, 0, RIG_CLIENTS - 1);
    if (!rig->clients[i])
        rig->clients[i] = store_add_client(rig->store, rig_on_output, &rig->notices[i]);
    assert_non_null(rig->clients[i]);
    return rig->clients[i];
}

static inline void rig_close(struct rig *rig, char name)
{
    store_remove_client(rig->clients[name - 'a']);
    rig->clients[name - 'a'] = NULL;
}

static inline int rig_send(struct rig *rig, char name, const void *data, size_t length)
{
    struct store_client *client = rig_client(rig, name);
    const uint8_t *at = data;
    int rc = 0;

    do {
        size_t n = rig->step && rig->step < length ? rig->step : length;

        rc = store_receive(client, at, n);
        at += n;
        length -= n;
    } while (length && rc >= 0);
    return rig->results[name - 'a'] = rc;
}

static inline void rig_expect(struct rig *rig, char name, const void *data,
                              size_t length)
{
    struct ct_buf *out = store_output(rig_client(rig, name));

    if (ct_buf_length(out) != length || memcmp(ct_buf_data(out), data, length) != 0)
        print_error("client %c: %zu bytes wanted, %zu came\n", name, length,
                    ct_buf_length(out));
    assert_int_equal(ct_buf_length(out), length);
    assert_memory_equal(ct_buf_data(out), data, length);
    ct_buf_consume(out, length);
}

/* ---- Scripts: "a>HEX" a sends, "a<HEX" has this reply and no more, "a!" is to be closed --- */

static inline size_t rig_unhex(const char *hex, uint8_t *out)
{
    size_t n = 0;

    for (; hex[0] && hex[1]; hex += 2) {
        unsigned int byte;

        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        out[n++] = (uint8_t)byte;
    }
    return n;
}

static inline void rig_play(struct rig *rig, const char *const *lines)
{
    uint8_t bytes[1024];

    for (; *lines; lines++) {
        char name = (*lines)[0];
        size_t n = rig_unhex(*lines + 2, bytes);

        switch ((*lines)[1]) {
        case '>': (void)rig_send(rig, name, bytes, n); break;
        case '<':
            assert_int_equal(rig->results[name - 'a'], 0);
            rig_expect(rig, name, bytes, n);
            break;
        case '!': assert_true(rig->results[name - 'a'] < 0); break;
        default: fail_msg("not a script line: %s", *lines);
        }
    }
}

/* ---- Requests of dialect D2 -------------------------------------------------------------- */

/* Sends the request; a new connection sends VALIDATE first. */
static inline int rig_send_d2(struct rig *rig, char name, const struct ct_buf *request,
                              size_t fail_at)
{
    static const uint8_t validate[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    int rc;

    if (!rig->clients[name - 'a'])
        assert_int_equal(rig_send(rig, name, validate, sizeof validate), 0);
    ct_alloc_fail_at(fail_at);
    rc = rig_send(rig, name, ct_buf_data(request), ct_buf_length(request));
    ct_alloc_fail_at(0);
    return rc;
}

static inline int rig_ask(struct rig *rig, char name,
                          const struct ct_tcpstore_request *request,
                          const struct ct_tcpstore_blob *lists)
{
    struct ct_buf buf;
    int rc = -ENOMEM;

    ct_buf_init(&buf, CT_TCPSTORE_REQUEST_MAX_BYTES);
    assert_int_equal(ct_tcpstore_encode_request(&buf, CT_TCPSTORE_D2, request, lists),
                     0);
    for (size_t n = 1;
         rig->is_starved && (rc = rig_send_d2(rig, name, &buf, n)) == -ENOMEM; n++) {
        rig_close(rig, name);
        rig->starved++;
    }
    if (!rig->is_starved)
        rc = rig_send_d2(rig, name, &buf, 0);
    ct_buf_deinit(&buf);
    return rc;
}

static inline struct ct_tcpstore_blob rig_blob(const char *text)
{
    return (struct ct_tcpstore_blob){(const uint8_t *)text, strlen(text)};
}

static inline int rig_query(struct rig *rig, char name, enum ct_tcpstore_query query,
                            const char *key, const char *value)
{
    struct ct_tcpstore_request request = {
        .query = query, .key = rig_blob(key), .value = rig_blob(value)};

    return rig_ask(rig, name, &request, NULL);
}

static inline int rig_set(struct rig *rig, char name, const char *key,
                          const char *value)
{
    return rig_query(rig, name, CT_TCPSTORE_SET, key, value);
}

static inline int rig_number(struct rig *rig, char name, enum ct_tcpstore_query query,
                             const char *key, int64_t number)
{
    struct ct_tcpstore_request request = {
        .query = query, .key = rig_blob(key), .number = number};

    return rig_ask(rig, name, &request, NULL);
}

static inline int rig_compare_set(struct rig *rig, char name, const char *key,
                                  const char *expected, const char *desired)
{
    struct ct_tcpstore_request request = {.query = CT_TCPSTORE_COMPARE_SET,
                                          .key = rig_blob(key),
                                          .value = rig_blob(expected),
                                          .desired = rig_blob(desired)};

    return rig_ask(rig, name, &request, NULL);
}

/* A counted query; `second` may be NULL. */
static inline int rig_list(struct rig *rig, char name, enum ct_tcpstore_query query,
                           const char *first, const char *second)
{
    const struct ct_tcpstore_blob keys[] = {rig_blob(first),
                                            rig_blob(second ? second : "")};
    struct ct_tcpstore_request request = {.query = query, .count = second ? 2 : 1};

    return rig_ask(rig, name, &request, keys);
}

static inline int rig_wait(struct rig *rig, char name, const char *key)
{
    return rig_list(rig, name, CT_TCPSTORE_WAIT, key, NULL);
}

static inline void rig_expect_nothing(struct rig *rig, char name)
{
    rig_expect(rig, name, "", 0);
}

static inline void rig_expect_u8(struct rig *rig, char name, uint8_t value)
{
    rig_expect(rig, name, &value, 1);
}

static inline void rig_expect_i64(struct rig *rig, char name, int64_t value)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)value >> 8 * i);
    rig_expect(rig, name, bytes, sizeof bytes);
}

static inline void rig_expect_blob(struct rig *rig, char name, const char *text)
{
    uint8_t bytes[256] = {(uint8_t)strlen(text)};

    memcpy(bytes + 8, text, strlen(text));
    rig_expect(rig, name, bytes, 8 + strlen(text));
}

/* The value of a key as 'h' sees it. */
static inline void rig_expect_value(struct rig *rig, const char *key, const char *text)
{
    assert_int_equal(rig_query(rig, 'h', CT_TCPSTORE_GET, key, ""), 0);
    rig_expect_blob(rig, 'h', text);
}
