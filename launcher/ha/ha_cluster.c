/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ha/ha_cluster.h"

#include <errno.h>

#include "launcher/ha/ha_keeper.h"
#include "worker_sdk/base/str.h"

static const char user[] = "root";

/* ---- Text ---------------------------------------------------------------------------- */

/* "https://10.0.0.1:2380" of a member. */
static void format_url(char *dst, size_t size, const char *addr, uint16_t port)
{
    const bool is_v6 = strchr(addr, ':');

    (void)ct_format(dst, size, "https://%s%s%s:%u", is_v6 ? "[" : "", addr,
                    is_v6 ? "]" : "", port);
}

void ha_cluster_format_name(char *dst, uint64_t key)
{
    (void)ct_format(dst, HA_NAME_MAX, "%016llx", (unsigned long long)key);
}

int ha_cluster_format(char *dst, size_t size, const struct ct_ha_plan *plan)
{
    int rc = 0;

    *dst = '\0';
    for (int i = 0; rc >= 0 && i < plan->count; i++) {
        const struct ct_ha_member *member = &plan->members[i];
        char url[CT_ADDR_TEXT_MAX + 24], name[HA_NAME_MAX];

        format_url(url, sizeof url, member->addr, member->peer_port);
        ha_cluster_format_name(name, member->key);
        rc = ct_append_item(dst, size, ",", "%s=%s", name, url);
    }
    return rc < 0 ? rc : 0;
}

void ha_cluster_fill(struct etcd_config *config, const struct ct_ha_plan *plan)
{
    config->endpoint_count = 0;
    for (int i = 0; i < plan->count; i++) {
        const struct ct_ha_member *member = &plan->members[i];
        struct ct_endpoint *at = &config->endpoints[config->endpoint_count];

        if (member->is_learner || member->client_port == 0)
            continue;
        (void)ct_copy(at->host, sizeof at->host, member->addr); /* a number: fits */
        at->port = member->client_port;
        config->endpoint_count++;
    }
}

/* ---- Calls --------------------------------------------------------------------------- */

/* An error in etcd's answer is a failure, unless it says that the wanted state exists already. */
static int finish(struct json_etcd_reply *reply, struct ctrun_error *err)
{
    int rc = 0;

    if (reply->code != 0 && !strstr(reply->message, "already"))
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply->message);
    json_etcd_reply_deinit(reply);
    return rc;
}

static int call(struct etcd *etcd, enum etcd_call call, const char *const texts[4],
                uint64_t deadline_ms, struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    int rc = texts ? json_etcd_texts(etcd_body(etcd), texts[0], texts[1], texts[2],
                                     texts[3])
                   : ct_buf_append(etcd_body(etcd), "{}", 2);

    if (rc < 0)
        return ct_fail(err, rc, "etcd: out of memory");
    rc = etcd_do(etcd, call, deadline_ms, &reply, err);
    return rc < 0 ? rc : finish(&reply, err);
}

bool ha_cluster_is_up(const struct etcd_config *config, uint64_t deadline_ms)
{
    struct etcd_config open = *config; /* who asks for its status needs no password */
    struct json_etcd_reply reply;
    struct ctrun_error err;
    struct etcd *etcd;
    bool is_up = false;

    open.user[0] = '\0';
    if (etcd_open(&etcd, &open, &err) < 0)
        return false;
    if (ct_buf_append(etcd_body(etcd), "{}", 2) == 0 &&
        etcd_do(etcd, ETCD_STATUS, deadline_ms, &reply, &err) == 0) {
        is_up = reply.code == 0 && reply.leader[0];
        json_etcd_reply_deinit(&reply);
    }
    etcd_close(etcd);
    return is_up;
}

/* `config` has one endpoint, the member on this node: only the leader itself can hand over, and
 * only the member itself tells whether it leads. */
int ha_cluster_move_lead(const struct etcd_config *config, const char *to,
                         uint64_t deadline_ms, struct ctrun_error *err)
{
    const char *const texts[] = {"targetID", to, NULL, NULL};
    struct json_etcd_reply reply;
    struct etcd *etcd;
    bool leads;
    int rc;

    if ((rc = etcd_open(&etcd, config, err)) < 0)
        return rc;
    if ((rc = ct_buf_append(etcd_body(etcd), "{}", 2)) == 0 &&
        (rc = etcd_do(etcd, ETCD_STATUS, deadline_ms, &reply, err)) == 0) {
        leads = reply.code == 0 && strcmp(reply.leader, reply.member) == 0;
        json_etcd_reply_deinit(&reply);
        if (leads)
            rc = call(etcd, ETCD_MOVE_LEADER, texts, deadline_ms, err);
        rc = rc < 0 ? rc : leads;
    }
    etcd_close(etcd);
    return rc;
}

/* Authentication comes last: from then on nothing is answered without the user, who has to have the role by then. */
int ha_cluster_secure(const struct etcd_config *config, uint64_t deadline_ms,
                      struct ctrun_error *err)
{
    const char *const add_user[] = {"name", user, "password", config->password};
    const char *const add_role[] = {"name", user, NULL, NULL};
    const char *const grant[] = {"user", user, "role", user};
    struct etcd_config open = *config;
    struct etcd *etcd;
    int rc;

    open.user[0] = '\0';
    if ((rc = etcd_open(&etcd, &open, err)) < 0)
        return rc;
    if ((rc = call(etcd, ETCD_USER_ADD, add_user, deadline_ms, err)) == 0 &&
        (rc = call(etcd, ETCD_ROLE_ADD, add_role, deadline_ms, err)) == 0 &&
        (rc = call(etcd, ETCD_USER_GRANT, grant, deadline_ms, err)) == 0)
        rc = call(etcd, ETCD_AUTH_ENABLE, NULL, deadline_ms, err);
    etcd_close(etcd);
    return rc;
}

/* Where `url` leads, "https://10.0.0.1:2380". */
static void read_url(const char *url, char addr[CT_ADDR_TEXT_MAX], uint16_t *port)
{
    static const char scheme[] = "https://";
    struct ctrun_error err;
    struct ct_endpoint at;

    if (!ct_starts_with(url, scheme) ||
        ct_endpoint_parse(url + strlen(scheme), &at, &err) < 0 || at.port <= 0)
        return;
    (void)ct_copy(addr, CT_ADDR_TEXT_MAX, at.host);
    *port = (uint16_t)at.port;
}

static void read_member(struct ct_ha_member *out, const struct json_etcd_member *member,
                        const struct ct_ha_plan *known)
{
    *out = (struct ct_ha_member){.is_learner = member->is_learner};
    read_url(member->peer_url, out->addr, &out->peer_port);
    read_url(member->client_url, out->addr, &out->client_port);
    out->key = strtoull(member->name, NULL, 16);
    for (int i = 0; i < known->count; i++) /* one that starts has no name yet */
        if (out->key == known->members[i].key ||
            (strcmp(out->addr, known->members[i].addr) == 0 &&
             out->peer_port == known->members[i].peer_port)) {
            out->key = known->members[i].key;
            out->client_port = known->members[i].client_port;
        }
}

int ha_cluster_list(struct etcd *etcd, struct ct_ha_plan *plan,
                    char ids[CT_HA_MEMBERS_MAX][24], uint64_t deadline_ms,
                    struct ctrun_error *err)
{
    const struct ct_ha_plan known = *plan;
    struct json_etcd_reply reply;
    int rc = ct_buf_append(etcd_body(etcd), "{}", 2);

    if (rc < 0 || (rc = etcd_do(etcd, ETCD_MEMBER_LIST, deadline_ms, &reply, err)) < 0)
        return rc;
    if (reply.code == 0) {
        plan->count = 0;
        for (size_t i = 0; i < reply.member_count && i < CT_HA_MEMBERS_MAX; i++) {
            (void)ct_copy(ids[i], 24, reply.members[i].id);
            read_member(&plan->members[i], &reply.members[i], &known);
            plan->count++;
        }
    }
    return finish(&reply, err);
}

int ha_cluster_add(struct etcd *etcd, const struct ct_ha_member *member,
                   uint64_t deadline_ms, struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    char url[CT_ADDR_TEXT_MAX + 24];
    int rc;

    format_url(url, sizeof url, member->addr, member->peer_port);
    if ((rc = json_etcd_member_add(etcd_body(etcd), url)) < 0 ||
        (rc = etcd_do(etcd, ETCD_MEMBER_ADD, deadline_ms, &reply, err)) < 0)
        return rc;
    return finish(&reply, err);
}

int ha_cluster_change(struct etcd *etcd, enum etcd_call what, const char *id,
                      uint64_t deadline_ms, struct ctrun_error *err)
{
    const char *const texts[] = {"ID", id, NULL, NULL};

    return call(etcd, what, texts, deadline_ms, err);
}
