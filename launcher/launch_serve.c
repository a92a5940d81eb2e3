/* SPDX-License-Identifier: Apache-2.0 */
/* The server in this process: the rendezvous when it is ours, and the worker stores of its
 * rounds. */
#include <sys/random.h>

#include "launcher/launch_private.h"
#include "worker_sdk/base/log.h"

/* A thread with a loop, made when the first listener is needed. */
static int need_server(struct launch *launch, struct ctrun_error *err)
{
    const struct server_options options = {
        .run_id = launch->config->run_id,
        .endpoint_is_store = launch->config->backend == CONFIG_STATIC,
        .token = &launch->config->token,
        .uses_munge = launch->config->uses_munge,
        .wants_seal = launch->config->wants_seal,
        .ports = launch->config->ports,
        .store_addr = launch->addresses.has_bind ? &launch->addresses.bind : NULL,
        .guards_stores = launch->config->guards_stores,
        .self_key = launch->claim.key,
        .gate = launch->candidacy ? candidacy_gate(launch->candidacy) : NULL,
        .journal = launch->candidacy ? candidacy_sink(launch->candidacy) : NULL,
    };
    int rc;

    if (launch->server)
        return 0;
    if ((rc = server_create(&launch->server, &options, err)) < 0)
        return rc;
    if ((rc = server_start(launch->server, err)) < 0) {
        server_destroy(launch->server);
        launch->server = NULL;
    }
    return rc;
}

/* Worlds of these sizes may lose the rendezvous' node and go on: worker_sdk/wire/takeover.h. */
static void offer_heir(struct launch *launch)
{
    const struct config *config = launch->config;
    uint64_t key;

    if (config->backend == CONFIG_C10D && config->nodes.min >= 2 &&
        config->nodes.max > config->nodes.min &&
        getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key)
        launch->claim.key = key;
}

static struct ct_addr where_to_listen(const struct launch *launch)
{
    const struct ct_addr any = {.v6.sin6_family = AF_INET6, .length = sizeof any.v6};

    return launch->addresses.has_bind ? launch->addresses.bind : any;
}

/* Listens, and turns everybody away until the rendezvous' node is lost. */
static int stand_by(struct launch *launch, struct ctrun_error *err)
{
    struct ct_addr addr = where_to_listen(launch);
    int rc;

    if (launch->claim.key == 0)
        return 0;
    if ((rc = need_server(launch, err)) < 0)
        return rc;
    server_yield(launch->server);
    if (server_listen(launch->server, &addr, &launch->claim.port, err) < 0) {
        ct_warn("no standby for the rendezvous: %s", err->text);
        launch->claim = (struct ct_claim){0};
    }
    return 0;
}

static int inherit(void *context, const struct ct_heritage *heritage,
                   struct ctrun_error *err)
{
    struct launch *launch = context;

    return server_inherit(launch->server, heritage, err);
}

static void yield(void *context)
{
    struct launch *launch = context;

    server_yield(launch->server);
}

/* Serves as soon as it is elected. */
static int stand_for_host(struct launch *launch, struct ctrun_error *err)
{
    struct ct_addr addr = where_to_listen(launch);
    uint16_t port;
    int rc;

    if ((rc = candidacy_create(&launch->candidacy, launch->config, err)) < 0 ||
        (rc = need_server(launch, err)) < 0)
        return rc;
    if ((rc = server_listen(launch->server, &addr, &port, err)) < 0)
        return rc;
    return candidacy_start(launch->candidacy, launch->server, &launch->addresses, port,
                           err);
}

static size_t find_servers(void *context, struct ct_addr *out, size_t max)
{
    const struct launch *launch = context;

    return candidacy_find_servers(launch->candidacy, out, max);
}

int launch_serve_anywhere(struct launch *launch, uint16_t *port,
                          struct ctrun_error *err)
{
    struct ct_addr addr = where_to_listen(launch);
    int rc = need_server(launch, err);

    if (rc < 0)
        return rc;
    ct_addr_set_port(&addr, launch->config->endpoint.port);
    if ((rc = server_listen(launch->server, &addr, port, err)) == CTRUN_E_PORT_BUSY) {
        ct_addr_set_port(&addr, 0);
        rc = server_listen(launch->server, &addr, port, err);
    }
    if (rc < 0)
        return rc;
    ct_info("serving the rendezvous run=%s port=%d", launch->config->run_id, *port);
    launch->hosts_rendezvous = true;
    launch->claim.port = *port;
    return 0;
}

int launch_host_rendezvous(struct launch *launch, struct ctrun_error *err)
{
    enum hosts_role role = hosts_role(&launch->hosts, launch->config);
    struct ct_addr addr;
    uint16_t port;
    int rc;

    if (launch->config->backend == CONFIG_ETCD)
        return stand_for_host(launch, err);
    offer_heir(launch);
    if (role == HOSTS_CLIENT)
        return stand_by(launch, err);
    if ((rc = need_server(launch, err)) < 0)
        return rc;
    addr = addresses_choose_bind(&launch->hosts, launch->config);
    rc = server_listen(launch->server, &addr, &port, err);
    if (rc == 0) {
        ct_info("serving the rendezvous run=%s port=%d", launch->config->run_id, port);
        hosts_set_port(&launch->hosts, port);
        launch->hosts_rendezvous = true;
        launch->claim.port = port;
        return 0;
    }
    if (rc == CTRUN_E_PORT_BUSY && role == HOSTS_SERVE_OR_JOIN &&
        hosts_find_ctrun(&launch->hosts)) {
        ct_info("the rendezvous is served by another ctrun on this machine");
        return stand_by(launch, err);
    }
    return rc;
}

static int open_store(void *context, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err)
{
    struct launch *launch = context;
    int rc;

    if (launch->config->backend ==
        CONFIG_STATIC) { /* the endpoint itself: see server.h */
        *port = (uint16_t)ct_addr_port(&launch->hosts.addrs[0]);
        *store = 0;
        return 0;
    }
    if ((rc = need_server(launch, err)) < 0)
        return rc;
    return server_open_store(launch->server, port, store, err);
}

static void close_store(void *context, uint64_t store)
{
    struct launch *launch = context;

    if (launch->config->backend != CONFIG_STATIC)
        server_close_store(launch->server, store);
}

static void on_members(void *context, uint64_t store, const struct ct_members *members)
{
    struct launch *launch = context;

    if (launch->config->backend != CONFIG_STATIC && launch->server)
        server_admit(launch->server, store, members);
}

void launch_fill_stores(const struct launch *launch, struct agent_options *options)
{
    options->find_servers = launch->candidacy ? find_servers : NULL;
    if (launch->claim.key != 0) {
        options->inherit = inherit;
        options->yield = yield;
    }
    options->open_store = open_store;
    options->close_store = close_store;
    options->on_members = on_members;
}

void launch_close_server(struct launch *launch)
{
    if (launch->candidacy && launch->server)
        server_join(launch->server);
    if (launch->candidacy)
        candidacy_stop(launch->candidacy);
    server_destroy(launch->server);
    candidacy_destroy(launch->candidacy);
}
