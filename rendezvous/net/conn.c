/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/conn.h"

#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/net/conn_limits.h"
#include "rendezvous/net/listener.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/tcp.h"

/* ---- Pool and deadlines ------------------------------------------------------------------ */

static void on_deadline(uv_timer_t *timer);

static void arm_timer(struct conn_pool *pool)
{
    uint64_t next_ms = ct_lease_next_ms(&pool->deadlines);

    if (next_ms == UINT64_MAX || uv_is_active((uv_handle_t *)&pool->timer) ||
        uv_is_closing((uv_handle_t *)&pool->timer))
        return;
    (void)uv_timer_start(&pool->timer, on_deadline, (uint64_t)ct_left_ms(next_ms) + 1,
                         0);
}

static void on_deadline(uv_timer_t *timer)
{
    struct conn_pool *pool = timer->data;
    struct ct_lease *lease;

    while ((lease = ct_lease_find_expired(&pool->deadlines, ct_now_ms()))) {
        struct conn *conn = ct_list_entry(lease, struct conn, deadline);

        conn_clear_deadline(conn);
        if (conn->state == CONN_OPEN)
            conn_turn_away(conn, REJECT_SLOW);
        else /* finished or shut: the peer had time to close */
            conn_close(conn, "it did not close in time");
    }
    arm_timer(pool);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A connection needs a descriptor; some are kept back for other uses. */
static size_t descriptors_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return SERVER_CONNS_MAX;
    return limit.rlim_cur > 2 * SERVER_OWN_DESCRIPTORS
               ? (size_t)limit.rlim_cur - SERVER_OWN_DESCRIPTORS
               : SERVER_OWN_DESCRIPTORS;
}

/* Members always find room: unproven connections and store clients get only a part. HTTP and
 * refused agents always find room, too: they stay unproven, and members do not get all. */
static void share(struct conn_pool *pool, size_t max)
{
    pool->count_max = max;
    pool->reserve = min_size((max + 2) / 4, CONN_RESERVE_MAX);
    pool->maxima[CONN_MEMBER] = max - pool->reserve;
    pool->maxima[CONN_CLIENT] = pool->maxima[CONN_MEMBER] -
                                pool->maxima[CONN_MEMBER] / 4;
    pool->maxima[CONN_UNPROVEN] = min_size(max / 8, CONN_UNPROVEN_MAX);
    if (pool->maxima[CONN_UNPROVEN] < CONN_UNPROVEN_MIN)
        pool->maxima[CONN_UNPROVEN] = CONN_UNPROVEN_MIN;
}

int conn_pool_init(struct conn_pool *pool, uv_loop_t *loop, size_t max)
{
    pool->loop = loop;
    pool->count = 0;
    share(pool, min_size(max > 0 ? max : SERVER_CONNS_MAX, descriptors_max()));
    ct_list_init(&pool->conns);
    ct_list_init(&pool->unproven);
    ct_lease_queue_init(&pool->deadlines, CONN_IDENTIFY_MS);
    pool->timer.data = pool;
    return uv_timer_init(loop, &pool->timer);
}

void conn_pool_close(struct conn_pool *pool)
{
    ct_list_for_each(struct conn, conn, &pool->conns, node)
        conn_close(conn, "the server is stopping");
    if (!uv_is_closing((uv_handle_t *)&pool->timer))
        uv_close((uv_handle_t *)&pool->timer, NULL);
}

void conn_set_deadline(struct conn *conn)
{
    ct_lease_renew(&conn->pool->deadlines, &conn->deadline, ct_now_ms());
    arm_timer(conn->pool);
}

void conn_clear_deadline(struct conn *conn)
{
    ct_lease_end(&conn->deadline);
}

/* ---- Reading ----------------------------------------------------------------------------- */

/* libuv reads up to 32 times in a row from a peer that sends without end. One full buffer a turn is
 * enough, as others wait: without a buffer libuv continues in the next turn. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct conn *conn = handle->data;
    const bool had_its_turn = conn->has_more;

    (void)suggested;
    conn->has_more = false;
    if (had_its_turn)
        *out = uv_buf_init(NULL, 0);
    else
        *out = uv_buf_init((char *)conn->pool->read_buffer,
                           sizeof conn->pool->read_buffer);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf)
{
    struct conn *conn = stream->data;

    if (length == UV_ENOBUFS)
        return; /* on_alloc() */
    if (length < 0)
        conn_close(conn,
                   length == UV_EOF ? "connection closed" : uv_strerror((int)length));
    if (length <= 0)
        return;
    conn->has_more = (size_t)length == buf->len;
    conn->pool->bytes_in += (uint64_t)length;
    if (conn->state == CONN_OPEN) /* later bytes are ignored */
        conn->user->on_bytes(conn, (const uint8_t *)buf->base, (size_t)length);
}

void conn_pause(struct conn *conn)
{
    if (!conn->is_reading)
        return;
    conn->is_reading = false;
    (void)uv_read_stop((uv_stream_t *)&conn->tcp); /* never fails */
}

void conn_resume(struct conn *conn)
{
    int rc;

    if (conn->is_reading || conn->state == CONN_CLOSING)
        return;
    conn->is_reading = true;
    if ((rc = uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read)) < 0)
        conn_close(conn, uv_strerror(rc));
}

/* ---- Writing ----------------------------------------------------------------------------- */

static void on_shutdown(uv_shutdown_t *request, int status)
{
    struct conn *conn = request->data;

    if (status < 0)
        conn_close(conn, uv_strerror(status));
}

/* FINISHING and nothing left to send: shut our side down, then wait until the peer closes. */
static void shut_if_sent(struct conn *conn)
{
    int rc;

    if (conn->state != CONN_FINISHING || conn->is_writing ||
        ct_buf_length(conn->out) > 0)
        return;
    conn->state = CONN_SHUT;
    conn_resume(conn);
    conn->shutdown.data = conn;
    rc = uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown);
    if (rc < 0)
        conn_close(conn, uv_strerror(rc));
}

static void on_sent(struct conn *conn)
{
    if (conn->user->on_sent && conn->state == CONN_OPEN)
        conn->user->on_sent(conn);
}

static void on_written(uv_write_t *request, int status)
{
    struct conn *conn = request->data;

    conn->is_writing = false;
    if (status == 0)
        conn->pool->bytes_out += ct_buf_length(&conn->writing);
    ct_buf_consume(&conn->writing, ct_buf_length(&conn->writing));
    if (status < 0) {
        conn_close(conn, uv_strerror(status));
        return;
    }
    on_sent(conn);
    conn_flush(conn);
}

/* libuv needs bytes that stay where they are: a part of the output moves to `writing`. */
static void write_later(struct conn *conn)
{
    size_t length = ct_buf_length(conn->out);
    uv_buf_t buf;
    int rc;

    if (length > CONN_WRITE_MARK_BYTES)
        length = CONN_WRITE_MARK_BYTES;
    rc = ct_buf_append(&conn->writing, ct_buf_data(conn->out), length);
    if (rc == 0) {
        ct_buf_consume(conn->out, length);
        buf = uv_buf_init((char *)conn->writing.data + conn->writing.start,
                          (unsigned)length);
        conn->write.data = conn;
        conn->is_writing = true;
        rc = uv_write(&conn->write, (uv_stream_t *)&conn->tcp, &buf, 1, on_written);
    }
    if (rc < 0) {
        conn->is_writing = false;
        conn_close(conn, uv_strerror(rc));
    }
}

static int write_now(struct conn *conn)
{
    size_t length = ct_buf_length(conn->out);
    uv_buf_t buf = {.base = (char *)conn->out->data + conn->out->start,
                    .len = length < CONN_WRITE_MARK_BYTES ? length
                                                          : CONN_WRITE_MARK_BYTES};
    int rc = uv_try_write((uv_stream_t *)&conn->tcp, &buf, 1);

    if (rc > 0) {
        ct_buf_consume(conn->out, (size_t)rc);
        conn->pool->bytes_out += (uint64_t)rc;
    }
    return rc;
}

void conn_flush(struct conn *conn)
{
    while (conn->state != CONN_CLOSING && !conn->is_writing &&
           ct_buf_length(conn->out) > 0) {
        int rc = write_now(conn);

        if (rc == UV_EAGAIN)
            write_later(conn);
        else if (rc < 0)
            conn_close(conn, uv_strerror(rc));
        else
            on_sent(conn);
    }
    shut_if_sent(conn);
}

/* ---- Life -------------------------------------------------------------------------------- */

static void learn_addresses(struct conn *conn)
{
    int length = sizeof(struct sockaddr_in6);

    (void)uv_tcp_getpeername(&conn->tcp, &conn->remote.any,
                             &length); /* stays zero: unknown */
    conn->remote.length = (socklen_t)length;
    length = sizeof(struct sockaddr_in6);
    (void)uv_tcp_getsockname(&conn->tcp, &conn->local.any, &length);
    conn->local.length = (socklen_t)length;
}

/* Removes the connection from the count of its rank: it is closed, or gets another rank. */
static void leave_rank(struct conn *conn)
{
    conn->pool->counts[conn->rank]--;
    ct_list_remove(&conn->unproven_node);
}

static bool has_room(const struct conn_pool *pool, enum conn_rank rank)
{
    return pool->counts[rank] < pool->maxima[rank] &&
           pool->counts[CONN_CLIENT] + pool->counts[CONN_MEMBER] <
               pool->maxima[CONN_MEMBER];
}

static void report_full(struct conn_pool *pool, enum conn_rank rank)
{
    ct_log_seldom(
        &pool->full, CTRUN_LOG_ERR,
        "refused a %s: %zu nodes and %zu store clients are connected, and the "
        "limit is %zu connections, %zu of them for short requests; raise the "
        "hard limit of open files (ulimit -Hn), and ctrund --max-connections "
        "where it is given",
        rank == CONN_MEMBER ? "node" : "store client", pool->counts[CONN_MEMBER],
        pool->counts[CONN_CLIENT], pool->count_max, pool->reserve);
}

bool conn_prove(struct conn *conn, enum conn_rank rank)
{
    struct conn_pool *pool = conn->pool;

    if (conn->state == CONN_CLOSING)
        return false;
    if (conn->rank == rank)
        return true;
    if (!has_room(pool, rank)) {
        report_full(pool, rank);
        conn_note(conn, REJECT_TOO_MANY);
        return false;
    }
    leave_rank(conn);
    conn->rank = rank;
    pool->counts[rank]++;
    return true;
}

static void make_room(struct conn_pool *pool)
{
    while (!ct_list_is_empty(&pool->unproven) &&
           (pool->count > pool->count_max ||
            pool->counts[CONN_UNPROVEN] > pool->maxima[CONN_UNPROVEN]))
        conn_turn_away(ct_list_entry(pool->unproven.next, struct conn, unproven_node),
                       REJECT_TOO_MANY);
}

static void init(struct conn *conn, struct conn_pool *pool,
                 const struct conn_user *user, void *context)
{
    conn->pool = pool;
    conn->user = user;
    conn->context = context;
    conn->out = &conn->own_out;
    conn->tcp.data = conn;
    ct_buf_init(&conn->own_out, CONN_OUT_MAX_BYTES);
    ct_buf_init(&conn->writing, CONN_WRITE_MARK_BYTES);
    ct_list_init(&conn->deadline.node);
    ct_list_add(&pool->conns, &conn->node);
    ct_list_add(&pool->unproven, &conn->unproven_node);
    pool->counts[CONN_UNPROVEN]++;
    pool->count++;
    (void)uv_tcp_init(pool->loop, &conn->tcp); /* without flags it cannot fail */
}

/* `user` is cleared if the caller never got the connection: else on_close() would report a client
 * that the caller does not know. */
struct conn *conn_accept(struct conn_pool *pool, struct listener *listener,
                         const struct conn_user *user, void *context)
{
    const int fd = listener_accept(listener);
    struct conn *conn = fd < 0 ? NULL : ct_zalloc(sizeof *conn);

    if (!conn && fd >= 0) {
        ct_log_seldom(&pool->without_memory, CTRUN_LOG_WARN,
                      "rendezvous: refused a connection: out of memory");
        (void)close(fd); /* left waiting, it would keep all others waiting, too */
    }
    if (!conn)
        return NULL;
    init(conn, pool, user, context);
    if (uv_tcp_open(&conn->tcp, fd) < 0) {
        (void)close(fd); /* nothing was written to it */
        conn_close(conn, "it went away");
    } else {
        learn_addresses(conn);
        if (!ct_addr_is_same_host(&conn->local, &conn->remote))
            ct_tcp_return_to_bbr(fd);
        make_room(pool);
    }
    if (conn->state == CONN_CLOSING) {
        conn->user = NULL;
        return NULL;
    }
    (void)uv_tcp_nodelay(&conn->tcp, 1); /* an optimisation */
    (void)uv_tcp_keepalive(&conn->tcp, 1, 60);
    conn_resume(conn);
    return conn;
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;

    if (conn->user && conn->user->on_close)
        conn->user->on_close(conn, conn->reason);
    ct_list_remove(&conn->node);
    ct_buf_deinit(&conn->own_out);
    ct_buf_deinit(&conn->writing);
    free(conn);
}

void conn_finish(struct conn *conn)
{
    if (conn->state != CONN_OPEN)
        return;
    conn->state = CONN_FINISHING;
    conn_set_deadline(conn);
    conn_flush(conn);
}

/* The memory is freed in on_closed(), in a later turn of the loop: until then callers may read the
 * state. */
void conn_close(struct conn *conn, const char *reason)
{
    if (conn->state == CONN_CLOSING)
        return;
    conn->state = CONN_CLOSING;
    conn->pool->count--;
    leave_rank(conn);
    conn_clear_deadline(conn);
    (void)ct_copy(conn->reason, sizeof conn->reason, reason); /* cut is fine */
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
}

void conn_note(struct conn *conn, enum reject_kind kind)
{
    char who[CT_ADDR_TEXT_MAX], rest[80] = "";
    uint64_t more;

    if (conn->remote.any.sa_family == AF_UNSPEC)
        return; /* reset before its address was known: not a rejected client */
    if (!rejects_note(&conn->pool->rejects, kind, ct_now_ms(), &more) ||
        kind == REJECT_GONE)
        return; /* a mere check whether the port is open is not logged */
    ct_addr_format_host(who, &conn->remote);
    if (more > 0)
        (void)ct_format(rest, sizeof rest, " (and %llu more like it before)",
                        (unsigned long long)more);
    ct_warn("refused %s: %s%s", who, reject_sentence(kind), rest);
}

void conn_turn_away(struct conn *conn, enum reject_kind kind)
{
    if (conn->state != CONN_CLOSING)
        conn_note(conn, kind);
    conn_close(conn, reject_sentence(kind));
}
