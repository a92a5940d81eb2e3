/* SPDX-License-Identifier: Apache-2.0 */
/* True time, the nodes' clocks, timers, connections and kernels. */
#include "tests/sim/world.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

enum {
    DELAY_MAX_US = 30 * WORLD_MS,
    RETRY_US = 200 * WORLD_MS, /* of what was not acknowledged */
    RETRY_MAX_US = 1600 * WORLD_MS,
    SYN_RETRY_US = 1000 * WORLD_MS,
    CLOCK_BASE_MS = 3600000, /* since boot */
    CLOCK_REBOOT_MS = 100,
    FD_FIRST = 1000,
    ARENA_BYTES = 1 << 20,
    ARENA_PIECES = 64,
    PORT = 29500,
    READ_BYTES = 8192,
};

struct world world;

/* ---- Memory ------------------------------------------------------------------------------ */

/* Memory that the next story uses again. */
static uint8_t *arena[ARENA_PIECES];
static size_t arena_piece, arena_used;

void *world_alloc(size_t size)
{
    void *memory;

    size = (size + 15) / 16 * 16;
    if (arena_used + size > ARENA_BYTES) {
        arena_piece++;
        arena_used = 0;
    }
    if (arena_piece == ARENA_PIECES || size > ARENA_BYTES)
        abort(); /* the story does not end */
    if (!arena[arena_piece] && !(arena[arena_piece] = malloc(ARENA_BYTES)))
        abort();
    memory = arena[arena_piece] + arena_used;
    arena_used += size;
    return memset(memory, 0, size);
}

uint64_t world_draw(uint64_t below)
{
    world.random ^= world.random >> 12; /* xorshift64*, Vigna 2016 */
    world.random ^= world.random << 25;
    world.random ^= world.random >> 27;
    return (world.random * 0x2545F4914F6CDD1DULL >> 11) % below;
}

bool world_traces(void)
{
    static int does = -1;

    if (does < 0)
        does = getenv("CTRUN_SIM_TRACE") != NULL;
    return does;
}

void world_trace(const char *format, ...)
{
    va_list args;

    printf("%10.3f ", (double)world.now_us / 1e6);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* ---- Events ------------------------------------------------------------------------------ */

static bool is_before(const struct world_event *a, const struct world_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void push_ordered(struct world_event event)
{
    size_t i = world.event_count++;

    if (world.event_count > world.event_capacity) {
        world.event_capacity = world.event_capacity ? 2 * world.event_capacity : 256;
        world.events = realloc(world.events, world.event_capacity * sizeof event);
        if (!world.events)
            abort();
    }
    while (i > 0 && is_before(&event, &world.events[(i - 1) / 2])) {
        world.events[i] = world.events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    world.events[i] = event;
}

/* Events that are due now, in the order in which they were pushed: half of all events. */
static struct world_event soon[256];
static size_t soon_first, soon_count;

void world_push(struct world_event event)
{
    const size_t size = sizeof soon / sizeof *soon;

    event.order = ++world.order;
    if (event.at_us <= world.now_us && soon_count < size) {
        event.at_us = world.now_us;
        soon[(soon_first + soon_count++) % size] = event;
    } else {
        push_ordered(event);
    }
}

static const struct world_event *next_event(void)
{
    const struct world_event *event = world.event_count ? world.events : NULL;

    return soon_count && (!event || is_before(&soon[soon_first], event))
               ? &soon[soon_first]
               : event;
}

static struct world_event pop_soon(void)
{
    const struct world_event event = soon[soon_first];

    soon_first = (soon_first + 1) % (sizeof soon / sizeof *soon);
    soon_count--;
    return event;
}

static struct world_event pop(void)
{
    const struct world_event first = world.events[0];
    const struct world_event last = world.events[--world.event_count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < world.event_count) {
        if (child + 1 < world.event_count &&
            is_before(&world.events[child + 1], &world.events[child]))
            child++;
        if (!is_before(&world.events[child], &last))
            break;
        world.events[i] = world.events[child];
        i = child;
    }
    world.events[i] = last;
    return first;
}

void world_call(struct world_node *node, uint64_t after_us, void (*function)(void *),
                void *context)
{
    world_push((struct world_event){.at_us = world.now_us + after_us,
                                    .kind = EVENT_CALL,
                                    .node = node->index,
                                    .life = node->life,
                                    .function = function,
                                    .subject = context});
}

/* ---- Clocks ------------------------------------------------------------------------------ */

/* How long the machine was suspended so far. */
static uint64_t asleep_us(const struct world_node *node)
{
    return node->asleep_us + (node->stopped_us[PART_HOST]
                                  ? world.now_us - node->stopped_us[PART_HOST]
                                  : 0);
}

static uint64_t scale(const struct world_node *node, uint64_t true_us)
{
    return true_us * (uint64_t)node->rate /
           1000000000; /* no overflow for hours of time */
}

/* A small value only after a restart of the machine. */
static uint64_t base_ms(const struct world_node *node)
{
    return node->boots > 1 ? CLOCK_REBOOT_MS : CLOCK_BASE_MS;
}

/* CLOCK_MONOTONIC, which libuv's timers use. */
static uint64_t awake_ms(const struct world_node *node)
{
    return base_ms(node) +
           scale(node, world.now_us - node->booted_us - asleep_us(node));
}

uint64_t world_clock_ms(const struct world_node *node)
{
    if (world.mutant == MUTANT_MONOTONIC_CLOCK)
        return awake_ms(node);
    return base_ms(node) + scale(node, world.now_us - node->booted_us);
}

/* How long (true time) a clock of that rate takes to advance by this. */
static uint64_t wait_us(const struct world_node *node, uint64_t ms)
{
    return ms > 1000000000
               ? 1000000000000000ULL
               : (ms * 1000000000 + (uint64_t)node->rate - 1) / (uint64_t)node->rate;
}

uint64_t world_when_us(const struct world_node *node, uint64_t clock_ms)
{
    const uint64_t now_ms = world_clock_ms(node);

    return world.now_us + (clock_ms > now_ms ? wait_us(node, clock_ms - now_ms) : 0);
}

static const struct world_node *whose(void)
{
    return world.current ? world.current : &world.nodes[0];
}

uint64_t ct_now_ms(void)
{
    return world_clock_ms(whose());
}

uint64_t ct_now_ns(void)
{
    return ct_now_ms() * 1000000;
}

uint64_t ct_wall_ns(void)
{
    return ct_now_ns();
}

uint64_t ct_suspended_ms(void)
{
    return 0;
}

uint64_t ct_deadline_ms(uint64_t timeout_ms)
{
    const uint64_t now_ms = ct_now_ms();

    return timeout_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + timeout_ms;
}

int ct_left_ms(uint64_t deadline_ms)
{
    const uint64_t now_ms = ct_now_ms();

    if (deadline_ms <= now_ms)
        return 0;
    return deadline_ms - now_ms > INT_MAX ? INT_MAX : (int)(deadline_ms - now_ms);
}

void ct_format_wall(char *dst, uint64_t wall_ns)
{
    (void)wall_ns;
    dst[0] = '\0';
}

ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned flags)
{
    uint8_t *bytes = buffer;

    (void)flags;
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)world_draw(256);
    return (ssize_t)length;
}

/* ---- Timers of the agent's loop and of libuv --------------------------------------------- */

struct loop_timer {
    struct world_node *node;
    loop_timer_fn *fn;
    void *context;
    uint64_t due_ms;    /* 0: not set */
    uint64_t queued_us; /* time of its queued event; 0: none */
};

/* If a timer is set to a later time, which is the usual case, it is queued again when its event is
 * due. */
static void queue_timer(struct loop_timer *timer)
{
    const uint64_t now_ms = awake_ms(timer->node);
    const uint64_t at_us =
        world.now_us +
        (timer->due_ms > now_ms ? wait_us(timer->node, timer->due_ms - now_ms) : 0);

    if (timer->queued_us > 0 && timer->queued_us <= at_us)
        return;
    timer->queued_us = at_us;
    world_push((struct world_event){.at_us = at_us,
                                    .kind = EVENT_TIMER,
                                    .node = timer->node->index,
                                    .life = timer->node->life,
                                    .subject = timer,
                                    .number = at_us});
}

struct loop_timer *loop_timer_open(struct loop *loop, loop_timer_fn *fn, void *context)
{
    struct loop_timer *timer = world_alloc(sizeof *timer);

    (void)loop;
    *timer = (struct loop_timer){world.current, fn, context, 0, 0};
    return timer;
}

void loop_timer_set(struct loop_timer *timer, uint64_t delay_ms)
{
    timer->due_ms = awake_ms(timer->node) + delay_ms;
    queue_timer(timer);
}

void loop_timer_stop(struct loop_timer *timer)
{
    timer->due_ms = 0;
}

void loop_timer_close(struct loop_timer *timer)
{
    if (timer)
        timer->due_ms = 0;
}

static void on_timer(const struct world_event *event)
{
    struct loop_timer *timer = event->subject;

    if (timer->queued_us != event->number)
        return; /* the timer was set to an earlier time */
    timer->queued_us = 0;
    if (timer->due_ms == 0)
        return; /* stopped */
    if (timer->due_ms > awake_ms(timer->node)) {
        queue_timer(timer); /* set to a later time, or the machine was suspended */
        return;
    }
    timer->due_ms = 0;
    timer->fn(timer->context);
}

struct uv_shim {
    uv_timer_t *handle;
    uv_timer_cb callback;
};

static void on_uv_timer(void *context)
{
    const struct uv_shim *shim = context;

    shim->callback(shim->handle);
}

static void **shim_of(uv_timer_t *handle)
{
    return &handle->u.reserved[0];
}

int __wrap_uv_timer_init(uv_loop_t *loop, uv_timer_t *handle)
{
    struct uv_shim *shim = world_alloc(sizeof *shim);

    shim->handle = handle;
    *shim_of(handle) = loop_timer_open((struct loop *)loop, on_uv_timer, shim);
    return 0;
}

int __wrap_uv_timer_start(uv_timer_t *handle, uv_timer_cb callback, uint64_t timeout_ms,
                          uint64_t repeat_ms)
{
    struct loop_timer *timer = *shim_of(handle);

    (void)repeat_ms;
    ((struct uv_shim *)timer->context)->callback = callback;
    loop_timer_set(timer, timeout_ms);
    return 0;
}

void __wrap_uv_unref(uv_handle_t *handle)
{
    (void)handle;
}

struct closing {
    struct closing *next;
    uv_handle_t *handle;
    uv_close_cb callback;
    struct conn *conn;
};

static struct closing *closings;

void __wrap_uv_close(uv_handle_t *handle, uv_close_cb callback)
{
    struct closing *closing = world_alloc(sizeof *closing);

    loop_timer_close(*shim_of((uv_timer_t *)handle));
    *closing = (struct closing){closings, handle, callback, NULL};
    closings = closing;
}

/* ---- Stops ------------------------------------------------------------------------------- */

bool world_is_stopped(const struct world_node *node, enum world_part part)
{
    return node->stopped_us[part] || node->stopped_us[PART_HOST];
}

void world_stop(struct world_node *node, enum world_part part, uint64_t for_us)
{
    if (!node->is_on)
        return;
    if (!node->stopped_us[part])
        node->stopped_us[part] = world.now_us ? world.now_us : 1;
    if (world.now_us + for_us > node->resumes_us[part])
        node->resumes_us[part] = world.now_us + for_us;
    world_push((struct world_event){.at_us = node->resumes_us[part],
                                    .kind = EVENT_RESUME,
                                    .node = node->index,
                                    .number = part});
}

static void await(struct world_node *node, const struct world_event *event)
{
    if (node->waiting_count == node->waiting_capacity) {
        node->waiting_capacity = node->waiting_capacity ? 2 * node->waiting_capacity
                                                        : 64;
        node->waiting = realloc(node->waiting,
                                node->waiting_capacity * sizeof *node->waiting);
        if (!node->waiting)
            abort();
    }
    node->waiting[node->waiting_count++] = *event;
}

/* Runs timers first, as libuv does. */
static void resume(struct world_node *node, enum world_part part)
{
    const size_t count = node->waiting_count;

    if (!node->stopped_us[part] || world.now_us < node->resumes_us[part])
        return;
    TRACE("node%d: part %d goes on", node->index, (int)part);
    world_note_exception(node);
    node->woke_us = world.now_us;
    if (part == PART_HOST) {
        node->has_slept = true;
        node->asleep_us += world.now_us - node->stopped_us[PART_HOST];
        if (node->live_generation && node->live_deadline_ms &&
            world_clock_ms(node) >= node->live_deadline_ms)
            node->is_excepted = true; /* they live until the guard's timer */
    }
    node->stopped_us[part] = 0;
    if (part == PART_HOST)
        world_check_live(node);
    node->waiting_count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < count; i++) {
            struct world_event event = node->waiting[i];
            const bool is_first = event.kind == EVENT_TIMER ||
                                  event.kind == EVENT_GUARD || event.kind == EVENT_DEAD;

            event.at_us = world.now_us;
            if (is_first == (pass == 0))
                world_push(event);
        }
    }
}

/* ---- Connections ------------------------------------------------------------------------- */

struct world_bytes {
    struct world_bytes *next;
    uint64_t at_us, sent_us, retry_us;
    size_t length;
    bool is_end;
    uint8_t data[];
};

struct loop_watch {
    struct world_conn *conn;
    loop_watch_fn *fn;
    void *context;
    unsigned events;
    bool is_closed;
};

/* The server's end. */
struct world_peer {
    struct conn conn; /* first, so that uv_fileno() finds its tcp */
    struct world_conn *world_conn;
    struct world_node *node;
};

enum {
    CLIENT,
    SERVER
};

static struct world_conn **conn_table;
static size_t conn_count, conn_capacity;

static struct world_conn *conn_of(int fd)
{
    return conn_table[(fd - FD_FIRST) / 2];
}

static int fd_of(const struct world_conn *conn, int end)
{
    size_t i = conn_count;

    while (conn_table[--i] != conn)
        ;
    return FD_FIRST + (int)(2 * i) + end;
}

static bool is_cut(int from, int to)
{
    return from != to && world.cut[from][to];
}

uint64_t world_delay_us(void)
{
    const uint64_t most_us = DELAY_MAX_US + (uint64_t)world.slow_ms * WORLD_MS;

    return 50 + world_draw(most_us);
}

static void push_conn(enum world_event_kind kind, struct world_conn *conn, int end,
                      uint64_t at_us)
{
    world_push((struct world_event){.at_us = at_us,
                                    .kind = kind,
                                    .node = -1,
                                    .subject = conn,
                                    .number = (uint64_t)end});
}

/* The program at this end has something to read. */
static void make_ready(struct world_conn *conn, int end)
{
    world_push((struct world_event){.at_us = world.now_us,
                                    .kind = EVENT_READY,
                                    .node = conn->ends[end],
                                    .life = conn->lives[end],
                                    .subject = conn,
                                    .number = (uint64_t)end});
}

static void fail_end(struct world_conn *conn, int end, int error)
{
    if (!conn->is_open[end] || conn->error[end])
        return;
    conn->error[end] = error;
    make_ready(conn, end);
}

static void transmit(struct world_conn *conn, int to, const void *data, size_t length,
                     bool is_end)
{
    struct world_flow *flow = &conn->flows[to];
    struct world_bytes *bytes;
    uint64_t at_us = world.now_us +
                     (conn->ends[0] == conn->ends[1] ? 50 : world_delay_us());

    if (world.is_muted || flow->has_end_sent)
        return;
    bytes = world_alloc(sizeof *bytes + length);
    bytes->sent_us = world.now_us;
    bytes->retry_us = RETRY_US;
    bytes->length = length;
    bytes->is_end = is_end;
    if (length > 0)
        memcpy(bytes->data, data, length);
    if (flow->last && flow->last->at_us > at_us)
        at_us = flow->last->at_us;
    bytes->at_us = at_us;
    flow->has_end_sent = is_end;
    flow->sent += length + is_end;
    if (flow->last)
        flow->last->next = bytes;
    else
        flow->first = bytes;
    flow->last = bytes;
    if (!flow->is_moving) {
        flow->is_moving = true;
        push_conn(EVENT_ARRIVE, conn, to, at_us);
    }
}

/* The kernel at this end knows the connection. */
static bool has_kernel(const struct world_conn *conn, int end)
{
    const struct world_node *node = &world.nodes[conn->ends[end]];

    return node->is_on && node->boots == conn->boots[end];
}

static void acknowledge(struct world_conn *conn, int to, uint64_t until)
{
    struct world_flow *flow = &conn->flows[to];

    if (is_cut(conn->ends[to], conn->ends[1 - to]))
        world_push((struct world_event){.at_us = world.now_us + RETRY_US,
                                        .kind = EVENT_ACK,
                                        .node = -1,
                                        .subject = conn,
                                        .number = until << 1 | (uint64_t)to});
    else if (until > flow->acked)
        flow->acked = until;
}

/* No program has this end open: the kernel answers with a reset. */
static void send_reset(struct world_conn *conn, int to)
{
    if (!is_cut(conn->ends[to], conn->ends[1 - to]) && has_kernel(conn, 1 - to))
        fail_end(conn, 1 - to, ECONNRESET);
}

static void take_bytes(struct world_conn *conn, int to, const struct world_bytes *bytes)
{
    struct world_flow *flow = &conn->flows[to];

    flow->received_us = world.now_us;
    if (!conn->is_open[to]) {
        if (!bytes->is_end)
            send_reset(conn, to);
        return;
    }
    if (bytes->is_end)
        flow->has_end = true;
    else if (ct_buf_append(&flow->in, bytes->data, bytes->length) < 0)
        abort();
    make_ready(conn, to);
}

static void on_arrive(struct world_conn *conn, int to)
{
    struct world_flow *flow = &conn->flows[to];
    const struct world_node *node = &world.nodes[conn->ends[to]];
    const bool is_lost = is_cut(conn->ends[1 - to], conn->ends[to]) || !node->is_on ||
                         node->stopped_us[PART_HOST];
    struct world_bytes *bytes = flow->first;
    uint64_t arrived;

    flow->is_moving = false;
    if (!bytes || !has_kernel(conn, 1 - to))
        return; /* the sender's machine is off or was restarted */
    if (is_lost) {
        if (to == SERVER && world.now_us - bytes->sent_us > world.lease_ms * WORLD_MS) {
            fail_end(conn, 1 - to, ETIMEDOUT); /* TCP_USER_TIMEOUT */
            return;
        }
        flow->is_moving = true;
        push_conn(EVENT_ARRIVE, conn, to, world.now_us + bytes->retry_us);
        if (bytes->retry_us < RETRY_MAX_US)
            bytes->retry_us *= 2;
        return;
    }
    if (!has_kernel(conn, to)) {
        send_reset(conn, to);
        return;
    }
    arrived = flow->sent;
    for (const struct world_bytes *left = bytes; left; left = left->next)
        arrived -= left->length + left->is_end;
    while (bytes && bytes->at_us <= world.now_us) {
        take_bytes(conn, to, bytes);
        arrived += bytes->length + bytes->is_end;
        bytes = bytes->next;
    }
    flow->first = bytes;
    if (!bytes)
        flow->last = NULL;
    acknowledge(conn, to, arrived);
    if (bytes) {
        flow->is_moving = true;
        push_conn(EVENT_ARRIVE, conn, to, bytes->at_us);
    }
}

/* ---- The agent's sockets ----------------------------------------------------------------- */

int __wrap_socket(int domain, int type, int protocol)
{
    struct world_conn *conn = world_alloc(sizeof *conn);

    (void)domain, (void)type, (void)protocol;
    if (conn_count == conn_capacity) {
        conn_capacity = conn_capacity ? 2 * conn_capacity : 64;
        conn_table = realloc(conn_table, conn_capacity * sizeof *conn_table);
        if (!conn_table)
            abort();
    }
    conn_table[conn_count++] = conn;
    conn->ends[CLIENT] = world.current->index;
    conn->lives[CLIENT] = world.current->life;
    conn->boots[CLIENT] = world.current->boots;
    conn->is_open[CLIENT] = true;
    ct_buf_init(&conn->flows[CLIENT].in, 1 << 20);
    ct_buf_init(&conn->flows[SERVER].in, 1 << 20);
    conn->next = world.conns;
    world.conns = conn;
    return FD_FIRST + (int)(2 * (conn_count - 1));
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct world_conn *conn = conn_of(fd);
    const struct sockaddr_in *v4 = (const void *)address;

    (void)length;
    conn->ends[SERVER] = (int)(ntohl(v4->sin_addr.s_addr) & 0xff) - 1;
    push_conn(EVENT_CONNECT, conn, SERVER, world.now_us + world_delay_us());
    errno = EINPROGRESS;
    return -1;
}

/* The kernel at the other end answers for a listening program, even if that is stopped. */
static void on_connect(struct world_conn *conn)
{
    const struct world_node *node = &world.nodes[conn->ends[SERVER]];

    if (!conn->is_open[CLIENT])
        return;
    if (!node->is_on || node->stopped_us[PART_HOST] ||
        is_cut(conn->ends[CLIENT], node->index) ||
        is_cut(node->index, conn->ends[CLIENT])) {
        push_conn(EVENT_CONNECT, conn, SERVER, world.now_us + SYN_RETRY_US);
        return;
    }
    conn->boots[SERVER] = node->boots;
    conn->lives[SERVER] = node->life;
    conn->is_open[SERVER] = conn->is_established = world_serves(node);
    if (!conn->is_established)
        conn->error[CLIENT] = ECONNREFUSED;
    push_conn(EVENT_ANSWER, conn, CLIENT, world.now_us + world_delay_us());
}

struct loop_watch *loop_watch_open(struct loop *loop, int fd, loop_watch_fn *fn,
                                   void *context)
{
    struct loop_watch *watch = world_alloc(sizeof *watch);

    (void)loop;
    *watch = (struct loop_watch){NULL, fn, context, 0, false};
    if (fd == WORLD_WAKE_FD)
        return watch;
    watch->conn = conn_of(fd);
    watch->conn->watch = watch;
    return watch;
}

void world_wake(struct loop_watch *watch)
{
    if (watch)
        watch->fn(watch->context, LOOP_READ);
}

void loop_watch_for(struct loop_watch *watch, unsigned events)
{
    watch->events = events;
}

int loop_watch_fd(const struct loop_watch *watch)
{
    return watch->conn ? fd_of(watch->conn, CLIENT) : WORLD_WAKE_FD;
}

int __wrap_close(int fd)
{
    struct world_conn *conn = conn_of(fd);

    conn->is_open[CLIENT] = false;
    conn->watch = NULL;
    if (conn->is_established)
        transmit(conn, SERVER, NULL, 0, true);
    return 0;
}

void loop_watch_close(struct loop_watch *watch)
{
    if (!watch || watch->is_closed)
        return;
    watch->is_closed = true;
    (void)__wrap_close(fd_of(watch->conn, CLIENT));
}

ssize_t __wrap_send(int fd, const void *data, size_t length, int flags)
{
    struct world_conn *conn = conn_of(fd);

    (void)flags;
    if (conn->error[CLIENT]) {
        errno = conn->error[CLIENT];
        return -1;
    }
    transmit(conn, SERVER, data, length, false);
    return (ssize_t)length;
}

ssize_t __wrap_recv(int fd, void *buffer, size_t length, int flags)
{
    struct world_conn *conn = conn_of(fd);
    struct ct_buf *in = &conn->flows[CLIENT].in;
    const size_t there = ct_buf_length(in);

    (void)flags;
    if (conn->error[CLIENT]) {
        errno = conn->error[CLIENT];
        return -1;
    }
    if (there == 0 && !conn->flows[CLIENT].has_end) {
        errno = EAGAIN;
        return -1;
    }
    if (there < length)
        length = there;
    if (length > 0)
        memcpy(buffer, ct_buf_data(in), length);
    ct_buf_consume(in, length);
    return (ssize_t)length;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    const int error = conn_of(fd)->error[CLIENT];

    (void)level, (void)name;
    memcpy(value, &error, sizeof error);
    *length = sizeof error;
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
    (void)fd, (void)level, (void)name, (void)value, (void)length;
    return 0;
}

static struct ct_addr address_of(int node, int port)
{
    return (struct ct_addr){
        .v4 = {.sin_family = AF_INET,
               .sin_port = htons((uint16_t)port),
               .sin_addr.s_addr = htonl(0x0a000000u + (unsigned)node + 1)},
        .length = sizeof(struct sockaddr_in)};
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *length)
{
    const struct ct_addr own = address_of(conn_of(fd)->ends[CLIENT], fd);

    memcpy(address, &own.any, own.length);
    *length = own.length;
    return 0;
}

int __wrap_poll(void *fds, unsigned long count, int timeout_ms)
{
    (void)fds, (void)count, (void)timeout_ms;
    return 0;
}

bool world_look(int fd, struct ct_tcp_view *view)
{
    struct world_conn *conn = conn_of(fd);
    const int end = (fd - FD_FIRST) % 2;
    const struct world_flow *in = &conn->flows[end], *out = &conn->flows[1 - end];

    *view = (struct ct_tcp_view){
        .is_open = conn->is_open[end] && !conn->error[end] && !in->has_end,
        .is_acknowledged = out->acked == out->sent,
        .has_unread = ct_buf_length(&in->in) > 0,
        .quiet_ms = (world.now_us - in->received_us) / WORLD_MS,
        .rtt_ms = 2 * DELAY_MAX_US / WORLD_MS};
    return true;
}

int ct_tcp_look(int fd, struct ct_tcp_view *view)
{
    return world_look(fd, view) ? 0 : -EINVAL;
}

static void read_client(struct world_conn *conn)
{
    struct loop_watch *watch = conn->watch;
    struct world_flow *flow = &conn->flows[CLIENT];

    while (watch && conn->watch == watch && !watch->is_closed &&
           (watch->events & LOOP_READ) &&
           (conn->error[CLIENT] || flow->has_end || ct_buf_length(&flow->in) > 0))
        watch->fn(watch->context, LOOP_READ);
}

static void on_answer(struct world_conn *conn)
{
    struct loop_watch *watch = conn->watch;

    if (watch && !watch->is_closed && conn->is_open[CLIENT])
        watch->fn(watch->context, LOOP_WRITE);
}

/* ---- The server's ------------------------------------------------------------------------ */

static struct world_peer *peer_of(struct conn *conn)
{
    return (struct world_peer *)conn;
}

/* Reads the first bytes as endpoint.c does. */
static void accept_conn(struct world_conn *conn)
{
    struct world_node *node = &world.nodes[conn->ends[SERVER]];
    struct world_peer *peer = world_alloc(sizeof *peer);
    struct ct_buf *in = &conn->flows[SERVER].in;

    peer->world_conn = conn;
    peer->node = node;
    peer->conn.pool = node->pool;
    peer->conn.out = &peer->conn.own_out;
    ct_buf_init(&peer->conn.own_out, CONN_OUT_MAX_BYTES);
    peer->conn.remote = address_of(conn->ends[CLIENT], fd_of(conn, CLIENT));
    peer->conn.local = address_of(conn->ends[SERVER], PORT);
    ct_list_add(&node->pool->conns, &peer->conn.node);
    conn->peer = peer;
    conn->is_accepted = true;
    dispatch_on_bytes(node->dispatch, &peer->conn, ct_buf_data(in), ct_buf_length(in));
    ct_buf_consume(in, ct_buf_length(in));
}

static void read_server(struct world_conn *conn)
{
    struct world_flow *flow = &conn->flows[SERVER];

    if (!conn->is_open[SERVER] || !world.nodes[conn->ends[SERVER]].dispatch)
        return;
    if (!conn->is_accepted && ct_buf_length(&flow->in) > 0 && !conn->error[SERVER])
        accept_conn(conn);
    if (!conn->is_accepted) {
        conn->is_open[SERVER] = !(conn->error[SERVER] || flow->has_end);
        return;
    }
    if (ct_buf_length(&flow->in) > 0 && conn->peer->conn.state == CONN_OPEN &&
        !conn->error[SERVER]) {
        struct ct_buf in = flow->in;

        ct_buf_init(&flow->in, 1 << 20);
        conn->peer->conn.user->on_bytes(&conn->peer->conn, ct_buf_data(&in),
                                        ct_buf_length(&in));
        ct_buf_deinit(&in);
    }
    if (conn->error[SERVER] || flow->has_end)
        conn_close(&conn->peer->conn,
                   conn->error[SERVER] ? "connection reset" : "connection closed");
}

static void check_frames(struct world_peer *peer)
{
    const struct ct_buf *out = peer->conn.out;
    const uint8_t *data = ct_buf_data(out);
    size_t left = ct_buf_length(out);
    struct ct_frame frame;
    int taken;

    while (left > 0 && (taken = ct_frame_decode(data, left, &frame)) > 0) {
        if (frame.kind == CT_MESSAGE_START || frame.kind == CT_MESSAGE_VERDICT ||
            frame.kind == CT_MESSAGE_HEARTBEAT_ACK || frame.kind == CT_MESSAGE_RESIZE)
            world_check_sent(peer->node, &world.nodes[peer->world_conn->ends[CLIENT]],
                             &peer->conn, &frame);
        data += taken;
        left -= (size_t)taken;
    }
}

static void finish_if_sent(struct conn *conn)
{
    if (conn->state != CONN_FINISHING)
        return;
    conn->state = CONN_SHUT;
    transmit(peer_of(conn)->world_conn, CLIENT, NULL, 0, true);
}

void conn_flush(struct conn *conn)
{
    struct ct_buf *out = conn->out;

    if (conn->state == CONN_CLOSING)
        return;
    if (ct_buf_length(out) > 0 && !world.is_muted)
        check_frames(peer_of(conn));
    if (ct_buf_length(out) > 0)
        transmit(peer_of(conn)->world_conn, CLIENT, ct_buf_data(out),
                 ct_buf_length(out), false);
    ct_buf_consume(out, ct_buf_length(out));
    finish_if_sent(conn);
}

void conn_finish(struct conn *conn)
{
    if (conn->state == CONN_OPEN)
        conn->state = CONN_FINISHING;
    conn_flush(conn);
}

void conn_close(struct conn *conn, const char *reason)
{
    struct closing *closing;

    if (conn->state == CONN_CLOSING)
        return;
    conn->state = CONN_CLOSING;
    (void)ct_format(conn->reason, sizeof conn->reason, "%s", reason);
    peer_of(conn)->world_conn->is_open[SERVER] = false;
    transmit(peer_of(conn)->world_conn, CLIENT, NULL, 0, true);
    closing = world_alloc(sizeof *closing);
    *closing = (struct closing){.next = closings, .conn = conn};
    closings = closing;
}

bool conn_prove(struct conn *conn, enum conn_rank rank)
{
    conn->rank = rank;
    return true;
}

void conn_set_deadline(struct conn *conn)
{
    (void)conn;
}

void conn_clear_deadline(struct conn *conn)
{
    (void)conn;
}

void conn_pause(struct conn *conn)
{
    (void)conn;
}

void conn_resume(struct conn *conn)
{
    (void)conn;
}

void conn_note(struct conn *conn, enum reject_kind kind)
{
    (void)conn, (void)kind;
}

int __wrap_uv_fileno(const uv_handle_t *handle, uv_os_fd_t *fd)
{
    const struct world_peer *peer = (const void *)handle;

    *fd = fd_of(peer->world_conn, SERVER);
    return 0;
}

void world_settle(void)
{
    while (closings) {
        const struct closing closing = *closings;

        closings = closing.next;
        if (closing.handle) {
            closing.callback(closing.handle);
            continue;
        }
        ct_list_remove(&closing.conn->node);
        if (closing.conn->user && closing.conn->user->on_close)
            closing.conn->user->on_close(closing.conn, closing.conn->reason);
        ct_buf_deinit(&closing.conn->own_out);
    }
}

void world_drop_conns(struct world_node *node, bool is_power)
{
    for (struct world_conn *conn = world.conns; conn; conn = conn->next) {
        for (int end = 0; end < 2; end++) {
            if (conn->ends[end] != node->index || !conn->is_open[end] ||
                conn->lives[end] != node->life)
                continue;
            conn->is_open[end] = false;
            if (end == CLIENT)
                conn->watch = NULL;
            if (!is_power && conn->is_established)
                transmit(conn, 1 - end, NULL, 0, true);
        }
    }
}

/* ---- The loop ---------------------------------------------------------------------------- */

static enum world_part part_of(enum world_event_kind kind)
{
    return kind == EVENT_GUARD  ? PART_GUARD
           : kind == EVENT_DEAD ? PART_HOST
                                : PART_AGENT;
}

/* What a mutant changes before the program reads a message. */
static void mutate_before(struct world_node *node)
{
    struct link *link = node->agent.link;

    if (!link)
        return;
    if (world.mutant == MUTANT_DEADLINE_FROM_ANSWER) {
        for (size_t i = 0; i < NODE_LEASE_SLOTS; i++)
            link->lease.sent_ms[i] = world_clock_ms(node);
    } else if (world.mutant == MUTANT_INSTANCE_IGNORED) {
        link->instance = 0;
    }
}

static void run_part(struct world_event *event)
{
    struct world_node *node = &world.nodes[event->node];

    if (!node->is_on || (event->life && (event->life != node->life || !node->is_up)))
        return;
    if (world_is_stopped(node, part_of(event->kind))) {
        await(node, event);
        return;
    }
    world.current = node;
    if (world.mutant)
        mutate_before(node);
    switch (event->kind) {
    case EVENT_TIMER: on_timer(event); break;
    case EVENT_CALL: event->function(event->subject); break;
    case EVENT_ANSWER: on_answer(event->subject); break;
    case EVENT_READY:
        if (event->number == CLIENT)
            read_client(event->subject);
        else
            read_server(event->subject);
        break;
    case EVENT_GUARD: world_on_guard(node); break;
    case EVENT_DEAD: world_on_dead(node); break;
    default: break;
    }
    world_settle();
    world.current = NULL;
}

static void happen(struct world_event *event)
{
    struct world_conn *conn = event->subject;

    switch (event->kind) {
    case EVENT_CONNECT: on_connect(conn); break;
    case EVENT_ANSWER:
        event->node = conn->ends[CLIENT];
        event->life = conn->lives[CLIENT];
        run_part(event);
        break;
    case EVENT_ARRIVE: on_arrive(conn, (int)event->number); break;
    case EVENT_ACK:
        acknowledge(conn, (int)(event->number & 1), event->number >> 1);
        break;
    case EVENT_ETCD: world_on_etcd(event); break;
    case EVENT_EXPIRE: world_on_expire(); break;
    case EVENT_STORY: event->function(event->subject); break;
    case EVENT_RESUME:
        resume(&world.nodes[event->node], (enum world_part)event->number);
        break;
    case EVENT_BOOT:
        if (event->number == world.nodes[event->node].life)
            world_boot(&world.nodes[event->node]);
        break;
    default: run_part(event); break;
    }
}

void world_run(uint64_t until_us)
{
    const struct world_event *next;

    while (!world.broken && !world.is_excused && (next = next_event()) &&
           next->at_us <= until_us) {
        struct world_event event = next == world.events ? pop() : pop_soon();

        world.now_us = event.at_us;
        happen(&event);
    }
    if (!world.broken && world.now_us < until_us)
        world.now_us = until_us;
}

void world_begin(uint64_t seed, enum world_mutant mutant, bool has_etcd, int node_count)
{
    struct world_event *events = world.events;
    const size_t capacity = world.event_capacity;

    memset(&world, 0, offsetof(struct world, nodes));
    for (int i = 0; i < WORLD_NODES_MAX; i++)
        memset(&world.nodes[i], 0, offsetof(struct world_node, options));
    arena_piece = arena_used = conn_count = soon_count = 0;
    world.events = events;
    world.event_capacity = capacity;
    world.seed = seed;
    world.random = seed * 0x9E3779B97F4A7C15ULL + 1;
    world.mutant = mutant;
    world.has_etcd = has_etcd;
    world.node_count = node_count;
    world.now_us = 1;
    for (int i = 0; i < node_count; i++) {
        world.nodes[i].index = i;
        world.nodes[i].rate = 950000 + (int64_t)world_draw(100001);
    }
    world_check_begin();
    if (has_etcd)
        world_etcd_begin();
}

void world_end(void)
{
    for (int i = 0; i < world.node_count; i++) {
        world_power_off(&world.nodes[i]);
        free(world.nodes[i].waiting);
    }
    for (size_t i = 0; i < conn_count; i++) {
        ct_buf_deinit(&conn_table[i]->flows[0].in);
        ct_buf_deinit(&conn_table[i]->flows[1].in);
    }
    if (world.has_etcd)
        world_etcd_end();
}
