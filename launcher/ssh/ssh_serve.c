/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_serve.h"

#include <errno.h>

#include "launcher/options/option.h"
#include "rendezvous/server/server.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/net/net.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/net/port_range.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/auth.h"

struct ssh_serve {
    struct server *server;
    struct ct_auth_token token;
};

/* True for an address of this host that other hosts can use. */
static bool is_useful(const struct ct_addr *addr)
{
    return !ct_addr_is_loopback(addr) && ct_nic_is_mine(addr);
}

/* The address at which sshd was reached, from SSH_CONNECTION: "client port server port". */
static bool find_by_ssh(struct ct_addr *out)
{
    const char *rest = getenv("SSH_CONNECTION");
    char text[CT_ADDR_TEXT_MAX];
    const char *field = NULL;
    size_t length = 0;

    for (int i = 0; rest && i < 3; i++)
        if (!(field = ct_next_field(&rest, ' ', &length)))
            return false;
    return field && ct_format(text, sizeof text, "%.*s", (int)length, field) > 0 &&
           ct_addr_parse(text, 0, out) == 0 && is_useful(out);
}

static bool find_by_name(struct ct_addr *out, const char *name)
{
    struct ct_addr addrs[CT_ADDRS_MAX];
    const int count = ct_addr_resolve(name, 0, addrs, CT_ADDRS_MAX, NULL);

    for (int i = 0; i < count; i++)
        if (is_useful(&addrs[i])) {
            *out = addrs[i];
            return true;
        }
    return false;
}

/* The first address in the list; a machine without a network has its loopback address. */
static void find_any(struct ct_addr *out)
{
    struct ct_nic nics[CT_NICS_MAX];
    const int count = ct_nic_list(nics, CT_NICS_MAX); /* loopback comes last */

    if (count > 0 && is_useful(&nics[0].addr))
        *out = nics[0].addr;
    else
        (void)ct_addr_parse("127.0.0.1", 0, out);
}

/* The address that --net chooses. */
static int find_in_net(struct ct_addr *out, const char *text, const char *host,
                       struct ctrun_error *err)
{
    struct ct_nic nic;
    struct ct_net net;
    int rc = ct_net_parse(text, &net, err);

    if (rc < 0)
        return ct_wrap(err, "--net"), rc;
    if (ct_net_list(&net, &nic, 1) < 1)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--net=%s: %s has no such interface or address", text, host);
    *out = nic.addr;
    return 0;
}

static int choose_address(struct ct_addr *out, const struct ssh_job *job,
                          uint32_t place, const struct options *options,
                          struct ctrun_error *err)
{
    /* On the machine where --hosts was typed, SSH_CONNECTION is of the user's own login. */
    const bool is_called = ssh_job_count(job) < job->total;
    const char *net = option_text(options, OPTION_NET);

    if (*net)
        return find_in_net(out, net, ssh_job_host(job, place), err);
    if ((!is_called || !find_by_ssh(out)) &&
        !find_by_name(out, ssh_job_host(job, place)))
        find_any(out);
    return 0;
}

/* ---- The server -------------------------------------------------------------------------- */

/* Reads the rendezvous options of the command line, which is the same on all nodes. */
static int read_options(struct options *out, const struct ssh_job *job,
                        struct ctrun_error *err)
{
    int argc = 0;

    while (job->argv[argc])
        argc++;
    return options_parse(out, argc, job->argv, job->env, err);
}

static int start(struct ssh_serve *serve, const struct ssh_job *job,
                 const struct options *options, const struct ct_addr *addr,
                 uint16_t *port, struct ctrun_error *err)
{
    struct server_options server = {
        .run_id = job->run_id,
        .token = &serve->token,
        .uses_munge = strcmp(option_text(options, OPTION_AUTH), "munge") == 0,
        .wants_seal = options->values[OPTION_ENCRYPT].is_on,
    };
    int rc = ct_port_range_parse(option_text(options, OPTION_PORT_RANGE), &server.ports,
                                 err);

    if (rc == 0 && *job->token)
        rc = ct_auth_token_set(&serve->token, job->token, err);
    if (rc == 0)
        rc = server_create(&serve->server, &server, err);
    if (rc == 0)
        rc = server_listen(serve->server, addr, port, err);
    return rc < 0 ? rc : server_start(serve->server, err);
}

int ssh_serve_open(struct ssh_serve **out, const struct ssh_job *job, uint32_t place,
                   char *endpoint, size_t size, struct ctrun_error *err)
{
    struct ssh_serve *serve = ct_secret_zalloc(sizeof *serve);
    struct options options;
    char text[CT_ADDR_TEXT_MAX];
    struct ct_addr addr;
    uint16_t port = 0;
    int rc = serve ? read_options(&options, job, err)
                   : ct_fail(err, -ENOMEM, "out of memory");

    if (rc == 0)
        rc = choose_address(&addr, job, place, &options, err);
    if (rc == 0)
        rc = start(serve, job, &options, &addr, &port, err);
    if (rc < 0) {
        ssh_serve_close(serve);
        return rc;
    }
    ct_addr_set_port(&addr, port);
    ct_addr_format(text, &addr);
    (void)ct_copy(endpoint, size, text);
    *out = serve;
    return 0;
}

void ssh_serve_close(struct ssh_serve *serve)
{
    if (!serve)
        return;
    server_destroy(serve->server);
    ct_auth_token_wipe(&serve->token);
    ct_secret_free(serve);
}
