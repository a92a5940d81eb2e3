/* SPDX-License-Identifier: Apache-2.0 */
/* The server in this process: the rendezvous when it is ours, and the worker stores of its
 * rounds. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/control/ctl_mark.h"
#include "agent/loop/limits.h"
#include "agent/process/descriptors.h"
#include "launcher/run/launch_private.h"
#include "rendezvous/net/listen_fd.h"
#include "rendezvous/net/peer_uid.h"
#include "rendezvous/net/port_owner.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/log.h"

enum {
    JAX_TRIES = 128 /* stores opened at most, to find one with a free next port */
};

/* Creates the server when the first listener is needed. */
static int need_server(struct launch *launch, struct ctrun_error *err)
{
    const struct server_options options = {
        .run_id = launch->config->run.run_id,
        .endpoint_is_store = launch->config->rdzv.backend == CONFIG_STATIC,
        .token = &launch->config->rdzv.token,
        .uses_munge = launch->config->rdzv.uses_munge,
        .wants_seal = launch->config->rdzv.wants_seal,
        .accepts_anybody = launch->config->rdzv.accepts_anybody,
        .host = launch->config->run.host,
        .expected = (const char *const *)launch->config->run.expected.names,
        .expected_count = launch->config->run.expected.count,
        .expected_tasks = launch->config->run.expected_tasks,
        .ports = launch->config->rdzv.ports,
        .store_addr = launch->addresses.has_bind ? &launch->addresses.bind : NULL,
        .guards_stores = launch->config->rdzv.guards_stores,
        .held_from_ms = launch->config->run.nodes.max > 1
                            ? ctl_mark_find(launch->config->run.run_id, ct_now_ms())
                            : 0,
        .conns_max = descriptors_left(AGENT_DESCRIPTORS +
                                      AGENT_DESCRIPTORS_PER_WORKER *
                                          (size_t)launch->config->run.nproc),
        .ha = launch->ha ? ha_hooks(launch->ha) : NULL,
        .commit = launch->candidate ? leader_candidate_output_commit(launch->candidate)
                                    : NULL,
        .journal = launch->candidate ? leader_candidate_sink(launch->candidate) : NULL,
    };

    return launch->server ? 0 : server_create(&launch->server, &options, err);
}

/* True when this server opens a store of its own for each round. */
static bool has_store(const struct config *config)
{
    return config->rdzv.backend != CONFIG_STATIC && !config->rdzv.worker_serves;
}

/* Starts the server's thread last: neither the listener nor the first store waits for it. If the store
 * cannot be opened now, open_one_store() tries again for the first round, and reports why not. */
static int serve_at(struct launch *launch, const struct ct_addr *addr, uint16_t *port,
                    struct ctrun_error *err)
{
    int rc = need_server(launch, err);

    if (rc == 0)
        rc = server_listen(launch->server, addr, port, err);
    if (rc < 0)
        return rc;
    if (launch->store == 0 && has_store(launch->config))
        (void)server_open_store(launch->server, &launch->store_port, &launch->store,
                                NULL);
    return server_start(launch->server, err);
}

static struct ct_addr where_to_listen(const struct launch *launch)
{
    const struct ct_addr any = {.v6.sin6_family = AF_INET6, .length = sizeof any.v6};

    return launch->addresses.has_bind ? launch->addresses.bind : any;
}

/* Makes this node a candidate; it serves as soon as it is elected. */
static int stand_for_host(struct launch *launch, struct ctrun_error *err)
{
    struct ct_addr addr = where_to_listen(launch);
    uint16_t port;
    int rc;

    if ((rc = leader_candidate_create(&launch->candidate, launch->config, err)) < 0 ||
        (rc = serve_at(launch, &addr, &port, err)) < 0)
        return rc;
    return leader_candidate_start(launch->candidate, launch->server, &launch->addresses,
                                  port, err);
}

/* ---- --ha ------------------------------------------------------------------------------ */

/* Called before the server is created: it gets the candidate and the ha hooks. */
int launch_prepare_ha(struct launch *launch, struct ctrun_error *err)
{
    const struct config *config = launch->config;
    struct ha_options options = {.config = config,
                                 .addresses = &launch->addresses,
                                 .keeper = &launch->ha_keeper};
    int rc;

    if (config->rdzv.ha.nodes == 0 || launch->ha)
        return 0;
    launch->ha_keeper = (struct ha_keeper){.fd = config->rdzv.ha.keeper};
    if ((rc = leader_candidate_create(&launch->candidate, config, err)) < 0)
        return rc;
    options.candidate = launch->candidate;
    return ha_create(&launch->ha, &options, err);
}

/* A server rejects all nodes until it is elected, except the first one, which serves at once. */
int launch_start_ha(struct launch *launch, struct ctrun_error *err)
{
    struct ct_addr addr = where_to_listen(launch);
    const bool is_founder = launch->serves_rendezvous;
    uint16_t port = (uint16_t)ct_addr_port(&launch->endpoint.addrs[0]);
    int rc;

    if (!launch->ha)
        return 0;
    if (is_founder) {
        leader_candidate_serve(launch->candidate, launch->server);
        rc = server_lead(launch->server, 0, NULL, 0, 0, err);
    } else {
        rc = serve_at(launch, &addr, &port, err);
    }
    return rc < 0 ? rc
                  : ha_start(launch->ha, launch->server, port, is_founder,
                             &launch->reached, &launch->endpoint, err);
}

static bool fill_ha_report(void *context, const struct ct_addr *local,
                           uint64_t instance, uint64_t generation,
                           struct ct_ha_report *out)
{
    struct launch *launch = context;

    return ha_fill_report(launch->ha, local, instance, generation, out);
}

static void on_ha_plan(void *context, const struct ct_ha_plan *plan)
{
    struct launch *launch = context;

    ha_on_plan(launch->ha, plan);
}

static bool ha_finds_servers(void *context)
{
    struct launch *launch = context;

    return ha_finds(launch->ha);
}

static size_t find_servers(void *context, struct ct_addr *out, size_t max)
{
    const struct launch *launch = context;

    return leader_candidate_find_servers(launch->candidate, out, max);
}

int launch_serve_anywhere(struct launch *launch, uint16_t *port,
                          struct ctrun_error *err)
{
    struct ct_addr addr = where_to_listen(launch);
    int rc;

    ct_addr_set_port(&addr, launch->config->rdzv.endpoint.port);
    if ((rc = serve_at(launch, &addr, port, err)) == CTRUN_E_PORT_BUSY) {
        ct_addr_set_port(&addr, 0);
        rc = serve_at(launch, &addr, port, err);
    }
    if (rc < 0)
        return rc;
    ct_info("serving the rendezvous run=%s port=%d", launch->config->run.run_id, *port);
    launch->serves_rendezvous = true;
    return 0;
}

/* Listens at the first derived port that is free here; the other nodes try these ports in turn. */
static int listen_at_a_place(struct launch *launch, struct ct_addr *addr,
                             uint16_t *port, struct ctrun_error *err)
{
    const struct config *config = launch->config;
    int rc = serve_at(launch, addr, port, err);

    for (int i = 1; rc == CTRUN_E_PORT_BUSY && i < config->rdzv.place_count; i++) {
        ct_info("port %d is taken, next: %d", config->rdzv.places[i - 1],
                config->rdzv.places[i]);
        ct_addr_set_port(addr, config->rdzv.places[i]);
        rc = serve_at(launch, addr, port, err);
    }
    return rc;
}

/* True when the process that has the port is a ctrun or ctrund that serves this run. */
static bool is_served_here(const struct launch *launch)
{
    const int found = rdzv_endpoint_find_ctrun(&launch->endpoint);

    if (found == -ETIMEDOUT &&
        port_owner_may_run(launch->config->rdzv.endpoint.port, "ctrun"))
        return rdzv_endpoint_await_ctrun(&launch->endpoint);
    return found > 0;
}

int launch_host_rendezvous(struct launch *launch, struct ctrun_error *err)
{
    enum rdzv_endpoint_role role = rdzv_endpoint_role(&launch->endpoint,
                                                      launch->config);
    struct ct_addr addr;
    uint16_t port;
    int rc;

    if (launch->config->rdzv.backend == CONFIG_ETCD)
        return stand_for_host(launch, err);
    if (role == RDZV_ENDPOINT_CLIENT)
        return 0;
    addr = addresses_choose_bind(&launch->endpoint, launch->config);
    rc = listen_at_a_place(launch, &addr, &port, err);
    if (rc == 0) {
        addresses_narrow(&launch->reached, &launch->addresses, &addr);
        ct_info("serving the rendezvous run=%s port=%d", launch->config->run.run_id,
                port);
        rdzv_endpoint_set_port(&launch->endpoint, port);
        launch->serves_rendezvous = true;
        return 0;
    }
    if (rc == CTRUN_E_PORT_BUSY && role == RDZV_ENDPOINT_SERVE_OR_JOIN &&
        is_served_here(launch)) {
        ct_info("the rendezvous is served by another process on this machine, a ctrun "
                "or a ctrund");
        return 0;
    }
    return rc;
}

/* Reserves a port until the workers start. */
static int keep_master_port(struct launch *launch, uint16_t *port,
                            struct ctrun_error *err)
{
    const struct listen_place place = {.ports = launch->config->rdzv.ports};
    struct ct_addr bound;
    int fd;

    launch_free_ports(launch);
    if ((fd = listen_fd_open(&place, &bound)) < 0)
        return ct_fail(err, fd, "no port can be opened for the workers' own store: %s",
                       strerror(-fd));
    launch->master_port_fd = fd;
    *port = (uint16_t)ct_addr_port(&bound);
    return 0;
}

void launch_free_ports(struct launch *launch)
{
    ct_close(&launch->master_port_fd);
    ct_close(&launch->jax_port_fd);
}

static int open_one_store(void *context, uint16_t *port, uint64_t *store,
                          struct ctrun_error *err)
{
    struct launch *launch = context;
    int rc;

    if (launch->config->rdzv.backend ==
        CONFIG_STATIC) { /* the store is at the endpoint: server.h */
        *port = (uint16_t)ct_addr_port(&launch->endpoint.addrs[0]);
        *store = 0;
        return 0;
    }
    if (launch->config->rdzv.worker_serves)
        return keep_master_port(launch, port, err);
    if (launch->store > 0) {
        *port = launch->store_port;
        *store = launch->store;
        launch->store = 0;
        return 0;
    }
    if ((rc = need_server(launch, err)) < 0 ||
        (rc = server_open_store(launch->server, port, store, err)) < 0)
        return rc;
    return server_start(launch->server, err);
}

static void close_store(void *context, uint64_t store)
{
    struct launch *launch = context;

    launch_free_ports(launch);
    if (has_store(launch->config))
        server_close_store(launch->server, store);
}

/* Reserves MASTER_PORT + 1 for JAX's coordinator (plan.c), which listens at all addresses. */
static int keep_jax_port(struct launch *launch, uint16_t master_port)
{
    const struct ct_port_range *ports = &launch->config->rdzv.ports;
    struct listen_place place = {
        .addr = {.v6.sin6_family = AF_INET6, .length = sizeof place.addr.v6}};
    struct ct_addr bound;

    if (master_port == UINT16_MAX ||
        (ports->first && !ct_port_range_has(ports, master_port + 1)))
        return -EADDRINUSE;
    ct_addr_set_port(&place.addr, master_port + 1);
    launch->jax_port_fd = listen_fd_open(&place, &bound);
    return launch->jax_port_fd < 0 ? launch->jax_port_fd : 0;
}

static const char *explain_jax_port(const struct ct_port_range *ports, int port, int rc)
{
    return port > UINT16_MAX ? "there is no such port"
           : ports->first && !ct_port_range_has(ports, port)
               ? "it is not in --port-range"
               : strerror(-rc);
}

/* A store whose next port is taken stays open until a better one is found: else the next try
 * could get the same port again. */
static int open_store(void *context, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err)
{
    struct launch *launch = context;
    const bool is_fixed = launch->config->rdzv.backend == CONFIG_STATIC;
    uint64_t tried[JAX_TRIES];
    int count = 0;
    int rc;

    do {
        if ((rc = open_one_store(launch, port, store, err)) < 0 ||
            !launch->config->work.has_jax || (rc = keep_jax_port(launch, *port)) == 0)
            break;
        tried[count++] = *store;
        (void)ct_fail(err, rc,
                      "--jax: port %d (MASTER_PORT + 1) is needed for JAX's "
                      "coordinator: %s",
                      *port + 1,
                      explain_jax_port(&launch->config->rdzv.ports, *port + 1, rc));
    } while (!is_fixed && count < JAX_TRIES);
    for (int i = 0; i < count && has_store(launch->config); i++)
        server_close_store(launch->server, tried[i]);
    return rc;
}

static bool store_is_unused(void *context, uint64_t store)
{
    struct launch *launch = context;

    return has_store(launch->config) && launch->server &&
           server_store_is_unused(launch->server, store);
}

static void watch_store(void *context, uint64_t store, uint32_t world, int met_fd)
{
    struct launch *launch = context;

    if (has_store(launch->config) && launch->server)
        server_watch_store(launch->server, store, world, met_fd);
}

static void look_at_store(void *context, uint64_t store, const pid_t *pids, int count,
                          struct agent_store_marks *out)
{
    struct launch *launch = context;
    struct server_store_marks marks = {0};

    if (!launch->config->rdzv.worker_serves && launch->server)
        server_get_store_marks(launch->server, store, &marks);
    *out = (struct agent_store_marks){.met_ms = marks.met_ms,
                                      .asked_ms = marks.asked_ms,
                                      .ranks = marks.ranks,
                                      .last = -1};
    if (marks.met_ms > 0 && count > 0)
        out->last = port_owner_choose(peer_inode_find(&marks.last, &marks.local), pids,
                                      count);
}

static void on_members(void *context, uint64_t store, const struct ct_members *members)
{
    struct launch *launch = context;

    if (has_store(launch->config) && launch->server)
        server_admit(launch->server, store, members);
}

void launch_fill_stores(const struct launch *launch, struct agent_options *options)
{
    options->find_servers = launch->candidate ? find_servers : NULL;
    if (launch->ha)
        options->ha = (struct agent_ha){
            .nodes = (unsigned)launch->config->rdzv.ha.nodes,
            .wake_fd = ha_wake_fd(launch->ha),
            .fill_report = fill_ha_report,
            .on_plan = on_ha_plan,
            .finds = ha_finds_servers};
    options->master_may_refuse = launch->config->rdzv.worker_serves;
    options->open_store = open_store;
    options->close_store = close_store;
    options->store_is_unused = store_is_unused;
    options->watch_store = watch_store;
    options->look_at_store = look_at_store;
    options->on_members = on_members;
}

/* Leaves a mark for the next server of this run on this machine: workers of other nodes may still
 * run when it starts. */
static void leave_mark(struct launch *launch)
{
    uint64_t from_ms;

    server_join(launch->server);
    from_ms = server_outlived_from_ms(launch->server);
    if (from_ms > 0)
        ctl_mark_leave(launch->config->run.run_id, from_ms);
}

/* Ends the threads first, then frees the memory: the server's thread uses the candidate's output
 * commit and journal, so it ends first. The candidate's thread calls the server, so the server's
 * memory is freed after that thread has ended too. */
void launch_close_server(struct launch *launch)
{
    ha_stop(launch->ha);
    if (launch->serves_rendezvous)
        leave_mark(launch);
    if (launch->candidate && launch->server)
        server_join(launch->server);
    if (launch->candidate)
        leader_candidate_stop(launch->candidate);
    server_destroy(launch->server);
    leader_candidate_destroy(launch->candidate);
    ha_destroy(launch->ha);
}
