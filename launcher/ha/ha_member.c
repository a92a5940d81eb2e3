/* SPDX-License-Identifier: Apache-2.0 */
/* This node's member of the run's own etcd: it starts and ends as the plan says. A member that has
 * ended by itself is never started again: this node becomes another member, with an empty
 * folder. */
#include <sys/random.h>
#include <unistd.h>

#include "launcher/ha/ha_private.h"
#include "launcher/net/server_record.h"
#include "worker_sdk/wire/text_code.h"

/* ---- Reporting -------------------------------------------------------------------------- */

/* The report has changed. */
static void wake_agent(struct ha *ha)
{
    const uint64_t one = 1;

    (void)!write(ha->wake_fd, &one, sizeof one);
}

static void emit(const char *what, uint64_t took_ms)
{
    ct_event_emit("ha_member", CT_STR("what", what), CT_INT("took_ms", took_ms));
}

/* A new key makes this node another member: nobody mistakes it for the old one, whose data are
 * gone. 0: no random bytes. */
static uint64_t make_key(void)
{
    uint64_t key;

    return getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key ? key | 1 : 0;
}

/* Another node becomes a member in place of this one. Only our thread writes `self`, with the
 * mutex, because the agent's loop reads it; so we read it without. */
static void withdraw(struct ha *ha)
{
    const uint64_t key = make_key();

    if (!ha->self.addr[0] || key == 0)
        return; /* it has never offered itself; or it counts as one that does not run */
    pthread_mutex_lock(&ha->mutex);
    ha->self.key = key;
    ha->self.client_port = ha->self.peer_port = 0;
    ha->self.is_running = false;
    pthread_mutex_unlock(&ha->mutex);
    wake_agent(ha);
}

static void give_up(struct ha *ha, const struct ctrun_error *why)
{
    if (ha->is_broken)
        return;
    ct_warn("--ha: this node takes no part in the run's etcd: %s", why->text);
    ha->is_broken = true;
    withdraw(ha);
}

static int ask(struct ha *ha, struct ha_keeper_request *request,
               struct ha_keeper_reply *reply)
{
    struct ctrun_error err;
    bool has_ended = false;
    const int rc = ha_keeper_ask(ha->options.keeper, request, reply, &has_ended, &err);

    if (rc < 0)
        give_up(ha, &err);
    return rc;
}

/* ---- Ports ------------------------------------------------------------------------------ */

/* Where the others reach this node: --local-addr or --net, else our end of the link, which is no
 * loopback address unless all nodes are here. False: not known yet. */
static bool choose_addr(struct ha *ha, char out[CT_ADDR_TEXT_MAX])
{
    const struct addresses *addresses = ha->options.addresses;
    char local[CT_ADDR_TEXT_MAX];
    struct ct_addr number;
    struct server_record host;

    pthread_mutex_lock(&ha->mutex);
    (void)ct_copy(local, sizeof local, ha->local); /* same size */
    pthread_mutex_unlock(&ha->mutex);
    if (addresses->has_bind) {
        ct_addr_format_host(out, &addresses->bind);
        return true;
    }
    if (!local[0] || ct_addr_parse(local, 0, &number) < 0)
        return false;
    if (ct_addr_is_loopback(&number) && !ha->endpoint->is_loopback) {
        server_record_fill(&host, ha->options.config->run.host, addresses, ha->port);
        if (host.count > 0)
            number = host.addrs[0];
    }
    ct_addr_format_host(out, &number);
    return true;
}

static void reserve(struct ha *ha)
{
    struct ha_keeper_request request = {.verb = HA_KEEPER_RESERVE,
                                        .ports = ha->options.config->rdzv.ports};
    struct ha_keeper_reply reply;
    struct ct_ha_report self = {0};

    if (!choose_addr(ha, request.addr) || ask(ha, &request, &reply) < 0)
        return;
    if ((self.key = make_key()) == 0)
        return;
    self.client_port = reply.client_port;
    self.peer_port = reply.peer_port;
    (void)ct_copy(self.addr, sizeof self.addr, request.addr); /* same size */
    pthread_mutex_lock(&ha->mutex);
    self.follows = ha->self.follows;
    ha->self = self;
    pthread_mutex_unlock(&ha->mutex);
    wake_agent(ha);
}

/* ---- Certificates ----------------------------------------------------------------------- */

static void derive(const struct ha *ha, const struct ct_ha_plan *plan, const char *name,
                   uint8_t out[HA_SECRET_BYTES])
{
    static const uint8_t nothing[CT_PROOF_BYTES];
    const struct ct_auth_scope scope = {.run_id = ha->options.config->run.run_id,
                                        .agent_nonce = plan->seed,
                                        .server_nonce = plan->seed,
                                        .opening = nothing};

    ct_auth_mac(out, &ha->options.config->rdzv.token, name, &scope, NULL, 0);
}

static void fill_etcd(struct ha *ha, const struct ct_ha_plan *plan, const char *folder)
{
    uint8_t secret[HA_SECRET_BYTES];
    struct etcd_config *etcd = &ha->etcd;

    *etcd = (struct etcd_config){.is_tls = true,
                                 .user = "root",
                                 .prefix = "/ctrun",
                                 .lease_ttl_s = ETCD_LEASE_TTL_S,
                                 .timeout_ms = HA_CALL_MS};
    (void)ct_format(etcd->ca_file, sizeof etcd->ca_file, "%s/ca.pem", folder);
    (void)ct_format(etcd->cert_file, sizeof etcd->cert_file, "%s/me.pem", folder);
    (void)ct_format(etcd->key_file, sizeof etcd->key_file, "%s/me.key", folder);
    derive(ha, plan, "ctrun ha password", secret);
    _Static_assert(sizeof etcd->password > 2 * sizeof secret, "it holds the digits");
    ct_hex_encode(etcd->password, secret, sizeof secret);
    explicit_bzero(secret, sizeof secret);
}

/* Once for each epoch, for each has a seed of its own; the endpoints follow the plan each time. */
bool ha_certify(struct ha *ha, const struct ct_ha_plan *plan)
{
    struct ha_keeper_request request = {.verb = HA_KEEPER_CERTIFY};
    struct ha_keeper_reply reply;
    int rc;

    if (ha->is_broken || plan->epoch == 0)
        return false;
    if (ha->certified_epoch != plan->epoch) {
        if (!choose_addr(ha, request.addr))
            return false;
        derive(ha, plan, "ctrun ha CA", request.secret);
        rc = ask(ha, &request, &reply);
        explicit_bzero(request.secret, sizeof request.secret);
        if (rc < 0)
            return false;
        fill_etcd(ha, plan, reply.folder);
        ha->certified_epoch = plan->epoch;
    }
    ha_cluster_fill(&ha->etcd, plan);
    return true;
}

/* ---- The member ------------------------------------------------------------------------- */

static const struct ct_ha_member *find_self(const struct ha *ha,
                                            const struct ct_ha_plan *plan)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->members[i].key == ha->self.key && plan->phase != CT_HA_OFF)
            return &plan->members[i];
    return NULL;
}

static void start(struct ha *ha, const struct ct_ha_plan *plan)
{
    struct ha_keeper_request request = {.verb = HA_KEEPER_START,
                                        .joins = plan->phase == CT_HA_ACTIVE};
    struct ha_keeper_reply reply;

    ha_cluster_format_name(request.name, ha->self.key);
    ha_cluster_format_name(request.token, plan->epoch);
    if (!ha_certify(ha, plan) ||
        ha_cluster_format(request.cluster, sizeof request.cluster, plan) < 0 ||
        ask(ha, &request, &reply) < 0)
        return;
    ha->has_started = true;
    ha->started_epoch = plan->epoch;
    ha->tried_ms = ct_now_ms();
    emit("started", 0);
}

/* The member's data are gone; from now on this node is another, idle member. */
static void forget(struct ha *ha)
{
    ha->has_started = false;
    if (ha->is_broken)
        return; /* it has withdrawn */
    pthread_mutex_lock(&ha->mutex);
    ha->self.key = 0;
    ha->self.is_running = false;
    pthread_mutex_unlock(&ha->mutex);
    reserve(ha);
}

static void end(struct ha *ha)
{
    struct ha_keeper_request request = {.verb = HA_KEEPER_STOP};
    struct ha_keeper_reply reply;

    (void)ask(ha, &request, &reply);
    emit("ended", 0);
    forget(ha);
}

static void note_end(struct ha *ha, const struct ha_keeper_reply *reply)
{
    ct_warn("--ha: etcd has ended on this node: %s", reply->text);
    emit("died", 0);
    end(ha);
}

static void look_whether_it_runs(struct ha *ha, const struct ct_ha_member *self)
{
    struct etcd_config own = ha->etcd;

    own.endpoint_count = 1;
    (void)ct_copy(own.endpoints[0].host, sizeof own.endpoints[0].host, self->addr);
    own.endpoints[0].port = self->client_port;
    if (!ha_cluster_is_up(&own, ct_deadline_ms(HA_BUSY_MS * 4)))
        return;
    emit("runs", ct_now_ms() - ha->tried_ms);
    pthread_mutex_lock(&ha->mutex);
    ha->self.is_running = true;
    pthread_mutex_unlock(&ha->mutex);
    wake_agent(ha);
}

bool ha_keep_member(struct ha *ha, const struct ct_ha_plan *plan)
{
    const struct ct_ha_member *self;
    struct ha_keeper_reply reply;

    if (ha->is_broken)
        return false;
    if (ha_keeper_has_ended(ha->options.keeper, &reply))
        note_end(ha, &reply);
    if (ha->self.key == 0 && !ha->is_broken)
        reserve(ha);
    if (ha->self.key == 0 || ha->is_broken)
        return false;
    self = find_self(ha, plan);
    if (ha->has_started && (!self || ha->started_epoch != plan->epoch)) {
        end(ha);
        return true;
    }
    if (!self)
        return false;
    if (!ha->has_started)
        start(ha, plan);
    else if (!ha->self.is_running)
        look_whether_it_runs(ha, self);
    return !ha->self.is_running;
}

/* ---- Following -------------------------------------------------------------------------- */

/* A different number for different members. */
static uint64_t sum_up(const struct etcd_config *etcd)
{
    uint64_t sum = (uint64_t)etcd->endpoint_count;

    for (int i = 0; i < etcd->endpoint_count; i++)
        for (const char *at = etcd->endpoints[i].host; *at; at++)
            sum = sum * 31 + (unsigned char)*at + (uint64_t)etcd->endpoints[i].port;
    return sum;
}

bool ha_follow(struct ha *ha, const struct ct_ha_plan *plan)
{
    struct leader_candidate *candidate = ha->options.candidate;
    struct ctrun_error err;

    if (plan->phase != CT_HA_ACTIVE || ha->is_broken || !ha_certify(ha, plan))
        return false;
    if (!ha->finds && !ha->is_founder) {
        /* A node that meant to found the run listens where a founder does, and at no other
         * address. */
        const struct addresses *here = ha->owns_endpoint ? ha->reached
                                                         : ha->options.addresses;

        leader_candidate_use(candidate, &ha->etcd);
        if (leader_candidate_start(candidate, ha->server, here, ha->port, &err) < 0) {
            ct_info("--ha: the run's etcd cannot be reached yet: %s", err.text);
            return true;
        }
    }
    if (ha->finds && sum_up(&ha->etcd) != ha->known_count)
        leader_candidate_set_members(candidate, &ha->etcd);
    ha->known_count = sum_up(&ha->etcd);
    if (ha->finds)
        return false;
    /* Last: from now on the agent looks for the server in etcd, and this node can be elected there. */
    pthread_mutex_lock(&ha->mutex);
    ha->finds = true;
    ha->self.follows = plan->epoch;
    pthread_mutex_unlock(&ha->mutex);
    wake_agent(ha);
    return false;
}
