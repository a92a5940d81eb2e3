/* SPDX-License-Identifier: Apache-2.0 */
/* The loop, its thread, and calls into the loop from other threads. endpoint.c (listeners, first
 * bytes), dispatch.c (agents) and store_port.c do the work on the loop. */
#include "rendezvous/server/server.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "rendezvous/server/endpoint.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/takeover.h"
#include "rendezvous/session/output_commit.h"
#include "rendezvous/session/ha_relay.h"
#include "rendezvous/store/store.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/thread.h"

/* A call from another thread, which runs on the loop. It is on the stack of the caller, which waits
 * until is_done: so the call and all it points to live as long as the loop needs them. */
struct call {
    struct ct_list node;
    int (*function)(struct server *server, struct call *call);
    const struct ct_addr *addr;
    uint16_t port;
    uint64_t store;
    const struct ct_members *members;
    uint32_t world;
    int met_fd;
    struct server_store_marks marks;
    const void *journal;
    size_t length;
    uint64_t term, served_ms;
    const struct ct_ha_plan *plan;
    struct ctrun_error *err;
    int rc;
    bool is_done;
};

struct server {
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t drain; /* limits the wait for agents that do not read */
    uv_timer_t retry; /* of the journal */
    struct conn_pool pool;
    struct dispatch dispatch;
    struct endpoint endpoint;
    struct ct_list stores;
    uint64_t last_store;
    char *run_id;
    bool endpoint_is_store;
    struct listen_place store_place; /* of worker stores */
    bool guards_stores;
    struct allow_list allowed; /* of the endpoint's store */
    bool is_draining;
    uint64_t outlived_from_ms; /* once it is closed */
    bool is_closed;

    atomic_bool is_stopping;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* calls, is_running */
    pthread_cond_t done;
    struct ct_list calls;
    uint64_t closing; /* id of a store to close before the calls run; 0: none */
    bool is_running;  /* calls go through the queue: another thread owns the loop */
};

/* ---- Calls from other threads ------------------------------------------------------------ */

static int call(struct server *server, struct call *call)
{
    pthread_mutex_lock(&server->mutex);
    if (!server->is_running) {
        pthread_mutex_unlock(&server->mutex);
        return call->function(server, call);
    }
    ct_list_add(&server->calls, &call->node);
    (void)uv_async_send(&server->wake); /* fails only on a closed handle */
    while (!call->is_done)
        pthread_cond_wait(&server->done, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
    return call->rc;
}

static struct store_port *find_store(const struct server *server, uint64_t id)
{
    ct_list_for_each(struct store_port, port, &server->stores, node) {
        if (port->id == id)
            return port;
    }
    return NULL;
}

/* is_last: callers run later calls themselves. This is set while the mutex is held and no call
 * waits: a call that came in between would wait for a loop that has ended. */
static void run_calls(struct server *server, bool is_last)
{
    struct store_port *port;

    pthread_mutex_lock(&server->mutex);
    port = find_store(server, server->closing);
    server->closing = 0;
    pthread_mutex_unlock(&server->mutex);
    store_port_close(port); /* takes NULL */
    pthread_mutex_lock(&server->mutex);
    while (!ct_list_is_empty(&server->calls)) {
        struct call *next = ct_list_entry(server->calls.next, struct call, node);

        ct_list_remove(&next->node);
        pthread_mutex_unlock(&server->mutex);
        next->rc = next->function(server, next);
        pthread_mutex_lock(&server->mutex);
        next->is_done = true;
        pthread_cond_broadcast(&server->done);
    }
    if (is_last)
        server->is_running = false;
    pthread_mutex_unlock(&server->mutex);
}

static int listen_on_loop(struct server *server, struct call *call)
{
    struct listen_place place = {.ports = server->store_place.ports};
    int rc;

    if (server->is_closed || server->is_draining)
        return ct_fail(call->err, -ESHUTDOWN,
                       "listen: the rendezvous server has ended");
    place.addr = *call->addr;
    rc = endpoint_listen(&server->endpoint, &place, &call->port, call->err);
    if (rc == 0 && server->endpoint_is_store &&
        server->dispatch.runs.endpoint_port == 0)
        server->dispatch.runs.endpoint_port = call->port;
    return rc;
}

int server_listen(struct server *server, const struct ct_addr *addr, uint16_t *port,
                  struct ctrun_error *err)
{
    struct call args = {.function = listen_on_loop, .addr = addr, .err = err};
    int rc = call(server, &args);

    if (rc == 0 && port)
        *port = args.port;
    return rc;
}

static int open_store_on_loop(struct server *server, struct call *call)
{
    struct store_port *port;
    int rc;

    if (server->is_closed)
        return ct_fail(call->err, -ESHUTDOWN, "open a store: the server has ended");
    if ((rc = store_port_open(&port, &server->pool, &server->store_place, call->err)) <
        0)
        return rc;
    if (server->guards_stores)
        store_port_guard(port);
    port->id = ++server->last_store;
    ct_list_add(&server->stores, &port->node);
    call->port = port->port;
    call->store = port->id;
    return 0;
}

int server_open_store(struct server *server, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err)
{
    struct call args = {.function = open_store_on_loop, .err = err};
    int rc = call(server, &args);

    if (rc == 0) {
        *port = args.port;
        *store = args.store;
    }
    return rc;
}

static int admit_on_loop(struct server *server, struct call *call)
{
    struct store_port *port = find_store(server, call->store);

    if (!port)
        return -ENOENT; /* the store's round is over already */
    store_port_admit(port, (const uint8_t(*)[16])call->members->keys,
                     call->members->count, call->members->is_last);
    return 0;
}

void server_admit(struct server *server, uint64_t store,
                  const struct ct_members *members)
{
    struct call args = {.function = admit_on_loop, .store = store, .members = members};

    (void)call(server, &args); /* a closed store needs no list */
}

static int look_at_store_on_loop(struct server *server, struct call *call)
{
    const struct store_port *port = find_store(server, call->store);

    return port && !port->is_used;
}

bool server_store_is_unused(struct server *server, uint64_t store)
{
    struct call args = {.function = look_at_store_on_loop, .store = store};

    return call(server, &args) == 1;
}

static int watch_store_on_loop(struct server *server, struct call *call)
{
    struct store_port *port = find_store(server, call->store);

    if (!port)
        return -ENOENT;
    store_port_watch(port, call->world, call->met_fd);
    return 0;
}

void server_watch_store(struct server *server, uint64_t store, uint32_t world,
                        int met_fd)
{
    struct call args = {.function = watch_store_on_loop,
                        .store = store,
                        .world = world,
                        .met_fd = met_fd};

    (void)call(server, &args); /* a closed store has no users */
}

static int get_marks_on_loop(struct server *server, struct call *call)
{
    const struct store_port *port = call->store == 0 && server->endpoint_is_store
                                        ? server->endpoint.store
                                        : find_store(server, call->store);
    struct store_stats stats;

    call->marks = (struct server_store_marks){0};
    if (!port)
        return 0;
    store_get_stats(port->store, &stats);
    call->marks = port->marks;
    call->marks.ranks = stats.ranks;
    return 0;
}

void server_get_store_marks(struct server *server, uint64_t store,
                            struct server_store_marks *out)
{
    struct call args = {.function = get_marks_on_loop, .store = store};

    (void)call(server, &args);
    *out = args.marks;
}

static int close_store_on_loop(struct server *server, struct call *call)
{
    struct store_port *port = find_store(server, call->store);

    if (!port)
        return -ENOENT; /* already closed: harmless */
    store_port_close(port);
    return 0;
}

void server_close_store(struct server *server, uint64_t store)
{
    struct call args = {.function = close_store_on_loop, .store = store};
    bool is_left;

    pthread_mutex_lock(&server->mutex);
    is_left = server->is_running && server->closing == 0;
    if (is_left)
        server->closing = store;
    pthread_mutex_unlock(&server->mutex);
    if (is_left)
        (void)uv_async_send(&server->wake); /* fails only on a closed handle */
    else
        (void)call(server, &args); /* an unknown store needs no closing */
}

/* ---- Elected, replaced ------------------------------------------------------------------- */

static int lead_on_loop(struct server *server, struct call *call)
{
    if (server->is_closed || server->is_draining)
        return ct_fail(call->err, -ESHUTDOWN, "the rendezvous server has ended");
    return takeover_begin(&server->dispatch, call->term, call->journal, call->length,
                          call->served_ms, call->err);
}

int server_lead(struct server *server, uint64_t term, const void *journal,
                size_t length, uint64_t served_ms, struct ctrun_error *err)
{
    struct call args = {.function = lead_on_loop,
                        .term = term,
                        .journal = journal,
                        .length = length,
                        .served_ms = served_ms,
                        .err = err};

    return call(server, &args);
}

static int step_down_on_loop(struct server *server, struct call *call)
{
    (void)call;
    if (!server->is_closed)
        dispatch_step_down(&server->dispatch);
    return 0;
}

void server_step_down(struct server *server)
{
    struct call args = {.function = step_down_on_loop};

    (void)call(server, &args); /* cannot fail */
}

static int send_ha_on_loop(struct server *server, struct call *call)
{
    if (!server->is_closed)
        ha_relay_send(&server->dispatch.ha, &server->dispatch.runs, call->plan);
    return 0;
}

void server_send_ha(struct server *server, const struct ct_ha_plan *plan)
{
    struct call args = {.function = send_ha_on_loop, .plan = plan};

    (void)call(server, &args); /* cannot fail */
}

void server_poke(struct server *server)
{
    (void)uv_async_send(&server->wake); /* fails only on a closed handle */
}

/* ---- The end of the loop ----------------------------------------------------------------- */

static void close_everything(struct server *server)
{
    if (server->is_closed)
        return;
    server->is_closed = true;
    server->outlived_from_ms = runs_outlived_from_ms(&server->dispatch.runs);
    /* first: closing must not be journalled as the end of runs */
    server->dispatch.runs.journal = NULL; /* runs continue with the next server */
    endpoint_close_listeners(&server->endpoint);
    endpoint_drop_store(&server->endpoint);
    ct_list_for_each_safe(struct store_port, port, &server->stores, node)
        store_port_close(port);
    conn_pool_close(&server->pool);
    uv_close((uv_handle_t *)&server->drain, NULL);
    uv_close((uv_handle_t *)&server->retry, NULL);
    uv_close((uv_handle_t *)&server->wake, NULL);
}

static void on_retry(uv_timer_t *timer)
{
    const struct journal_sink *journal =
        ((struct server *)timer->data)->dispatch.runs.journal;

    journal->retry(journal->context);
}

static void on_drained(uv_timer_t *timer)
{
    close_everything(timer->data);
}

static void on_forget(void *context)
{
    struct server *server = context;

    if (server->is_draining && !dispatch_has_verdicts_to_deliver(&server->dispatch))
        close_everything(server);
}

/* Accepts no new connections; agents may still read their verdicts. */
static void drain(struct server *server)
{
    if (server->is_draining)
        return;
    server->is_draining = true;
    endpoint_close_listeners(&server->endpoint);
    if (dispatch_has_verdicts_to_deliver(&server->dispatch))
        (void)uv_timer_start(&server->drain, on_drained, SERVER_DRAIN_MS,
                             0); /* open: cannot fail */
    else
        close_everything(server);
}

static void on_wake(uv_async_t *wake)
{
    struct server *server = wake->data;

    run_calls(server, false);
    if (server->dispatch.commit)
        output_commit_release(server->dispatch.commit);
    if (atomic_load(&server->is_stopping))
        drain(server);
}

/* ---- Life -------------------------------------------------------------------------------- */

static void on_start(void *context)
{
    struct server *server = context;

    if (server->endpoint_is_store)
        endpoint_drop_store(&server->endpoint);
}

static void on_members(void *context, const struct ct_members *members)
{
    struct server *server = context;

    if (allow_list_add(&server->allowed, (const uint8_t(*)[16])members->keys,
                       members->count) < 0)
        ct_err("worker store: out of memory for the list of nodes; the workers "
               "of some nodes are refused");
    if (members->is_last)
        allow_list_seal(&server->allowed);
}

static void add_store(struct store_stats *sum, const struct store_port *port)
{
    struct store_stats stats;

    store_get_stats(port->store, &stats);
    sum->keys += stats.keys;
    sum->clients += stats.clients;
    sum->waiting += stats.waiting;
    sum->data_bytes += stats.data_bytes;
    sum->output_bytes += stats.output_bytes;
    sum->requests += stats.requests;
}

static void sum_stores(void *context, struct store_stats *sum)
{
    struct server *server = context;

    if (server->endpoint.store)
        add_store(sum, server->endpoint.store);
    ct_list_for_each(struct store_port, port, &server->stores, node)
        add_store(sum, port);
}

/* The host name in messages: cut if too long, left out if not known. */
static void name_host(struct server *server, const struct server_options *options)
{
    char *name = server->dispatch.host;
    const size_t size = sizeof server->dispatch.host;

    if (options->host)
        (void)ct_copy(name, size, options->host);
    else
        (void)gethostname(name, size - 1);
}

static void wire_dispatch(struct server *server, const struct server_options *options)
{
    struct dispatch *dispatch = &server->dispatch;

    name_host(server, options);
    dispatch->pool = &server->pool;
    dispatch->only_run_id = server->run_id;
    dispatch->rules.token = options->token && options->token->length > 0
                                ? options->token
                                : NULL;
    dispatch->rules.uses_munge = options->uses_munge;
    dispatch->rules.wants_seal = options->wants_seal;
    dispatch->ha.hooks = options->ha;
    dispatch->commit = options->commit;
    dispatch->is_candidate = dispatch->commit != NULL;
    /* If a site's etcd elects the server, another one takes over; the run's own etcd may not exist
     * yet. */
    dispatch->is_in_agent = server->run_id && (!dispatch->commit || options->ha);
    dispatch->is_for_one_user = server->run_id && !options->accepts_anybody;
    dispatch->sum_stores = sum_stores;
    dispatch->context = server;
    dispatch->runs.is_in_ctrund = !server->run_id;
    dispatch->runs.journal = options->journal;
    dispatch->runs.expected = options->expected;
    dispatch->runs.expected_count = options->expected_count;
    dispatch->runs.expected_tasks = options->expected_tasks;
    dispatch->runs.has_ha = options->ha != NULL;
    dispatch->runs.held_from_ms = options->held_from_ms;
    dispatch->runs.on_start = on_start;
    dispatch->runs.on_forget = on_forget;
    dispatch->runs.loop = &server->loop;
    dispatch->runs.context = server;
    dispatch_init(dispatch);
}

static void wire(struct server *server, const struct server_options *options)
{
    server->endpoint_is_store = options->endpoint_is_store;
    server->guards_stores = options->guards_stores;
    server->store_place.ports = options->ports;
    if (options->store_addr)
        server->store_place.addr = *options->store_addr;
    wire_dispatch(server, options);
    server->endpoint.pool = &server->pool;
    server->endpoint.dispatch = &server->dispatch;
    server->endpoint.has_store = server->endpoint_is_store ||
                                 (!server->run_id &&
                                  !admission_has_secret(&server->dispatch.rules));
    if (server->endpoint_is_store) {
        server->dispatch.runs.on_members = on_members;
        server->endpoint.allowed = server->guards_stores ? &server->allowed : NULL;
    }
    endpoint_init(&server->endpoint);
    ct_list_init(&server->stores);
    ct_list_init(&server->calls);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_cond_init(&server->done, NULL);
    server->wake.data = server;
    server->drain.data = server;
    server->retry.data = server;
}

int server_create(struct server **out, const struct server_options *options,
                  struct ctrun_error *err)
{
    static const struct server_options none;
    struct server *server = ct_secret_zalloc(sizeof *server); /* MUNGE */
    int rc = -ENOMEM;

    if (!options)
        options = &none;
    if (!server)
        return ct_fail(err, rc, "rendezvous server: out of memory");
    if (options->run_id && !(server->run_id = ct_strdup(options->run_id)))
        goto fail;
    if ((rc = uv_loop_init(&server->loop)) < 0)
        goto fail;
    wire(server, options);
    if ((rc = uv_async_init(&server->loop, &server->wake, on_wake)) < 0)
        goto close_loop;
    (void)uv_timer_init(&server->loop, &server->drain); /* these only fill memory */
    (void)uv_timer_init(&server->loop, &server->retry);
    if (options->journal && options->journal->retry)
        (void)uv_timer_start(&server->retry, on_retry, SERVER_RETRY_MS,
                             SERVER_RETRY_MS);
    (void)conn_pool_init(&server->pool, &server->loop, options->conns_max);
    *out = server;
    if (options->book && takeover_restore(&server->dispatch.runs, options->book) < 0) {
        server_destroy(server);
        *out = NULL;
        return ct_fail(err, -ENOMEM, "rendezvous server: out of memory");
    }
    return 0;

close_loop:
    (void)uv_loop_close(&server->loop);
fail:
    free(server->run_id);
    ct_secret_free(server);
    return ct_fail(err, rc, "rendezvous server: %s", uv_strerror(rc));
}

static void set_running(struct server *server, bool is_running)
{
    pthread_mutex_lock(&server->mutex);
    server->is_running = is_running;
    pthread_mutex_unlock(&server->mutex);
}

static int run_loop(struct server *server)
{
    int rc = uv_run(&server->loop, UV_RUN_DEFAULT);

    run_calls(server, true); /* late calls find the server closed */
    return rc;
}

static void *run_thread(void *context)
{
    struct server *server = context;

    (void)run_loop(server); /* 0: it ends when every handle is closed */
    return NULL;
}

int server_start(struct server *server, struct ctrun_error *err)
{
    int rc;

    if (server->has_thread)
        return 0;
    set_running(server, true);
    /* The thread takes no signals: SIGPIPE stays pending there, which is harmless. */
    rc = ct_thread_start(&server->thread, run_thread, server);
    if (rc < 0) {
        set_running(server, false);
        return ct_fail(err, rc,
                       "rendezvous server: start a thread: %s; see ulimit -u and -v, "
                       "and pids.max of the cgroup",
                       strerror(-rc));
    }
    server->has_thread = true;
    return 0;
}

int server_run(struct server *server, struct ctrun_error *err)
{
    int rc;

    set_running(server, true);
    if ((rc = run_loop(server)) != 0)
        return ct_fail(err, -EBUSY,
                       "rendezvous server: the loop ended with open handles");
    return 0;
}

void server_stop(struct server *server)
{
    atomic_store(&server->is_stopping, true);
    (void)uv_async_send(
        &server->wake); /* fails only on a closed handle: it has stopped */
}

void server_join(struct server *server)
{
    if (!server->has_thread)
        return;
    server_stop(server);
    pthread_join(server->thread, NULL);
    server->has_thread = false;
}

uint64_t server_outlived_from_ms(const struct server *server)
{
    return server->outlived_from_ms;
}

size_t server_conns_max(const struct server *server, size_t *reserve)
{
    *reserve = server->pool.reserve;
    return server->pool.count_max;
}

/* The loop runs twice more: for the close callbacks of connections, then for those of the handles
 * that dispatch closes. */
void server_destroy(struct server *server)
{
    int rc;

    if (!server)
        return;
    server_join(server);
    close_everything(server); /* of a server that never ran */
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    dispatch_close(&server->dispatch);
    (void)uv_run(&server->loop, UV_RUN_DEFAULT);
    rc = uv_loop_close(&server->loop);
    assert(rc == 0);
    (void)rc;
    pthread_mutex_destroy(&server->mutex);
    pthread_cond_destroy(&server->done);
    allow_list_deinit(&server->allowed);
    http_deinit(&server->endpoint.http);
    ct_auth_token_wipe(&server->dispatch.rules.issued);
    free(server->run_id);
    ct_secret_free(server);
}
