/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/rdzv_resolve.h"

#include <errno.h>
#include <strings.h>

#include "launcher/config/rdzv_batch.h"
#include "launcher/config/rdzv_etcd.h"
#include "launcher/config/rdzv_pmi.h"
#include "launcher/config/rdzv_host_slot.h"
#include "launcher/options/rdzv_conf.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum { /* torchrun's numbers, where it has them */
    STATIC_PORT = 29500,
    JOIN_TIMEOUT_MS = 600 * 1000,
    STATIC_TIMEOUT_MS = 900 * 1000,
    LAST_CALL_MS = 30 * 1000,
    KEEP_ALIVE_INTERVAL_MS = 5000,
    KEEP_ALIVE_ATTEMPTS = 3,
    HEARTBEAT_MS = 1000, /* ours: a lost node is known after five seconds */
    LOST_AFTER_MS = 5000,
};

static int choose_backend(const struct rdzv_target *to, const struct options *options,
                          struct ctrun_error *err)
{
    const char *name = option_text(options, OPTION_RDZV_BACKEND);
    bool has_endpoint = option_has_text(options, OPTION_RDZV_ENDPOINT);
    bool has_port = option_has_text(options, OPTION_MASTER_PORT);
    bool is_placed = has_port || option_has_text(options, OPTION_MASTER_ADDR) ||
                     option_is_given(options, OPTION_NODE_RANK);

    if (options->values[OPTION_STANDALONE].is_on) {
        to->rdzv->backend = CONFIG_LOCAL; /* whatever backend and endpoint are given */
        return 0;
    }
    if (option_is_given(options, OPTION_RDZV_BACKEND) && !*name)
        return ct_fail(err, -EINVAL,
                       "The rendezvous backend name must be a non-empty string.");
    if (*name && strcmp(name, "static") != 0 && strcmp(name, "c10d") != 0 &&
        !rdzv_etcd_is_named(name))
        return ct_fail(
            err, -EINVAL,
            "The rendezvous backend '%s' is not registered. Use c10d, etcd or "
            "static.",
            name);
    if (strcmp(name, "c10d") == 0)
        to->rdzv->backend = CONFIG_C10D;
    else if (rdzv_etcd_is_named(name))
        to->rdzv->backend = CONFIG_ETCD;
    else if (to->run->nodes.max == 1 && !has_endpoint && !has_port)
        to->rdzv->backend = CONFIG_LOCAL; /* torchrun does so for static too */
    else if (!*name && has_endpoint && to->run->nodes.max > 1 && !is_placed)
        to->rdzv->backend = CONFIG_C10D;
    else
        to->rdzv->backend = CONFIG_STATIC;
    return 0;
}

/* All nodes have the same range, so all choose alike. */
static int default_port(const struct rdzv_target *to, int port)
{
    return ct_port_range_has(&to->rdzv->ports, port) ? port : to->rdzv->ports.first;
}

/* Otherwise each node of --rdzv-endpoint=$HOST:29400 with an unset variable would wait for the
 * others at an address of its own. */
static int parse_endpoint(struct ct_endpoint *out, const struct options *options,
                          enum option_id id, struct ctrun_error *err)
{
    const char *text = option_text(options, id);
    const int rc = id == OPTION_RDZV_ENDPOINT ? ct_endpoint_parse_typed(text, out, err)
                                              : ct_endpoint_parse(text, out, err);

    if (rc == 0 && !out->host[0] && (out->port >= 0 || id == OPTION_MASTER_ADDR))
        return ct_fail(err, -EINVAL,
                       "--%s=%s: there is no host; is a variable of the shell empty?",
                       option_table[id].name, text);
    return rc;
}

static int resolve_static(const struct rdzv_target *to, const struct options *options,
                          struct ctrun_error *err)
{
    const struct option_value *rank = &options->values[OPTION_NODE_RANK];
    const struct option_value *port = &options->values[OPTION_MASTER_PORT];
    const char *endpoint = option_text(options, OPTION_RDZV_ENDPOINT);
    int rc;

    if (rank->integer < 0 || rank->integer >= to->run->nodes.max)
        return ct_fail(err, -EINVAL, "--node-rank=%s: must be 0 to %d with --nnodes=%s",
                       rank->text, to->run->nodes.max - 1,
                       option_text(options, OPTION_NNODES));
    to->run->node_rank = (int)rank->integer;
    to->run->nodes.min = to->run->nodes.max; /* static waits for all */
    if (*endpoint) {
        rc = parse_endpoint(&to->rdzv->endpoint, options, OPTION_RDZV_ENDPOINT, err);
        if (rc < 0)
            return rc;
        if (to->rdzv->endpoint.port < 0)
            return ct_fail(
                err, -EINVAL,
                "port is missing in endpoint: %s. Try to specify --master-port",
                endpoint);
        return 0;
    }
    rc = parse_endpoint(&to->rdzv->endpoint, options, OPTION_MASTER_ADDR, err);
    if (rc < 0)
        return rc;
    if (port->text && (port->integer < 0 || port->integer > 65535))
        return ct_fail(err, -EINVAL, "--master-port=%s: must be 0 to 65535",
                       port->text);
    to->rdzv->endpoint.port = port->text ? (int)port->integer
                                         : default_port(to, STATIC_PORT);
    return 0;
}

static int resolve_endpoint(const struct rdzv_target *to, const struct options *options,
                            struct ctrun_error *err)
{
    int rc;

    to->run->node_rank = -1;
    if (to->rdzv->backend == CONFIG_STATIC)
        return resolve_static(to, options, err);
    if (to->rdzv->backend == CONFIG_ETCD)
        return rdzv_etcd_resolve(to, options, err);
    if (to->rdzv->backend == CONFIG_LOCAL) {
        if (to->run->nodes.min > 1)
            return ct_fail(err, -EINVAL,
                           "--standalone is one node, but --nnodes=%s asks for more",
                           option_text(options, OPTION_NNODES));
        to->run->nodes.max = 1;
        return ct_endpoint_parse("127.0.0.1:0", &to->rdzv->endpoint, err);
    }
    if (!option_has_text(options, OPTION_RDZV_ENDPOINT) &&
        option_has_text(options, OPTION_MASTER_ADDR))
        ct_warn("master_addr is only used for static rdzv_backend when rdzv_endpoint "
                "is not "
                "specified; the endpoint is localhost:%d",
                CT_C10D_PORT);
    if (options->values[OPTION_NODE_RANK].integer != 0)
        ct_warn(
            "--node-rank: node_rank is only used for static rdzv_backend. It will be "
            "ignored for rdzv_backend=c10d.");
    rc = parse_endpoint(&to->rdzv->endpoint, options, OPTION_RDZV_ENDPOINT, err);
    if (rc < 0)
        return rc;
    if (!to->rdzv->endpoint.host[0])
        (void)ct_copy(to->rdzv->endpoint.host, sizeof to->rdzv->endpoint.host,
                      "localhost");
    if (to->rdzv->endpoint.port < 0)
        to->rdzv->endpoint.port = default_port(to, CT_C10D_PORT);
    return 0;
}

/* ---- Times --------------------------------------------------------------------------- */

static int resolve_keep_alive(const struct rdzv_target *to,
                              const struct rdzv_conf *conf, struct ctrun_error *err)
{
    uint64_t interval_ms = KEEP_ALIVE_INTERVAL_MS;
    int64_t attempts = KEEP_ALIVE_ATTEMPTS;
    int has_interval = rdzv_conf_get_seconds(conf, "keep_alive_interval", &interval_ms,
                                             err);
    int has_attempts = rdzv_conf_get_int(conf, "keep_alive_max_attempt", &attempts,
                                         err);

    if (has_interval < 0 || has_attempts < 0)
        return -EINVAL;
    if (attempts < 1 || attempts > 10000)
        return ct_fail(err, -EINVAL,
                       "--rdzv-conf: keep_alive_max_attempt=%lld must be 1 to 10000",
                       (long long)attempts);
    to->rdzv->heartbeat_ms = HEARTBEAT_MS;
    to->rdzv->lost_after_ms = LOST_AFTER_MS;
    if (!has_interval && !has_attempts)
        return 0;
    /* cannot overflow: seconds are limited by rdzv_conf.c, attempts above */
    to->rdzv->lost_after_ms = interval_ms * (uint64_t)attempts;
    if (to->rdzv->heartbeat_ms > to->rdzv->lost_after_ms / 3)
        to->rdzv->heartbeat_ms = to->rdzv->lost_after_ms /
                                 3; /* one lost packet is no lost node */
    return 0;
}

static int check_backoff(const struct rdzv_conf *conf, struct ctrun_error *err)
{
    const char *text = rdzv_conf_get(conf, "cas_backoff_max_seconds");
    double seconds;
    char *end;

    if (!text)
        return 0;
    seconds = strtod(text, &end);
    if (end == text || *end)
        return ct_fail(
            err, -EINVAL,
            "--rdzv-conf: cas_backoff_max_seconds('%s') is not a valid float value.",
            text);
    if (!(seconds >= 0 && seconds <= 1e300))
        return ct_fail(err, -EINVAL,
                       "--rdzv-conf: cas_backoff_max_seconds (%s) must be finite and "
                       "non-negative.",
                       text);
    return 0;
}

/* Checks keys that torchrun's c10d checks, although ctrun does not use them: to report typing
 * errors. */
static int check_unused(const struct rdzv_conf *conf, struct ctrun_error *err)
{
    static const char *const keys[] = {"close_timeout", "heartbeat_timeout"};
    const char *store = rdzv_conf_get(conf, "store_type");
    uint64_t unused;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (rdzv_conf_get_seconds(conf, keys[i], &unused, err) < 0)
            return -EINVAL;
    if (store && strcasecmp(store, "tcp") != 0) /* torchrun takes any case as well */
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: store_type=%s is not supported; leave it out, the "
                       "store is always tcp",
                       store);
    return check_backoff(conf, err);
}

static int resolve_times(const struct rdzv_target *to, const struct options *options,
                         struct ctrun_error *err)
{
    struct rdzv_conf conf;
    bool is_host;
    int rc;

    if ((rc = rdzv_conf_parse(option_text(options, OPTION_RDZV_CONF), &conf, err)) <
            0 ||
        (rc = rdzv_conf_check(&conf, err)) < 0)
        return rc;
    to->rdzv->join_timeout_ms = JOIN_TIMEOUT_MS;
    to->rdzv->last_call_ms = LAST_CALL_MS;
    if (to->rdzv->backend ==
            CONFIG_ETCD && /* torchrun's name for it; join_timeout wins */
        rdzv_conf_get_seconds(&conf, "timeout", &to->rdzv->join_timeout_ms, err) < 0)
        return -EINVAL;
    if (to->rdzv->backend == CONFIG_STATIC) {
        to->rdzv->join_timeout_ms = STATIC_TIMEOUT_MS;
        if ((rc = rdzv_conf_get_seconds(&conf, "join_timeout",
                                        &to->rdzv->join_timeout_ms, err)) >= 0)
            rc = rdzv_conf_get_seconds(&conf, "timeout", &to->rdzv->join_timeout_ms,
                                       err); /* torchrun's name for it */
    } else if ((rc = rdzv_conf_get_seconds(&conf, "join_timeout",
                                           &to->rdzv->join_timeout_ms, err)) >= 0 &&
               (rc = rdzv_conf_get_seconds(&conf, "last_call_timeout",
                                           &to->rdzv->last_call_ms, err)) >= 0) {
        rc = check_unused(&conf, err);
    }
    if (rc < 0 || (rc = resolve_keep_alive(to, &conf, err)) < 0)
        return rc;
    to->rdzv->connect_timeout_ms =
        to->rdzv->join_timeout_ms;           /* nodes start in any order */
    if ((to->rdzv->backend != CONFIG_ETCD && /* with etcd a limit of its client */
         (rc = rdzv_conf_get_seconds(&conf, "read_timeout",
                                     &to->rdzv->connect_timeout_ms, err)) < 0) ||
        (rc = rdzv_conf_get_bool(&conf, "is_host", &is_host, err)) < 0)
        return rc;
    if (rc == 1)
        to->rdzv->is_host = is_host ? CONFIG_HOST_YES : CONFIG_HOST_NO;
    return 0;
}

/* ---- Network, stores ------------------------------------------------------------------ */

static int resolve_net(const struct rdzv_target *to, const struct options *options,
                       struct ctrun_error *err)
{
    to->rdzv->net_text = option_text(options, OPTION_NET);
    to->rdzv->ports_text = option_text(options, OPTION_PORT_RANGE);
    if (ct_net_parse(to->rdzv->net_text, &to->rdzv->net, err) < 0)
        return ct_wrap(err, "--net"), err->code;
    if (ct_port_range_parse(to->rdzv->ports_text, &to->rdzv->ports, err) < 0)
        return ct_wrap(err, "--port-range"), err->code;
    return 0;
}

/* With the static backend torchrun's agent serves the workers in any case: at the endpoint. */
static bool read_worker_serves(const struct rdzv_target *to)
{
    const char *text = ct_env_find(to->env, CT_ENV_NO_SHARED_STORE);

    if (!text || strcmp(text, "1") != 0)
        return false;
    if (to->rdzv->backend == CONFIG_STATIC)
        ct_warn(CT_ENV_NO_SHARED_STORE
                "=1 has no effect with the static backend, whose "
                "endpoint is the worker store");
    return to->rdzv->backend != CONFIG_STATIC;
}

/* This node's place comes from, in this order: the launcher above (--hosts), the batch system,
 * the options. 1 from one of the first two means that it has filled in everything. */
int rdzv_resolve(const struct rdzv_target *to, const struct options *options,
                 struct ctrun_error *err)
{
    int rc = resolve_net(to, options, err);

    if (rc < 0)
        return rc;
    if ((rc = rdzv_host_slot_resolve(to, options, err)) == 0)
        rc = rdzv_batch_resolve(to, options, err);
    if (rc < 0 || (rc == 0 && ((rc = choose_backend(to, options, err)) < 0 ||
                               (rc = resolve_endpoint(to, options, err)) < 0)))
        return rc;
    if ((rc = rdzv_pmi_check(to, options, err)) < 0 ||
        (rc = resolve_times(to, options, err)) < 0)
        return rc;
    to->rdzv->guards_stores = strcmp(option_text(options, OPTION_STORE_ACCESS),
                                     "any") != 0;
    to->rdzv->worker_serves = read_worker_serves(to);
    return 0;
}
