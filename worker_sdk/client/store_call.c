/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a store: one request, one reply, and what a time-out means for each. */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/store_private.h"

enum {
    /* Time limit after a time-out: for the answer to CANCEL_WAIT, or for a new connection. */
    CANCEL_MS = 2000,
    /* Small requests in flight at once. */
    PIPELINE = 256,
    MISSING_NAMED = 5,      /* keys named in a time-out message */
    MISSING_CHECKED = 4096, /* keys checked to find those */
};

/* ---- Keys: '/' in front, as PyTorch's clients do ----------------------------------------- */

/* Fills blobs with the wire form of the keys, which stays valid until the next call. */
static int wire_keys(struct ctrun_store *store, const char *const *keys, size_t count,
                     struct ct_tcpstore_blob *blobs, struct ctrun_error *err)
{
    size_t total = 0;
    uint8_t *at;
    int rc;

    if (!store)
        return ct_fail_null(err, "store");
    for (size_t i = 0; i < count; i++) {
        if (!keys || !keys[i])
            return ct_fail_null(err, keys ? "key" : "list of keys");
        total += 1 + strlen(keys[i]);
    }
    ct_buf_consume(&store->keys, ct_buf_length(&store->keys));
    if ((rc = ct_buf_reserve(&store->keys, total, &at)) < 0)
        return ct_fail(err, rc, "store %s:%d: %zu keys of %zu bytes: %s", store->host,
                       store->port, count, total,
                       rc == -ENOBUFS ? "too long for a request" : strerror(-rc));
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(keys[i]);

        blobs[i] = (struct ct_tcpstore_blob){at, length + 1};
        *at++ = '/';
        memcpy(at, keys[i], length);
        at += length;
    }
    return 0;
}

static int wire_key(struct ctrun_store *store, const char *key,
                    struct ct_tcpstore_blob *blob, struct ctrun_error *err)
{
    return wire_keys(store, &key, 1, blob, err);
}

/* The keys of a counted query, allocated for this call; the caller frees them. NULL on failure,
 * with the code in *rc. */
static struct ct_tcpstore_blob *wire_list(struct ctrun_store *store,
                                          const char *const *keys, size_t count,
                                          int *rc, struct ctrun_error *err)
{
    struct ct_tcpstore_blob *blobs = ct_zalloc_array(count, sizeof *blobs);

    if (!blobs) {
        *rc = ct_fail(err, -ENOMEM, "store: out of memory");
        return NULL;
    }
    if ((*rc = wire_keys(store, keys, count, blobs, err)) < 0) {
        free(blobs);
        return NULL;
    }
    return blobs;
}

/* ---- Replies at the front of store->in --------------------------------------------------- */

static int take_i64(struct ctrun_store *store, int length, int64_t *value)
{
    struct ct_reader in;

    ct_reader_init(&in, ct_buf_data(&store->in), (size_t)length);
    *value = ct_read_i64(&in);
    ct_buf_consume(&store->in, (size_t)length);
    return 0;
}

static uint8_t take_u8(struct ctrun_store *store)
{
    uint8_t value = *ct_buf_data(&store->in);

    ct_buf_consume(&store->in, 1);
    return value;
}

/* Copies the blob into new memory, with a NUL behind; the caller frees it. */
static int take_blob(struct ctrun_store *store, int reply, void **value, size_t *length,
                     struct ctrun_error *err)
{
    const uint8_t *cursor = ct_buf_data(&store->in);
    const struct ct_tcpstore_blob blob = ct_tcpstore_next(&cursor);

    if ((*value = ct_zalloc(blob.length + 1)) && blob.length)
        memcpy(*value, blob.data, blob.length);
    *length = blob.length;
    ct_buf_consume(&store->in, (size_t)reply);
    return *value ? 0
                  : ct_fail(err, -ENOMEM, "store %s:%d: out of memory", store->host,
                            store->port);
}

/* ---- Simple operations ------------------------------------------------------------------ */

int ctrun_store_set(struct ctrun_store *store, const char *key, const void *value,
                    size_t length, struct ctrun_error *err)
{
    struct ct_tcpstore_request request = {.query = CT_TCPSTORE_SET,
                                          .value = {value, length}};
    int rc;

    if (!value && length)
        return ct_fail_null(err, "value");
    if ((rc = wire_key(store, key, &request.key, err)) < 0 ||
        (rc = ct_store_request(store, &request, NULL, err)) < 0)
        return rc;
    return ct_store_flush(store, ct_deadline_ms(store->timeout_ms), err);
}

/* A request about one key whose reply is a number. */
static int ask_number(struct ctrun_store *store, struct ct_tcpstore_request *request,
                      const char *key, int64_t *value, struct ctrun_error *err)
{
    int rc;

    if ((rc = wire_key(store, key, &request->key, err)) < 0 ||
        (rc = ct_store_ask(store, request, NULL, err)) < 0)
        return rc;
    return take_i64(store, rc, value);
}

int ctrun_store_add(struct ctrun_store *store, const char *key, int64_t delta,
                    int64_t *result, struct ctrun_error *err)
{
    struct ct_tcpstore_request request = {.query = CT_TCPSTORE_ADD, .number = delta};
    int64_t sum;
    int rc = ask_number(store, &request, key, &sum, err);

    if (rc == 0 && result)
        *result = sum;
    return rc;
}

int ct_store_compare_set(struct ctrun_store *store, const char *key,
                         const char *expected, const char *desired, void **actual,
                         size_t *length, struct ctrun_error *err)
{
    struct ct_tcpstore_request request = {
        .query = CT_TCPSTORE_COMPARE_SET,
        .value = {(const uint8_t *)expected, strlen(expected)},
        .desired = {(const uint8_t *)desired, strlen(desired)}};
    int rc;

    if ((rc = wire_key(store, key, &request.key, err)) < 0 ||
        (rc = ct_store_ask(store, &request, NULL, err)) < 0)
        return rc;
    return take_blob(store, rc, actual, length, err);
}

int ctrun_store_delete(struct ctrun_store *store, const char *key,
                       struct ctrun_error *err)
{
    struct ct_tcpstore_request request = {.query = CT_TCPSTORE_DELETE_KEY};
    int64_t deleted;
    int rc = ask_number(store, &request, key, &deleted, err);

    return rc < 0 ? rc : deleted == 1;
}

/* ---- Waiting ---------------------------------------------------------------------------- */

/* Ends the connection: a byte of CHECK's or WAIT's reply is not in the protocol. */
static int bad_reply(struct ctrun_store *store, uint8_t value, struct ctrun_error *err)
{
    return ct_store_kill(store, ct_fail(err, CTRUN_E_PROTOCOL,
                                        "store %s:%d: the server answered WAIT or "
                                        "CHECK with %u, which is not in the protocol",
                                        store->host, store->port, value));
}

/* Cancels a WAIT that timed out. 0 when the key was set after all, else CTRUN_E_TIMEOUT, with a
 * usable store, or the error that ended the store. */
static int cancel_wait(struct ctrun_store *store, struct ctrun_error *err)
{
    const struct ct_tcpstore_request request = {.query = CT_TCPSTORE_CANCEL_WAIT};
    uint64_t deadline = ct_deadline_ms(CANCEL_MS);
    bool is_released = false;
    uint8_t value;
    int rc;

    if (!ct_store_is_modern(store)) /* no CANCEL_WAIT: replace the connection */
        return (rc = ct_store_reconnect(store, deadline, err)) < 0 ? rc
                                                                   : CTRUN_E_TIMEOUT;
    if ((rc = ct_store_request(store, &request, NULL, err)) < 0)
        return rc;
    for (;;) {
        rc = ct_store_await(store, CT_TCPSTORE_CANCEL_WAIT, deadline, err);
        if (rc < 0)
            return ct_store_kill(store, rc);
        if ((value = take_u8(store)) == CT_TCPSTORE_WAIT_CANCELED)
            return is_released ? 0 : CTRUN_E_TIMEOUT;
        if (value != CT_TCPSTORE_READY || is_released)
            return bad_reply(store, value, err);
        is_released = true;
    }
}

static int wait_for(struct ctrun_store *store, const struct ct_tcpstore_blob *keys,
                    size_t count, uint64_t deadline_ms, struct ctrun_error *err)
{
    const struct ct_tcpstore_request request = {.query = CT_TCPSTORE_WAIT,
                                                .count = count};
    uint8_t value;
    int rc;

    if ((rc = ct_store_request(store, &request, keys, err)) < 0)
        return rc;
    rc = ct_store_await(store, CT_TCPSTORE_WAIT, deadline_ms, err);
    if (rc == CTRUN_E_TIMEOUT)
        return store->fd < 0 ? rc : cancel_wait(store, err);
    if (rc < 0)
        return rc;
    return (value = take_u8(store)) == CT_TCPSTORE_READY ? 0
                                                         : bad_reply(store, value, err);
}

/* Asks for each key separately and reads the replies in order. */
static int check_some(struct ctrun_store *store, const struct ct_tcpstore_blob *blobs,
                      size_t count, bool *present)
{
    const struct ct_tcpstore_request request = {.query = CT_TCPSTORE_CHECK, .count = 1};
    const uint64_t deadline = ct_deadline_ms(CANCEL_MS);
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ct_store_request(store, &request, &blobs[i], NULL);
    for (size_t i = 0; i < count && rc >= 0; i++) {
        rc = ct_store_await(store, CT_TCPSTORE_CHECK, deadline, NULL);
        if (rc >= 0)
            present[i] = take_u8(store) == CT_TCPSTORE_READY;
    }
    return rc < 0 ? ct_store_kill(store, rc) : 0;
}

/* Which of the keys exist; asked in portions, to limit the requests in flight. */
static int check_each(struct ctrun_store *store, const char *const *keys, size_t count,
                      bool *present)
{
    struct ct_tcpstore_blob *blobs;
    int rc;

    if (!(blobs = wire_list(store, keys, count, &rc, NULL)))
        return rc;
    for (size_t i = 0; i < count && rc == 0; i += PIPELINE)
        rc = check_some(store, blobs + i, count - i < PIPELINE ? count - i : PIPELINE,
                        present + i);
    free(blobs);
    return rc;
}

/* Writes "'a', 'b' and 3 more" into text. */
static void name_missing(char *text, size_t size, const char *const *keys,
                         const bool *present, size_t count)
{
    size_t missing = 0;

    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (!present[i] && missing++ < MISSING_NAMED)
            (void)ct_append_item(text, size, ", ", "'%.80s'", keys[i]);
    if (missing > MISSING_NAMED)
        (void)ct_append(text, size, " and %zu more", missing - MISSING_NAMED);
}

/* Makes an error text of a time-out that names the keys that are missing now. The store is closed
 * where the server did not answer. */
static int explain_timeout(struct ctrun_store *store, const char *const *keys,
                           size_t count, uint64_t waited_ms, struct ctrun_error *err)
{
    const double seconds = (double)waited_ms / 1e3;
    size_t checked = count < MISSING_CHECKED ? count : MISSING_CHECKED;
    char names[CTRUN_ERROR_TEXT_MAX / 2] = "";
    bool *present = err ? ct_zalloc(checked) : NULL;

    if (present && store->fd >= 0 && check_each(store, keys, checked, present) == 0)
        name_missing(names, sizeof names, keys, present, checked);
    free(present);
    if (names[0])
        return ct_fail(err, CTRUN_E_TIMEOUT,
                       "store %s:%d: no rank set %s within %.1f s", store->host,
                       store->port, names, seconds);
    return ct_fail(err, CTRUN_E_TIMEOUT,
                   "store %s:%d: waited %.1f s for %zu keys ('%.80s' ...): %s",
                   store->host, store->port, seconds, count, count ? keys[0] : "",
                   store->fd < 0 ? "the server does not answer"
                                 : "they were not all set in time");
}

/* timeout_ms is what deadline_ms was made of, for the error. */
static int wait_until(struct ctrun_store *store, const char *const *keys, size_t count,
                      uint64_t timeout_ms, uint64_t deadline_ms,
                      struct ctrun_error *err)
{
    struct ct_tcpstore_blob one;
    struct ct_tcpstore_blob *blobs = &one;
    int rc;

    if (count == 1)
        rc = wire_keys(store, keys, 1, &one, err);
    else if (!(blobs = wire_list(store, keys, count, &rc, err)))
        return rc;
    if (rc == 0)
        rc = wait_for(store, blobs, count, deadline_ms, err);
    if (blobs != &one)
        free(blobs);
    return rc == CTRUN_E_TIMEOUT ? explain_timeout(store, keys, count, timeout_ms, err)
                                 : rc;
}

int ctrun_store_wait(struct ctrun_store *store, const char *const *keys, size_t count,
                     uint64_t timeout_ms, struct ctrun_error *err)
{
    return wait_until(store, keys, count, timeout_ms, ct_deadline_ms(timeout_ms), err);
}

int ctrun_store_get(struct ctrun_store *store, const char *key, void **value,
                    size_t *length, struct ctrun_error *err)
{
    struct ct_tcpstore_request request = {.query = CT_TCPSTORE_GET};
    const uint64_t timeout_ms = store ? store->timeout_ms : 0;
    const uint64_t deadline_ms = ct_deadline_ms(timeout_ms); /* of both requests */
    int rc;

    if (!value || !length)
        return ct_fail_null(err, value ? "length" : "value");
    if ((rc = wait_until(store, &key, 1, timeout_ms, deadline_ms, err)) < 0 ||
        (rc = wire_key(store, key, &request.key, err)) < 0 ||
        (rc = ct_store_ask_until(store, &request, NULL, deadline_ms, err)) < 0)
        return rc;
    return take_blob(store, rc, value, length, err);
}

int ct_store_check(struct ctrun_store *store, const char *const *keys, size_t count,
                   struct ctrun_error *err)
{
    const struct ct_tcpstore_request request = {.query = CT_TCPSTORE_CHECK,
                                                .count = count};
    struct ct_tcpstore_blob *blobs;
    uint8_t value;
    int rc;

    if (!(blobs = wire_list(store, keys, count, &rc, err)))
        return rc;
    rc = ct_store_ask(store, &request, blobs, err);
    free(blobs);
    if (rc < 0)
        return rc;
    value = take_u8(store);
    return value <= CT_TCPSTORE_NOT_READY ? value == CT_TCPSTORE_READY
                                          : bad_reply(store, value, err);
}
