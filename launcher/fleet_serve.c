/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/fleet_serve.h"

#include <errno.h>

#include "rendezvous/server.h"
#include "worker_sdk/base/addr.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/auth.h"

struct fleet_serve {
    struct server *server;
    struct ct_auth_token token;
};

/* An address of ours that others can use. */
static bool is_useful(const struct ct_addr *addr)
{
    return !ct_addr_is_loopback(addr) && ct_addr_is_mine(addr);
}

/* The address at which sshd was reached: "client port server port". */
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

/* A machine without a network has its loopback interface, which is enough for itself. */
static void find_any(struct ct_addr *out)
{
    struct ct_addr addrs[CT_ADDRS_MAX];
    const int count = ct_addr_local(addrs, CT_ADDRS_MAX);

    if (count > 0 && is_useful(&addrs[0])) /* loopback comes last */
        *out = addrs[0];
    else
        (void)ct_addr_parse("127.0.0.1", 0, out);
}

static void choose_address(struct ct_addr *out, const struct fleet_job *job,
                           uint32_t place)
{
    /* Whoever typed --hosts may have come here by ssh himself, from somewhere else. */
    const bool is_called = fleet_job_count(job) < job->total;

    if (is_called && find_by_ssh(out))
        return;
    if (!find_by_name(out, fleet_job_host(job, place)))
        find_any(out);
}

int fleet_serve_open(struct fleet_serve **out, const struct fleet_job *job,
                     uint32_t place, char *endpoint, size_t size,
                     struct ctrun_error *err)
{
    struct fleet_serve *serve = ct_zalloc(sizeof *serve);
    const struct server_options options = {.run_id = job->run_id,
                                           .token = serve ? &serve->token : NULL};
    char text[CT_ADDR_TEXT_MAX];
    struct ct_addr addr;
    uint16_t port = 0;
    int rc;

    if (!serve)
        return ct_fail(err, -ENOMEM, "out of memory");
    choose_address(&addr, job, place);
    rc = *job->token ? ct_auth_token_set(&serve->token, job->token, err) : 0;
    if (rc == 0)
        rc = server_create(&serve->server, &options, err);
    if (rc == 0)
        rc = server_listen(serve->server, &addr, &port, err);
    if (rc == 0)
        rc = server_start(serve->server, err);
    if (rc < 0) {
        fleet_serve_close(serve);
        return rc;
    }
    ct_addr_set_port(&addr, port);
    ct_addr_format(text, &addr);
    (void)ct_copy(endpoint, size, text);
    *out = serve;
    return 0;
}

void fleet_serve_close(struct fleet_serve *serve)
{
    if (!serve)
        return;
    server_destroy(serve->server);
    ct_auth_token_wipe(&serve->token);
    free(serve);
}
