/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to a store: connects, finds out the server's protocol, exchanges messages. */
#include "worker_sdk/client/store.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/client.h"
#include "worker_sdk/client/retry.h"
#include "worker_sdk/client/store_private.h"

enum {
    /* More than any single request: several small requests may be pipelined. */
    OUT_MAX_BYTES = CT_TCPSTORE_REQUEST_MAX_BYTES + (8 << 20),
    /* No reply of a correct server is longer; a length above this is an error, not an
     * allocation. */
    REPLY_MAX_BYTES = 128 << 20,
    KEYS_MAX_BYTES = CT_TCPSTORE_REQUEST_MAX_BYTES,
    READ_BYTES = 64 << 10,
    /* PyTorch's libuv server never answers the second greeting if it closed the first one for
     * another reason (the server was just ending, for example). */
    FALLBACK_MS = 3000,
    KEEP_BYTES = 1 << 20, /* larger buffers are freed after use */
};

/* ---- Life ------------------------------------------------------------------------------- */

int ct_store_kill(struct ctrun_store *store, int rc)
{
    if (store->fd >= 0)
        (void)close(store->fd); /* nothing to flush: the server has it or not */
    store->fd = -1;
    ct_buf_consume(&store->in, ct_buf_length(&store->in));
    ct_buf_consume(&store->out, ct_buf_length(&store->out));
    return rc;
}

static struct ctrun_store *create(const char *host, int port, uint64_t timeout_ms)
{
    struct ctrun_store *store = ct_zalloc(sizeof *store);

    if (!store)
        return NULL;
    store->fd = -1;
    store->port = port;
    store->timeout_ms = timeout_ms;
    (void)ct_copy(store->host, sizeof store->host,
                  host); /* if too long, the resolver fails */
    ct_buf_init(&store->out, OUT_MAX_BYTES);
    ct_buf_init(&store->in, REPLY_MAX_BYTES);
    ct_buf_init(&store->keys, KEYS_MAX_BYTES);
    return store;
}

void ctrun_store_close(struct ctrun_store *store)
{
    if (!store)
        return;
    (void)ct_store_kill(store, 0);
    ct_buf_deinit(&store->out);
    ct_buf_deinit(&store->in);
    ct_buf_deinit(&store->keys);
    free(store);
}

void ct_store_set_timeout(struct ctrun_store *store, uint64_t timeout_ms)
{
    store->timeout_ms = timeout_ms;
}

int ct_store_fd(const struct ctrun_store *store)
{
    return store->fd;
}

bool ct_store_has_ended(const struct ctrun_store *store)
{
    return store->fd < 0;
}

bool ct_store_is_modern(const struct ctrun_store *store)
{
    return store->dialect == CT_TCPSTORE_D2;
}

/* ---- Messages --------------------------------------------------------------------------- */

static int fail(const struct ctrun_store *store, int rc, const char *what,
                struct ctrun_error *err)
{
    if (rc == -ETIMEDOUT)
        return ct_fail(err, CTRUN_E_TIMEOUT, "store %s:%d: %s: no answer in time",
                       store->host, store->port, what);
    return ct_fail(err, rc, "store %s:%d: %s: %s", store->host, store->port, what,
                   rc == CTRUN_E_PROTOCOL ? ctrun_strerror(rc) : strerror(-rc));
}

int ct_store_request(struct ctrun_store *store,
                     const struct ct_tcpstore_request *request,
                     const struct ct_tcpstore_blob *lists, struct ctrun_error *err)
{
    const char *name = ct_tcpstore_query_name(request->query);
    int rc;

    if (store->fd < 0)
        return ct_fail(err, -EPIPE,
                       "store %s:%d: %s: the connection ended with an earlier error; "
                       "open the store again",
                       store->host, store->port, name);
    rc = ct_tcpstore_encode_request(&store->out, store->dialect, request, lists);
    if (rc == -EMSGSIZE)
        return ct_fail(
            err, rc,
            "store %s:%d: %s: too large: a key has at most %d bytes, a value %d, "
            "a list %d keys",
            store->host, store->port, name,
            CT_TCPSTORE_KEY_MAX_BYTES - 1, /* '/' stands in front of it */
            CT_TCPSTORE_VALUE_MAX_BYTES, CT_TCPSTORE_KEYS_MAX);
    if (rc == -ENOTSUP)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "store %s:%d: %s: the server does not support this: it speaks "
                       "the protocol of torch <= 2.0",
                       store->host, store->port, name);
    return rc < 0 ? fail(store, rc, name, err) : 0;
}

/* Reads what has arrived into store->in. 0, or a negative errno; -ECONNRESET at the end. */
static int read_some(struct ctrun_store *store)
{
    uint8_t *at;
    ssize_t n;
    int rc;

    if ((rc = ct_buf_reserve(&store->in, READ_BYTES, &at)) < 0)
        return rc;
    if ((n = ct_client_read_some(store->fd, at, READ_BYTES)) > 0)
        ct_buf_commit(&store->in, (size_t)n);
    if (n == 0)
        return -ECONNRESET;
    return n < 0 && n != -EAGAIN ? (int)n : 0;
}

static int send_out(struct ctrun_store *store, uint64_t deadline_ms)
{
    while (ct_buf_length(&store->out)) {
        ssize_t n = ct_client_write_some(store->fd, ct_buf_data(&store->out),
                                         ct_buf_length(&store->out));
        int rc;

        if (n >= 0) {
            ct_buf_consume(&store->out, (size_t)n);
            continue;
        }
        if (n != -EAGAIN)
            return (int)n;
        if ((rc = ct_client_poll(store->fd, POLLIN | POLLOUT, deadline_ms)) < 0)
            return rc;
        /* A server that blocks while it writes to us reads nothing until we read. */
        if ((rc & ~POLLOUT) && (rc = read_some(store)) < 0)
            return rc;
    }
    return 0;
}

int ct_store_flush(struct ctrun_store *store, uint64_t deadline_ms,
                   struct ctrun_error *err)
{
    int rc = send_out(store, deadline_ms);

    if (store->out.capacity > KEEP_BYTES && !ct_buf_length(&store->out)) {
        ct_buf_deinit(&store->out);
        ct_buf_init(&store->out, OUT_MAX_BYTES);
    }
    return rc < 0 ? ct_store_kill(store, fail(store, rc, "send", err)) : 0;
}

/* The server can refuse a request only by closing the connection. */
static int explain_close(const struct ctrun_store *store, enum ct_tcpstore_query query,
                         struct ctrun_error *err)
{
    static const char *const reasons[CT_TCPSTORE_QUERIES] = {
        [CT_TCPSTORE_ADD] = ": perhaps the key's value is not a number",
        [CT_TCPSTORE_GET] = ": perhaps the key was deleted, or the server has ended",
        [CT_TCPSTORE_LIST_KEYS] = ": perhaps it does not support this query",
    };

    return ct_fail(err, CTRUN_E_PROTOCOL,
                   "store %s:%d: %s: the server closed the connection%s", store->host,
                   store->port, ct_tcpstore_query_name(query),
                   reasons[query] ? reasons[query] : "");
}

int ct_store_await(struct ctrun_store *store, enum ct_tcpstore_query query,
                   uint64_t deadline_ms, struct ctrun_error *err)
{
    struct ct_tcpstore_scan scan = {0};
    int rc;

    if ((rc = ct_store_flush(store, deadline_ms, err)) < 0)
        return rc;
    if (!ct_buf_length(&store->in) && store->in.capacity > KEEP_BYTES) {
        ct_buf_deinit(&store->in);
        ct_buf_init(&store->in, REPLY_MAX_BYTES);
    }
    for (;;) {
        rc = ct_tcpstore_scan_reply(&scan, query, 0, REPLY_MAX_BYTES - READ_BYTES,
                                    ct_buf_data(&store->in), ct_buf_length(&store->in));
        if (rc > 0)
            return rc;
        if (rc == 0 &&
            (rc = ct_client_poll(store->fd, POLLIN, deadline_ms)) == -ETIMEDOUT)
            return fail(store, rc, ct_tcpstore_query_name(query), err);
        if (rc > 0)
            rc = read_some(store);
        if (rc == -ECONNRESET || rc == -EPIPE)
            return ct_store_kill(store, explain_close(store, query, err));
        if (rc < 0)
            return ct_store_kill(store,
                                 fail(store, rc, ct_tcpstore_query_name(query), err));
    }
}

int ct_store_ask_until(struct ctrun_store *store,
                       const struct ct_tcpstore_request *request,
                       const struct ct_tcpstore_blob *lists, uint64_t deadline_ms,
                       struct ctrun_error *err)
{
    int rc;

    if ((rc = ct_store_request(store, request, lists, err)) < 0)
        return rc;
    rc = ct_store_await(store, request->query, deadline_ms, err);
    return rc == CTRUN_E_TIMEOUT ? ct_store_kill(store, rc) : rc;
}

int ct_store_ask(struct ctrun_store *store, const struct ct_tcpstore_request *request,
                 const struct ct_tcpstore_blob *lists, struct ctrun_error *err)
{
    return ct_store_ask_until(store, request, lists, ct_deadline_ms(store->timeout_ms),
                              err);
}

/* ---- Who is there? ---------------------------------------------------------------------- */

/* The protocols that a server may speak, in the order in which they are tried. A server that does
 * not know a greeting closes the connection. */
static const struct greeting {
    enum ct_tcpstore_dialect dialect;
    bool has_ping;
} greetings[] = {
    {CT_TCPSTORE_D2, true},  /* torch >= 2.5 and ctrun: VALIDATE, PING in one write */
    {CT_TCPSTORE_D0, false}, /* torch <= 2.0: GETNUMKEYS */
    {CT_TCPSTORE_D2, false}, /* torch 2.2 to 2.4: VALIDATE, GETNUMKEYS */
};
enum {
    GREETINGS = sizeof greetings / sizeof *greetings
};

/* The top bit of the third byte is set: a torch 1.13 server reads VALIDATE and PING as a SET whose
 * key has a length of 2^63 or more, and refuses that instead of trying to allocate it. */
static uint32_t nonce(void)
{
    return (uint32_t)getpid() | 0x00800000u;
}

static int greet(struct ctrun_store *store, const struct greeting *greeting,
                 uint64_t deadline_ms, struct ctrun_error *err)
{
    const struct ct_tcpstore_request validate = {.query = CT_TCPSTORE_VALIDATE,
                                                 .nonce = CT_TCPSTORE_MAGIC};
    const struct ct_tcpstore_request probe = {
        .query = greeting->has_ping ? CT_TCPSTORE_PING : CT_TCPSTORE_GETNUMKEYS,
        .nonce = nonce()};
    struct ct_reader in;
    int rc;

    store->dialect = greeting->dialect;
    store->has_ping = greeting->has_ping;
    if (store->dialect == CT_TCPSTORE_D2 &&
        (rc = ct_store_request(store, &validate, NULL, err)) < 0)
        return rc;
    if ((rc = ct_store_request(store, &probe, NULL, err)) < 0 ||
        (rc = ct_store_await(store, probe.query, deadline_ms, err)) < 0)
        return rc;
    ct_reader_init(&in, ct_buf_data(&store->in), (size_t)rc);
    ct_buf_consume(&store->in, (size_t)rc);
    if (greeting->has_ping && ct_read_u32(&in) != probe.nonce)
        return ct_fail(
            err, CTRUN_E_PROTOCOL,
            "store %s:%d: the answer to PING does not repeat the number that was sent",
            store->host, store->port);
    return 0;
}

/* Connects and greets once for each protocol. CTRUN_E_PROTOCOL: a server answers, but it is no
 * store that we know. */
static int meet(struct ctrun_store *store, uint64_t deadline_ms,
                struct ctrun_error *err)
{
    int rc = 0;

    for (int i = 0; i < GREETINGS; i++) {
        uint64_t until = i == 0 ? deadline_ms : ct_deadline_ms(FALLBACK_MS);

        rc = ct_client_connect(store->host, store->port, deadline_ms, &store->addr,
                               err);
        if (rc < 0)
            return rc;
        store->fd = rc;
        rc = greet(store, &greetings[i], until < deadline_ms ? until : deadline_ms,
                   err);
        if (rc == 0)
            return 0;
        (void)ct_store_kill(store, rc);
        if (i == 0 && rc == CTRUN_E_TIMEOUT)
            return rc; /* the server was silent: it has not refused */
        if (rc != CTRUN_E_PROTOCOL && rc != CTRUN_E_TIMEOUT && rc != -ECONNRESET &&
            rc != -EPIPE)
            return rc;
    }
    return CTRUN_E_PROTOCOL;
}

static int give_up(const struct ctrun_store *store, const struct ct_retry *retry,
                   uint64_t began_ms, int rc, struct ctrun_error *err)
{
    const double seconds = (double)(ct_now_ms() - began_ms) / 1e3;
    char last[CTRUN_ERROR_TEXT_MAX / 2];

    (void)ct_copy(last, sizeof last, err ? err->text : "");
    if (rc == CTRUN_E_DNS)
        return ct_fail(err, rc, "store %s:%d: tried %u times in %.1f s; %s",
                       store->host, store->port, retry->tries, seconds, last);
    if (rc == CTRUN_E_PROTOCOL)
        return ct_fail(err, rc,
                       "store %s:%d: a program accepts connections there, but does not "
                       "answer as a TCPStore (tried %u times in %.1f s)",
                       store->host, store->port, retry->tries, seconds);
    if (ct_is_short(rc)) /* it may well be there */
        return ct_fail(err, rc, "store %s:%d: not opened: %s", store->host, store->port,
                       last);
    return ct_fail(err, CTRUN_E_UNREACHABLE,
                   "store %s:%d: not reached in %.1f s (%u tries); last error: %s",
                   store->host, store->port, seconds, retry->tries, last);
}

int ct_store_connect(struct ctrun_store **out, const char *host, int port,
                     uint64_t timeout_ms, struct ctrun_error *err)
{
    struct ctrun_store *store = create(host, port, timeout_ms);
    struct ctrun_error last = {.text = ""};
    const uint64_t began_ms = ct_now_ms();
    struct ct_retry retry;
    int rc;

    if (!store)
        return ct_fail(err, -ENOMEM, "store %s:%d: out of memory", host, port);
    ct_retry_init(&retry, ct_deadline_ms(timeout_ms));
    do {
        retry.tries++;
        rc = meet(store, retry.deadline_ms, &last);
    } while ((ct_client_is_passing(rc) || rc == CTRUN_E_PROTOCOL) &&
             ct_retry_pause(&retry));
    if (rc == 0) {
        *out = store;
        return 0;
    }
    rc = give_up(store, &retry, began_ms, rc, &last);
    if (err)
        *err = last;
    ctrun_store_close(store);
    return rc;
}

int ct_store_reconnect(struct ctrun_store *store, uint64_t deadline_ms,
                       struct ctrun_error *err)
{
    const struct greeting greeting = {store->dialect, store->has_ping};
    int rc;

    (void)ct_store_kill(store, 0);
    if ((rc = ct_client_dial(&store->addr, deadline_ms)) < 0)
        return fail(store, rc, "connect again", err);
    store->fd = rc;
    if ((rc = greet(store, &greeting, deadline_ms, err)) < 0)
        return ct_store_kill(store, rc);
    return 0;
}
