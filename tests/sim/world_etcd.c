/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated etcd: linearizable, and without answers when a majority of its members is missing;
 * its leader renews leases without asking the others. And election.h as the thread that calls
 * it. */
#include <stdlib.h>
#include <string.h>

#include "launcher/etcd/election_rules.h"
#include "tests/sim/world.h"

enum {
    CALL_MS = 5000,
    RTT_MAX_US = 40 * WORLD_MS,
    SLOW_MAX_US = 1500 * WORLD_MS,
    AGAIN_US = 50 * WORLD_MS,
    PAUSE_MS = 200,
    PATIENCE_US = 1000 * WORLD_MS, /* for the answer of one member */
    ELECTION_MIN_MS = 1000,
    MEMBERS = 3, /* of an etcd on other machines */
};

enum request {
    REQUEST_LOOK,
    REQUEST_CREATE, /* the key, with a new lease */
    REQUEST_READ,   /* the journal, and whether the previous lease has expired */
    REQUEST_KEEP,   /* the lease */
    REQUEST_CHECK,  /* the key; with the run's own etcd also a write of it */
    REQUEST_WRITE,
};

struct world_etcd {
    int64_t rate; /* of its clock, in millionths */
    uint64_t down_until_us;
    struct {
        int node;
        uint32_t life;          /* of the program that runs it; 0: no program does */
        uint64_t lost_until_us; /* until then it is lost or stopped */
        /* Until then its disk hangs: it answers only what it asks no other member for. */
        uint64_t stuck_until_us;
        int64_t stuck_term; /* its term as the leader; 0: it did not lead */
        uint64_t stuck_key; /* the term of the key that it has */
    } members[WORLD_NODES_MAX];
    int leader;
    int64_t raft_term;
    bool has_balancer; /* each call goes to any member */
    uint32_t epoch;    /* a different one for each etcd that a run starts */
    uint64_t revision;
    bool has_key;
    int owner;
    uint64_t term, lease, expires_us, asked_us;
    struct ct_buf journal;
    bool has_resigned;            /* the server that wrote the journal */
    uint64_t generation, written; /* the revision of the last write */
    int64_t changed;              /* of the last write of the key */
};

struct call {
    enum request request;
    uint64_t number; /* 0: none */
    uint64_t asked_us, deadline_ms;
    bool is_there, is_answered, is_lost;
    int64_t raft_term; /* of the member that answered */
    /* The request and its answer. */
    uint64_t term, lease, leader_lease, sequence, generation, revision;
    bool is_over, has_key, is_ours, is_stale, is_gone, has_resigned;
    uint64_t written; /* the revision of the journal */
    int64_t changed;  /* of the key */
    int owner;
    struct ct_buf journal;
    struct call *next; /* of late calls */
};

struct election {
    struct world_node *node;
    struct election_options options;
    enum {
        LOOKING,
        WATCHING,
        LEADING
    } state;
    struct call call;
    struct loop_timer *timer;
    uint32_t epoch; /* of the etcd that it calls */
    int member;     /* that it calls */
    int64_t kept_term;
    uint64_t kept_ms; /* start of the renewal, by its clock */
    uint64_t number;
    uint64_t ttl_ms, lease, leader_lease, term;
    struct election_sight sight;
    int host; /* node of the server that was reported last; -1: none */
    uint64_t renewed_ms, renew_ms;
    struct ct_buf journal;
    bool has_journal, is_over, is_hurried;
    uint64_t sequence, written, generation, revision;
};

static struct world_etcd the_etcd;
static uint64_t last_lease;
static struct call *late_calls;

/* ---- The store --------------------------------------------------------------------------- */

static void go_on(void *context);

/* ---- Its members ------------------------------------------------------------------------- */

static int count_members(void)
{
    return world.etcd_members ? world.etcd_members : MEMBERS;
}

/* Members on other machines always reach each other. */
static bool is_cut(int from, int to)
{
    return world.etcd_members && world.cut[from][to];
}

static bool is_member_up(int member)
{
    const struct world_node *node = &world.nodes[the_etcd.members[member].node];
    const uint32_t life = the_etcd.members[member].life;

    if (world.now_us < the_etcd.members[member].lost_until_us ||
        world.now_us < the_etcd.members[member].stuck_until_us)
        return false;
    return !world.etcd_members || (node->is_on && !node->stopped_us[PART_HOST] &&
                                   (life == 0 || (node->is_up && node->life == life)));
}

/* It reaches more than half of the members, itself included. */
static bool has_quorum(int member)
{
    const int from = the_etcd.members[member].node;
    int count = 0;

    for (int i = 0; i < count_members(); i++) {
        const int to = the_etcd.members[i].node;

        count += is_member_up(i) && !is_cut(from, to) && !is_cut(to, from);
    }
    return is_member_up(member) && count > count_members() / 2;
}

static bool is_way_to(int node, int member, bool is_to_etcd)
{
    const int at = world.etcd_members ? the_etcd.members[member].node : WORLD_ETCD;

    return at == node || !(is_to_etcd ? world.cut[node][at] : world.cut[at][node]);
}

/* There is a path from the node to a member that answers, or back. */
static bool is_way_open(int node, bool is_to_etcd)
{
    if (is_to_etcd ? world.cut[node][WORLD_ETCD] : world.cut[WORLD_ETCD][node])
        return false;
    for (int i = 0; i < count_members(); i++)
        if (has_quorum(i) && is_way_to(node, i, is_to_etcd))
            return true;
    return false;
}

/* When the leader is lost, another member leads after a while. */
static bool has_leader(void)
{
    int next = 0;

    if (has_quorum(the_etcd.leader))
        return true;
    while (next < count_members() && !has_quorum(next))
        next++;
    if (next == count_members())
        return false;
    TRACE("etcd: member %d leads instead of %d", next, the_etcd.leader);
    the_etcd.leader = next;
    the_etcd.raft_term++;
    world_etcd_stop((ELECTION_MIN_MS + world_draw(ELECTION_MIN_MS)) * WORLD_MS);
    return true;
}

void world_etcd_hurt(uint64_t for_us)
{
    const int member = (int)world_draw((uint64_t)count_members());
    const bool is_stuck = world_draw(2);

    TRACE("etcd: member %d %s", member, is_stuck ? "hangs" : "is lost");
    *(is_stuck ? &the_etcd.members[member].stuck_until_us
               : &the_etcd.members[member].lost_until_us) = world.now_us + for_us;
    the_etcd.members[member].stuck_term = is_stuck && member == the_etcd.leader
                                              ? the_etcd.raft_term
                                              : 0;
    the_etcd.members[member].stuck_key = the_etcd.has_key ? the_etcd.term : 0;
}

void world_etcd_heal(void)
{
    for (int i = 0; i < WORLD_NODES_MAX; i++)
        the_etcd.members[i].lost_until_us = the_etcd.members[i].stuck_until_us = 0;
}

bool world_etcd_leads(const struct world_node *node)
{
    return the_etcd.has_key && the_etcd.owner == node->index && world_etcd_has_quorum();
}

bool world_etcd_is_orphan(const struct world_node *node)
{
    return node->election && node->election->epoch != the_etcd.epoch;
}

bool world_etcd_has_quorum(void)
{
    for (int i = 0; i < count_members(); i++)
        if (has_quorum(i))
            return true;
    return false;
}

static bool is_up(void)
{
    return has_leader() && world.now_us >= the_etcd.down_until_us;
}

static uint64_t ttl_us(void)
{
    return (uint64_t)world.ttl_s * 1000000 * 1000000 / (uint64_t)the_etcd.rate;
}

static void await_expiry(void)
{
    world_push((struct world_event){
        .at_us = the_etcd.expires_us, .kind = EVENT_EXPIRE, .node = -1});
}

void world_etcd_begin(void)
{
    memset(&the_etcd, 0, sizeof the_etcd);
    the_etcd.rate = 950000 + (int64_t)world_draw(100001);
    the_etcd.revision = 1;
    the_etcd.raft_term = 2;
    the_etcd.has_balancer = world_draw(4) == 0;
    for (int i = 0; i < WORLD_NODES_MAX; i++)
        the_etcd.members[i].node = i;
    ct_buf_init(&the_etcd.journal, 1 << 20);
    world.etcd = &the_etcd;
    last_lease = 0;
}

void world_etcd_found(const int *nodes, int count)
{
    world.etcd_members = count;
    for (int i = 0; i < count; i++) {
        the_etcd.members[i].node = nodes[i];
        the_etcd.members[i].life = world.nodes[nodes[i]].life;
    }
    world_etcd_heal();
    the_etcd.has_balancer = false;
    the_etcd.leader = 0;
    the_etcd.epoch++;
    the_etcd.has_key = the_etcd.has_resigned = false;
    the_etcd.generation = the_etcd.written = 0;
    ct_buf_consume(&the_etcd.journal, ct_buf_length(&the_etcd.journal));
}

bool world_etcd_replace(const struct world_node *node, int member, int by)
{
    if (!is_up() || !is_way_open(node->index, true))
        return false;
    TRACE("etcd: a member on node%d instead of node%d", by,
          the_etcd.members[member].node);
    the_etcd.members[member].node = by;
    the_etcd.members[member].life = world.nodes[by].life;
    the_etcd.members[member].lost_until_us = the_etcd.members[member].stuck_until_us =
        0;
    return true;
}

void world_etcd_end(void)
{
    for (; late_calls; late_calls = late_calls->next)
        ct_buf_deinit(&late_calls->journal);
    ct_buf_deinit(&the_etcd.journal);
}

/* The next leader starts all leases anew. */
void world_etcd_stop(uint64_t for_us)
{
    the_etcd.down_until_us = world.now_us + for_us;
    if (the_etcd.has_key) {
        the_etcd.expires_us = the_etcd.down_until_us + ttl_us();
        await_expiry();
    }
}

/* A change that does not reach the node is sent with the next change that does. */
static void tell_watch(struct election *election, int64_t end_revision)
{
    const struct world_node *node = election->node;
    const uint64_t late_ms = world_draw(RTT_MAX_US) / WORLD_MS + 1;

    if (!is_way_open(node->index, false))
        return;
    election_see(&election->sight, the_etcd.changed, world_clock_ms(node) + late_ms);
    election->sight.end_revision = end_revision;
}

/* The key has changed, or is deleted in this revision. */
static void tell_watches(uint64_t end_revision)
{
    for (int i = 0; i < world.node_count; i++) {
        struct world_node *node = &world.nodes[i];

        if (!node->is_up || !node->election || node->election->state != WATCHING)
            continue;
        if (node->election->options.ends_with_run &&
            node->election->epoch == the_etcd.epoch)
            tell_watch(node->election, (int64_t)end_revision);
        if (end_revision != 0 && is_way_open(i, false))
            world_call(node, world_draw(RTT_MAX_US), go_on, node->election);
    }
}

static void free_key(void)
{
    the_etcd.has_key = false;
    tell_watches(++the_etcd.revision);
}

void world_on_expire(void)
{
    if (!the_etcd.has_key || world.now_us < the_etcd.expires_us)
        return;
    if (!is_up()) {
        the_etcd.expires_us = (the_etcd.down_until_us > world.now_us
                                   ? the_etcd.down_until_us
                                   : world.now_us) +
                              ttl_us();
        await_expiry();
        return;
    }
    TRACE("etcd: the lease of node%d is over", the_etcd.owner);
    free_key();
}

static bool is_owner(const struct call *call)
{
    return the_etcd.has_key && the_etcd.term == call->term;
}

static void create_key(const struct election *election, struct call *call)
{
    call->is_ours = !the_etcd.has_key;
    if (!call->is_ours)
        return;
    call->lease = ++last_lease;
    call->term = ++the_etcd.revision;
    the_etcd.has_key = true;
    the_etcd.owner = election->node->index;
    the_etcd.term = call->term;
    the_etcd.changed = (int64_t)call->term;
    the_etcd.lease = call->lease;
    the_etcd.asked_us = call->asked_us;
    the_etcd.expires_us = world.now_us + ttl_us();
    await_expiry();
    world.elections++;
    TRACE("etcd: node%d is elected, term %llu", the_etcd.owner,
          (unsigned long long)call->term);
}

static void write_journal(struct call *call)
{
    const uint64_t known = call->revision;

    call->is_ours = is_owner(call) || world.mutant == MUTANT_JOURNAL_OF_ANY_TERM;
    call->is_stale = the_etcd.written > known &&
                     world.mutant != MUTANT_JOURNAL_OF_ANY_TERM;
    call->revision = the_etcd.revision;
    if (!call->is_ours || call->is_stale)
        return;
    call->revision = the_etcd.written = ++the_etcd.revision;
    if (!call->is_over && call->generation < the_etcd.generation)
        world_break("4: the journal goes back");
    ct_buf_consume(&the_etcd.journal, ct_buf_length(&the_etcd.journal));
    if (!call->is_over)
        (void)ct_buf_append(&the_etcd.journal, ct_buf_data(&call->journal),
                            ct_buf_length(&call->journal));
    if (!call->is_over)
        the_etcd.generation = call->generation;
    the_etcd.has_resigned = false;
}

static void keep_lease(struct call *call)
{
    call->is_gone = !is_owner(call);
    if (call->is_gone)
        return;
    the_etcd.asked_us = call->asked_us;
    the_etcd.expires_us = world.now_us + ttl_us();
    await_expiry();
}

static void check_key(struct call *call)
{
    call->is_gone = !is_owner(call);
    if (call->is_gone)
        return;
    the_etcd.changed = (int64_t)++the_etcd.revision;
    tell_watches(0);
}

static void read_journal(struct call *call)
{
    ct_buf_consume(&call->journal, ct_buf_length(&call->journal));
    (void)ct_buf_append(&call->journal, ct_buf_data(&the_etcd.journal),
                        ct_buf_length(&the_etcd.journal));
    call->generation = the_etcd.generation;
    call->revision = the_etcd.revision;
    call->written = the_etcd.written;
    call->has_resigned = the_etcd.has_resigned;
    call->is_gone = call->leader_lease != the_etcd.lease || !the_etcd.has_key;
}

static void obey(struct election *election)
{
    struct call *call = &election->call;

    switch (call->request) {
    case REQUEST_LOOK: break;
    case REQUEST_CREATE: create_key(election, call); break;
    case REQUEST_READ: read_journal(call); break;
    case REQUEST_KEEP: keep_lease(call); break;
    case REQUEST_CHECK: check_key(call); break;
    case REQUEST_WRITE: write_journal(call); break;
    }
    call->has_key = the_etcd.has_key;
    call->owner = the_etcd.owner;
    call->changed = the_etcd.changed;
    if (call->request == REQUEST_LOOK && call->has_key)
        call->leader_lease = the_etcd.lease;
}

bool world_etcd_proved(uint64_t term, uint64_t since_us)
{
    return the_etcd.term != term || the_etcd.asked_us >= since_us;
}

uint64_t world_etcd_generation(void)
{
    return the_etcd.generation;
}

/* ---- Calls ------------------------------------------------------------------------------- */

static uint64_t trip_us(void)
{
    return world_draw(world.is_whole || world_draw(40) ? RTT_MAX_US / 2 : SLOW_MAX_US);
}

static void push_call(struct election *election, uint64_t after_us)
{
    world_push((struct world_event){.at_us = world.now_us + after_us,
                                    .kind = EVENT_ETCD,
                                    .node = election->node->index,
                                    .life = election->node->life,
                                    .subject = election,
                                    .number = election->call.number});
}

/* The balancer does not notice a member that hangs. */
static int balance(void)
{
    const int member = (int)world_draw((uint64_t)count_members());

    return is_member_up(member) ||
                   world.now_us < the_etcd.members[member].stuck_until_us
               ? member
               : the_etcd.leader;
}

static struct call *begin_call(struct election *election, enum request request,
                               uint64_t limit_ms)
{
    struct call *call = &election->call;

    call->request = request;
    call->number = ++election->number;
    call->asked_us = world.now_us;
    call->deadline_ms = ct_deadline_ms(limit_ms);
    call->is_there = call->is_answered = call->is_lost = false;
    if (the_etcd.has_balancer)
        election->member = balance();
    call->term = election->term;
    call->leader_lease = election->leader_lease;
    push_call(election, trip_us());
    loop_timer_set(election->timer, limit_ms);
    return call;
}

/* The sender has given the request up; it still arrives, perhaps in a later term. */
static void send_late(struct call *call)
{
    struct call *copy = world_alloc(sizeof *copy);

    *copy = *call;
    ct_buf_init(&copy->journal, 1 << 20);
    (void)ct_buf_append(&copy->journal, ct_buf_data(&call->journal),
                        ct_buf_length(&call->journal));
    copy->next = late_calls;
    late_calls = copy;
    world_push((struct world_event){.at_us = world.now_us + world.late_us,
                                    .kind = EVENT_ETCD,
                                    .node = -1,
                                    .subject = copy});
    call->is_lost = true;
    world.late_us = 0;
}

static int member_of(const struct election *election)
{
    return election->member % count_members();
}

/* A hanging member that led renews the lease itself. The renewal counts only if no other member has
 * led since. */
static bool is_renewed_by_old_leader(const struct call *call, int member)
{
    return call->request == REQUEST_KEEP &&
           world.now_us < the_etcd.members[member].stuck_until_us &&
           the_etcd.members[member].stuck_term != 0 &&
           the_etcd.members[member].stuck_key == call->term;
}

/* Asks the next member when this one refuses, or has not answered for a while. */
static void ask_next(struct election *election)
{
    const int member = member_of(election);
    const struct world_node *node = &world.nodes[the_etcd.members[member].node];
    const uint32_t life = the_etcd.members[member].life;
    const bool refuses = world.etcd_members && life != 0 && node->is_on &&
                         !node->stopped_us[PART_HOST] &&
                         !(node->is_up && node->life == life);

    election->member++;
    push_call(election, refuses ? RTT_MAX_US : PATIENCE_US);
}

static void send_request(struct election *election)
{
    struct call *call = &election->call;
    const int i = election->node->index, member = member_of(election);
    const bool is_serving = is_up();

    if (call->is_lost)
        return; /* the call ends at its time limit */
    if (world.cut[i][WORLD_ETCD] || !is_way_to(i, member, true)) {
        ask_next(election);
    } else if (is_renewed_by_old_leader(call, member)) {
        TRACE("etcd: member %d, which hangs, renews node%d's lease", member, i);
        call->raft_term = the_etcd.members[member].stuck_term;
        call->is_gone = false;
        call->is_there = true;
        if (call->raft_term == the_etcd.raft_term)
            keep_lease(call);
        push_call(election, trip_us());
    } else if (!is_member_up(member) || (is_serving && !has_quorum(member))) {
        ask_next(election);
    } else if (!is_serving) {
        push_call(election, AGAIN_US);
    } else {
        call->raft_term = the_etcd.raft_term;
        call->is_there = true;
        obey(election);
        push_call(election, trip_us());
    }
}

/* A request arrives even if its sender is stopped meanwhile. */
void world_on_etcd(struct world_event *event)
{
    const struct world_node *node = &world.nodes[event->node < 0 ? 0 : event->node];
    struct election *election = event->subject;
    struct call *call;

    if (event->node < 0) {
        write_journal(event->subject);
        return;
    }
    if (node->election != election || event->life != node->life ||
        election->call.number != event->number)
        return;
    call = &election->call;
    if (election->epoch != the_etcd.epoch)
        return; /* those members are gone */
    if (!call->is_there) {
        send_request(election);
    } else if (!world.cut[WORLD_ETCD][node->index] &&
               is_way_to(node->index, member_of(election), false)) {
        call->is_answered = true;
        world_call(election->node, 0, go_on, election);
    }
}

/* ---- The thread -------------------------------------------------------------------------- */

static void tell_host(struct election *election, int host)
{
    struct server_record told = {0};

    if (host >= 0) {
        told.count = 1;
        told.addrs[0] = (struct ct_addr){
            .v4 = {.sin_family = AF_INET,
                   .sin_port = htons(29500),
                   .sin_addr.s_addr = htonl(0x0a000001u + (unsigned)host)},
            .length = sizeof(struct sockaddr_in)};
    }
    if (host != election->host)
        election->options.on_leader(election->options.context, &told);
    election->host = host;
}

static void step_down(struct election *election)
{
    TRACE("node%d: has lost its lease", election->node->index);
    election->options.on_lost(election->options.context);
    tell_host(election, -1);
    election->state = LOOKING;
}

/* When the predecessor's last renewal began at the latest. */
static uint64_t served_ms(const struct election *election)
{
    const struct call *call = &election->call;
    const uint64_t asked_ms = call->deadline_ms - CALL_MS; /* when it had the key */
    uint64_t by_lease_ms = asked_ms;

    if (call->has_resigned)
        return ct_now_ms();
    if (election->leader_lease != 0 && call->is_gone)
        by_lease_ms = election_served_ms(asked_ms, election->ttl_ms);
    if (!election->options.ends_with_run)
        return by_lease_ms;
    return election_sight_served_ms(&election->sight, (int64_t)call->written,
                                    by_lease_ms);
}

static void lead(struct election *election)
{
    struct call *call = &election->call;
    struct ctrun_error err;

    election->has_journal = false;
    election->written = election->sequence;
    election->generation = call->generation;
    election->revision = call->revision;
    election->renew_ms = ct_now_ms();
    if (election->options.on_elected(
            election->options.context, election->term, ct_buf_data(&call->journal),
            ct_buf_length(&call->journal), served_ms(election),
            election_speaks_until_ms(election->renewed_ms, election->ttl_ms),
            &err) < 0) {
        world_break("a journal cannot be read");
        return;
    }
    tell_host(election, election->node->index);
    election->state = LEADING;
    election->node->leads_us = world.now_us;
}

/* The lease was renewed, and the key is there. */
static void take_check(struct election *election)
{
    const struct call *call = &election->call;

    if (!election_is_renewed(election->kept_term, call->raft_term) &&
        world.mutant != MUTANT_OLD_LEADER) {
        election->renew_ms = ct_now_ms();
        return;
    }
    if (call->is_gone) {
        step_down(election);
        return;
    }
    election->renewed_ms = election->kept_ms;
    election->renew_ms = election->renewed_ms + election_renew_ms(election->ttl_ms);
    election->options.on_renewed(
        election->options.context, election->renewed_ms,
        election_speaks_until_ms(election->renewed_ms, election->ttl_ms));
}

/* Handles an answer. */
static void take_answer(struct election *election)
{
    struct call *call = &election->call;

    switch (call->request) {
    case REQUEST_LOOK:
        if (call->has_key) {
            election->leader_lease = call->leader_lease;
            election_see(&election->sight, call->changed, ct_now_ms());
            tell_host(election, call->owner);
            election->state = WATCHING;
        } else {
            election->renewed_ms = ct_now_ms();
            (void)begin_call(election, REQUEST_CREATE, CALL_MS);
        }
        break;
    case REQUEST_CREATE:
        if (!call->is_ours)
            break;
        election->term = call->term;
        election->lease = call->lease;
        (void)begin_call(election, REQUEST_READ, CALL_MS);
        break;
    case REQUEST_READ: lead(election); break;
    case REQUEST_KEEP:
        if (call->is_gone) {
            step_down(election);
            break;
        }
        election->kept_term = call->raft_term;
        election->kept_ms = call->deadline_ms - election_call_ms(election->ttl_ms);
        (void)begin_call(election, REQUEST_CHECK, election_call_ms(election->ttl_ms));
        break;
    case REQUEST_CHECK: take_check(election); break;
    case REQUEST_WRITE:
        election->revision = call->revision;
        if (call->is_ours && call->is_stale)
            break;
        if (call->is_ours) {
            election->written = call->sequence;
            election->options.on_written(election->options.context, call->sequence);
        } else {
            step_down(election);
        }
        break;
    }
}

static void fail_call(struct election *election)
{
    if (election->call.is_there)
        election->member++; /* the answer was lost */
    if (election->call.request == REQUEST_KEEP ||
        election->call.request == REQUEST_CHECK)
        election->renew_ms = ct_now_ms();
    if (election->call.request <= REQUEST_READ)
        election->state = LOOKING;
    loop_timer_set(election->timer, PAUSE_MS);
}

static void send_journal(struct election *election)
{
    struct call *call = begin_call(election, REQUEST_WRITE,
                                   election_call_ms(election->ttl_ms));

    call->sequence = election->sequence;
    call->is_over = election->is_over;
    call->revision = election->revision;
    call->generation = election->generation;
    ct_buf_consume(&call->journal, ct_buf_length(&call->journal));
    (void)ct_buf_append(&call->journal, ct_buf_data(&election->journal),
                        ct_buf_length(&election->journal));
    if (world.late_us)
        send_late(call);
}

static void lead_on(struct election *election)
{
    const uint64_t soon_ms = election->renewed_ms +
                             election_hurried_ms(election->ttl_ms);

    if (election->is_hurried && soon_ms < election->renew_ms)
        election->renew_ms = soon_ms;
    election->is_hurried = false;
    if (ct_left_ms(election->renew_ms) == 0)
        (void)begin_call(election, REQUEST_KEEP, election_call_ms(election->ttl_ms));
    else if (election->has_journal && election->sequence > election->written)
        send_journal(election);
    else
        loop_timer_set(election->timer, (uint64_t)ct_left_ms(election->renew_ms));
}

/* Something has happened that the thread may wait for. */
static void go_on(void *context)
{
    struct election *election = context;
    struct call *call = &election->call;

    if (election->node->election != election)
        return; /* the thread has ended */
    if (call->number != 0) {
        const bool is_late = ct_left_ms(call->deadline_ms) == 0;

        if (!call->is_answered && !is_late) {
            loop_timer_set(election->timer, (uint64_t)ct_left_ms(call->deadline_ms));
            return;
        }
        call->number = 0;
        if (!call->is_answered) {
            fail_call(election);
            return;
        }
        take_answer(election);
        if (call->number != 0)
            return;
    }
    if (election->state == LEADING) {
        lead_on(election);
    } else if (election->state == WATCHING && the_etcd.has_key &&
               is_way_open(election->node->index, false) && call->is_answered) {
        /* an open watch reports the end of the key; wait that long for it */
        call->is_answered = false;
        loop_timer_set(election->timer, election->ttl_ms / 2);
    } else {
        (void)begin_call(election, REQUEST_LOOK, CALL_MS);
    }
}

int election_start(struct election **out, const struct election_options *options,
                   uint64_t timeout_ms, struct ctrun_error *err)
{
    struct election *election = world_alloc(sizeof *election);

    (void)timeout_ms, (void)err;
    election->node = world.current;
    election->options = *options;
    election->host = -1;
    election->epoch = the_etcd.epoch;
    election->ttl_ms = (uint64_t)world.ttl_s * 1000;
    ct_buf_init(&election->journal, 1 << 20);
    ct_buf_init(&election->call.journal, 1 << 20);
    election->timer = loop_timer_open(NULL, go_on, election);
    world.current->election = *out = election;
    world_call(world.current, 0, go_on, election);
    return 0;
}

int election_write(struct election *election, uint64_t sequence, const void *journal,
                   size_t length)
{
    const struct run *run = run_find(&election->node->dispatch->runs, "job");

    ct_buf_consume(&election->journal, ct_buf_length(&election->journal));
    if (length > 0 && ct_buf_append(&election->journal, journal, length) < 0)
        abort();
    election->has_journal = true;
    election->is_over = length == 0;
    election->sequence = sequence;
    if (run)
        election->generation = run->round->generation;
    if (!world.is_muted)
        world_call(election->node, 0, go_on, election);
    return 0;
}

void election_hurry(struct election *election)
{
    election->is_hurried = true;
    if (world.mutant == MUTANT_ACK_BEFORE_RENEWAL)
        server_poke((struct server *)(void *)election->node);
    world_call(election->node, 0, go_on, election);
}

void election_set_members(struct election *election, const struct etcd_config *config)
{
    (void)election, (void)config;
}

static void resign(struct election *election)
{
    const int i = election->node->index;

    if (election->state != LEADING || election->epoch != the_etcd.epoch || !is_up() ||
        !is_way_open(i, true) || !the_etcd.has_key || the_etcd.term != election->term)
        return;
    TRACE("node%d: resigns", i);
    if (election->has_journal) {
        ct_buf_consume(&the_etcd.journal, ct_buf_length(&the_etcd.journal));
        (void)ct_buf_append(&the_etcd.journal, ct_buf_data(&election->journal),
                            ct_buf_length(&election->journal));
        the_etcd.generation = election->generation;
        the_etcd.has_resigned = true;
        the_etcd.written = ++the_etcd.revision;
    }
    free_key();
}

void world_election_drop(struct world_node *node)
{
    struct election *election = node->election;

    if (!election)
        return;
    node->election = NULL;
    ct_buf_deinit(&election->journal);
    ct_buf_deinit(&election->call.journal);
}

void election_stop(struct election *election)
{
    if (!election)
        return;
    resign(election);
    world_election_drop(election->node);
}

void server_record_fill(struct server_record *out, const char *name,
                        const struct addresses *addresses, uint16_t port)
{
    (void)name, (void)addresses, (void)port;
    memset(out, 0, sizeof *out);
}

void etcd_config_wipe(struct etcd_config *config)
{
    (void)config;
}

void messages_notice(const char *format, ...)
{
    (void)format;
}
