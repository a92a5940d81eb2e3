/* SPDX-License-Identifier: Apache-2.0 */
/* The plan, made while this node serves the rendezvous: facts for ha_machine.h, and its actions. */
#include <sys/random.h>

#include "launcher/ha/ha_private.h"

/* ---- Facts ------------------------------------------------------------------------------ */

static bool is_member(const struct ct_ha_plan *plan, uint64_t key)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->members[i].key == key)
            return true;
    return false;
}

/* It could become a member. */
static bool is_idle(const struct ha *ha, const struct ct_ha_report *report)
{
    return report->client_port != 0 && !is_member(&ha->made, report->key);
}

/* NULL: the member's node is not connected, or is another member now. With the mutex. */
static const struct ct_ha_report *find_report(const struct ha *ha, uint64_t key)
{
    for (size_t i = 0; i < ha->node_count; i++)
        if (ha->nodes[i].report.key == key)
            return &ha->nodes[i].report;
    return NULL;
}

/* A member whose node is disconnected may come back: it is lost only after HA_LOST_MS. */
static bool is_absent_long(const struct ha *ha, int i, uint64_t now_ms)
{
    return ha->absent_ms[i] != 0 && now_ms - ha->absent_ms[i] >= HA_LOST_MS;
}

/* With the mutex. */
static void add_member(struct ha *ha, struct ha_facts *facts, int i)
{
    const struct ct_ha_member *member = &ha->made.members[i];
    const struct ct_ha_report *report = find_report(ha, member->key);
    const bool is_running = report && report->is_running;
    const uint64_t now_ms = ct_now_ms();
    bool is_lost;

    if (report)
        ha->absent_ms[i] = 0;
    else if (ha->absent_ms[i] == 0)
        ha->absent_ms[i] = now_ms;
    is_lost = is_absent_long(ha, i, now_ms);
    if (member->is_learner) {
        facts->learner = is_running ? HA_LEARNER_RUNS
                         : is_lost  ? HA_LEARNER_LOST
                                    : HA_LEARNER_STARTS;
        return;
    }
    facts->voters++;
    facts->running += is_running;
    facts->lost += is_lost;
}

static struct ha_facts gather(struct ha *ha)
{
    const uint64_t now_ms = ct_now_ms();
    struct ha_facts facts = {.wanted = ha->options.config->rdzv.ha.nodes,
                             .outcome = ha->outcome,
                             .is_late = now_ms - ha->state_ms >= HA_STEP_MS,
                             .may_try = now_ms >= ha->retry_ms};

    pthread_mutex_lock(&ha->mutex);
    for (int i = 0; i < ha->made.count; i++)
        add_member(ha, &facts, i);
    for (size_t i = 0; i < ha->node_count; i++) {
        const struct ct_ha_report *report = &ha->nodes[i].report;

        facts.nodes++;
        facts.idle += is_idle(ha, report);
        facts.following += ha->made.epoch != 0 && report->follows == ha->made.epoch;
    }
    pthread_mutex_unlock(&ha->mutex);
    return facts;
}

/* ---- Actions ---------------------------------------------------------------------------- */

static void name_member(struct ha *ha, const struct ct_ha_report *report,
                        bool is_learner)
{
    struct ct_ha_member *member = &ha->made.members[ha->made.count];

    *member = (struct ct_ha_member){.key = report->key,
                                    .client_port = report->client_port,
                                    .peer_port = report->peer_port,
                                    .is_learner = is_learner};
    (void)ct_copy(member->addr, sizeof member->addr, report->addr); /* same size */
    ha->absent_ms[ha->made.count++] = 0;
}

static void name_idle(struct ha *ha, int wanted, bool is_learner)
{
    pthread_mutex_lock(&ha->mutex);
    for (size_t i = 0; i < ha->node_count && wanted > 0; i++) {
        const struct ct_ha_report *report = &ha->nodes[i].report;

        if (!is_idle(ha, report) || ha->made.count == CT_HA_MEMBERS_MAX)
            continue;
        name_member(ha, report, is_learner);
        wanted--;
    }
    pthread_mutex_unlock(&ha->mutex);
}

/* Each node finds in it whether it is a member. The epoch tells this try from the next one, so that a member of an
 * earlier try ends, and certificates are made anew. */
static void plan(struct ha *ha)
{
    ha->made = (struct ct_ha_plan){.phase = CT_HA_STARTING,
                                   .nodes = (uint8_t)ha->options.config->rdzv.ha.nodes};
    if (getrandom(&ha->made.epoch, sizeof ha->made.epoch, 0) < 0 ||
        getrandom(ha->made.seed, sizeof ha->made.seed, 0) < 0) {
        ha->made.epoch = 0;
        return;
    }
    ha->made.epoch |= 1; /* never 0 */
    name_idle(ha, ha->made.nodes, false);
    server_send_ha(ha->server, &ha->made);
}

static void drop(struct ha *ha, const struct ha_facts *facts)
{
    ct_warn("--ha: the run's etcd did not start (%d of %d members run); next try in "
            "%llu s",
            facts->running, facts->voters,
            (unsigned long long)(ha->begin_again_ms / 1000));
    leader_candidate_revert(ha->options.candidate);
    ha_lead_end(ha);
    ha->made.phase = CT_HA_OFF;
    ha->made.count = 0;
    server_send_ha(ha->server, &ha->made);
    ha->retry_ms = ct_deadline_ms(ha->begin_again_ms);
    ha->begin_again_ms = ha->begin_again_ms * 2 < HA_BEGIN_AGAIN_MAX_MS
                             ? ha->begin_again_ms * 2
                             : HA_BEGIN_AGAIN_MAX_MS;
}

static enum ha_outcome judge(int rc, const char *what, const struct ctrun_error *err)
{
    if (rc < 0)
        ct_info("--ha: %s: %s", what, err->text);
    return rc < 0 ? HA_FAILED : HA_DONE;
}

static enum ha_outcome secure(struct ha *ha)
{
    struct ctrun_error err = {.text = "no certificates"};
    int rc = -1;

    if (ha_certify(ha, &ha->made))
        rc = ha_cluster_secure(&ha->etcd, ct_deadline_ms(HA_CALL_MS), &err);
    return judge(rc, "etcd's password cannot be set", &err);
}

static void send_plan(struct ha *ha)
{
    ha->made.phase = CT_HA_ACTIVE;
    server_send_ha(ha->server, &ha->made);
}

/* Etcd's own list of members, which all later actions use. */
static int list(struct ha *ha, struct ctrun_error *err)
{
    uint64_t absent_ms[CT_HA_MEMBERS_MAX] = {0};
    const struct ct_ha_plan before = ha->made;
    int rc;

    if (!ha_certify(ha, &ha->made))
        return ct_fail(err, -1, "no certificates");
    if (!ha->admin && (rc = etcd_open(&ha->admin, &ha->etcd, err)) < 0)
        return rc;
    etcd_set_members(ha->admin, &ha->etcd);
    rc = ha_cluster_list(ha->admin, &ha->made, ha->ids, ct_deadline_ms(HA_CALL_MS),
                         err);
    if (rc < 0)
        return rc;
    /* Members may have other indexes now: find their times by their keys. */
    for (int i = 0; i < ha->made.count; i++)
        for (int k = 0; k < before.count; k++)
            if (before.members[k].key == ha->made.members[i].key)
                absent_ms[i] = ha->absent_ms[k];
    memcpy(ha->absent_ms, absent_ms, sizeof absent_ms);
    return 0;
}

/* The member to be taken out: a learner, else the one that has been lost longest; -1: none. */
static int choose_lost(const struct ha *ha)
{
    const uint64_t now_ms = ct_now_ms();
    int lost = -1;

    for (int i = 0; i < ha->made.count; i++) {
        if (ha->made.members[i].is_learner)
            return i;
        if (is_absent_long(ha, i, now_ms) &&
            (lost < 0 || ha->absent_ms[i] < ha->absent_ms[lost]))
            lost = i;
    }
    return lost;
}

static int find_learner(const struct ha *ha)
{
    for (int i = 0; i < ha->made.count; i++)
        if (ha->made.members[i].is_learner)
            return i;
    return -1;
}

static enum ha_outcome change(struct ha *ha, enum etcd_call call)
{
    struct ctrun_error err;
    int rc = list(ha, &err);
    int at;

    if (rc == 0) {
        at = call == ETCD_MEMBER_REMOVE ? choose_lost(ha) : find_learner(ha);
        if (at < 0) /* an earlier try, whose answer was lost, has done it */
            return HA_DONE;
        rc = ha_cluster_change(ha->admin, call, ha->ids[at], ct_deadline_ms(HA_CALL_MS),
                               &err);
    }
    if (rc == 0)
        rc = list(ha, &err);
    return judge(rc,
                 call == ETCD_MEMBER_REMOVE ? "a lost member cannot be removed"
                                            : "a new member cannot get its vote",
                 &err);
}

/* Adds the member to the plan first, because etcd needs its address; removes it again if etcd
 * refuses. */
static enum ha_outcome add(struct ha *ha)
{
    struct ctrun_error err = {.text = "no idle node"};
    int rc = list(ha, &err);
    const int count = ha->made.count;

    if (rc == 0) {
        name_idle(ha, 1, true);
        rc = ha->made.count == count
                 ? -1
                 : ha_cluster_add(ha->admin, &ha->made.members[count],
                                  ct_deadline_ms(HA_CALL_MS), &err);
    }
    if (rc < 0)
        ha->made.count = (uint8_t)count;
    return judge(rc, "a new member cannot be added", &err);
}

static bool is_running(struct ha *ha, uint64_t key)
{
    const struct ct_ha_report *report;
    bool is;

    pthread_mutex_lock(&ha->mutex);
    report = find_report(ha, key);
    is = report && report->is_running;
    pthread_mutex_unlock(&ha->mutex);
    return is;
}

/* The rendezvous and etcd's leader on one node would be lost together, and the election would wait for
 * both, one after the other. */
static void move_leader(struct ha *ha)
{
    struct etcd_config own = ha->etcd;
    struct ctrun_error err;
    int self = -1, other = -1;

    ha->leader_ms = ct_deadline_ms(HA_LEADER_MS);
    if (list(ha, &err) < 0)
        return;
    for (int i = 0; i < ha->made.count; i++) {
        if (ha->made.members[i].key == ha->self.key)
            self = i;
        else if (!ha->made.members[i].is_learner &&
                 is_running(ha, ha->made.members[i].key))
            other = i;
    }
    if (self < 0 || other < 0)
        return;
    own.endpoint_count = 1;
    (void)ct_copy(own.endpoints[0].host, sizeof own.endpoints[0].host,
                  ha->made.members[self].addr);
    own.endpoints[0].port = ha->made.members[self].client_port;
    if (ha_cluster_move_lead(&own, ha->ids[other], ct_deadline_ms(HA_CALL_MS), &err) >
        0)
        ct_info("--ha: etcd's leader moved to another node");
}

/* Continues by itself: leader_candidate_commit() tells when it is done. Etcd's leadership is moved
 * before, because a new leader restarts all leases, ours too. */
static enum ha_outcome move(struct ha *ha)
{
    struct leader_candidate *candidate = ha->options.candidate;
    struct ctrun_error err;
    int rc;

    move_leader(ha);
    leader_candidate_use(candidate, &ha->etcd);
    rc = leader_candidate_start(candidate, ha->server, ha->reached, ha->port, &err);
    return judge(rc, "the election cannot be started", &err) == HA_DONE ? HA_NONE
                                                                        : HA_FAILED;
}

static void act(struct ha *ha, enum ha_action action, const struct ha_facts *facts)
{
    ha->outcome = HA_NONE;
    switch (action) {
    case HA_DO_NOTHING: break;
    case HA_DO_PLAN: plan(ha); break;
    case HA_DO_DROP: drop(ha, facts); break;
    case HA_DO_SECURE: ha->outcome = secure(ha); break;
    case HA_DO_MOVE: ha->outcome = move(ha); break;
    case HA_DO_SEND: send_plan(ha); break;
    case HA_DO_REMOVE: ha->outcome = change(ha, ETCD_MEMBER_REMOVE); break;
    case HA_DO_ADD: ha->outcome = add(ha); break;
    case HA_DO_PROMOTE: ha->outcome = change(ha, ETCD_MEMBER_PROMOTE); break;
    }
    if (ha->outcome == HA_FAILED)
        ha->retry_ms = ct_deadline_ms(HA_RETRY_MS);
}

/* ---- Step by step ----------------------------------------------------------------------- */

static void emit(const struct ha *ha, enum ha_state from, int survives)
{
    ct_event_emit("ha_state", CT_STR("from", ha_state_name(from)),
                  CT_STR("to", ha_state_name(ha->state)),
                  CT_INT("members", ha->made.count), CT_INT("survives", survives));
}

static void step(struct ha *ha)
{
    const enum ha_state from = ha->state;
    struct ha_facts facts = gather(ha);
    enum ha_action action;
    int survives;

    if (ha->state == HA_MOVING && leader_candidate_commit(ha->options.candidate))
        facts.outcome = HA_DONE;
    action = ha_step(&ha->state, &facts);
    survives = ha_survives(ha->state, &facts);
    if (ha->state != from)
        ha->state_ms = ct_now_ms();
    if (ha->state != from || survives != ha->made.survives)
        emit(ha, from, survives);
    /* ctrunctl status shows it on every node, so each change goes out. */
    if (survives != ha->made.survives && action == HA_DO_NOTHING)
        action = HA_DO_SEND;
    ha->made.survives = (uint8_t)survives;
    act(ha, action, &facts);
}

/* Elected after another one: its plan continues, as far as this node knows it and etcd does. */
static bool take_over(struct ha *ha, const struct ct_ha_plan *plan)
{
    struct ctrun_error err;

    ha->made = *plan;
    ha->made.survives = 0;
    memset(ha->absent_ms, 0, sizeof ha->absent_ms);
    if (list(ha, &err) < 0) {
        ct_info("--ha: etcd's list of its members cannot be read: %s", err.text);
        return false;
    }
    ha->state = HA_ACTIVE;
    ha->outcome = HA_NONE;
    ha->state_ms = ct_now_ms();
    ha->retry_ms = ct_deadline_ms(HA_RETRY_MS);
    send_plan(ha);
    return true;
}

/* Before SENDING no other node knows of this etcd: the founder leads without a lease. After that
 * only the node that has the lease leads, and the ha->made of the others is not used. */
bool ha_lead(struct ha *ha, const struct ct_ha_plan *plan)
{
    const bool leads = ha->is_founder && ha->state < HA_SENDING
                           ? true
                           : leader_candidate_leads(ha->options.candidate);

    if (!leads) {
        ha->leads = false;
        return false;
    }
    if (!ha->leads && !take_over(ha, plan))
        return true;
    ha->leads = true;
    if (ha->state >= HA_SENDING && ct_left_ms(ha->leader_ms) == 0)
        move_leader(ha);
    step(ha);
    return ha->state != HA_WAITING && ha->state != HA_ACTIVE;
}

void ha_lead_end(struct ha *ha)
{
    etcd_close(ha->admin);
    ha->admin = NULL;
}
