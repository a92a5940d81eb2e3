/* SPDX-License-Identifier: Apache-2.0 */
/* The members of the run's etcd, as the node that serves changes them. Etcd and the clock are the
 * test's. */
#include <errno.h>

#include "launcher/ha/ha_private.h"
#include "tests/lib/test.h"

enum {
    BEGIN_MS = 100000,
    SELF = 1,
    LOST = 2,
    AWAY = 3, /* its connection has just broken */
    IDLE = 4
};

static uint64_t now_ms;
static struct ct_ha_plan cluster; /* what etcd has */
static bool is_answer_lost;       /* of the next change, which is done */
static int changes;
static struct ct_ha_plan sent;

uint64_t __wrap_ct_now_ms(void);
uint64_t __wrap_ct_now_ms(void)
{
    return now_ms;
}

/* ---- Etcd ------------------------------------------------------------------------------------ */

int etcd_open(struct etcd **out, const struct etcd_config *config,
              struct ctrun_error *err)
{
    return 0;
}

void etcd_close(struct etcd *etcd)
{
}

void etcd_set_members(struct etcd *etcd, const struct etcd_config *config)
{
}

int ha_cluster_list(struct etcd *etcd, struct ct_ha_plan *plan,
                    char ids[CT_HA_MEMBERS_MAX][24], uint64_t deadline_ms,
                    struct ctrun_error *err)
{
    plan->count = cluster.count;
    memcpy(plan->members, cluster.members, sizeof plan->members);
    for (int i = 0; i < cluster.count; i++)
        (void)ct_format(ids[i], 24, "%llu", (unsigned long long)cluster.members[i].key);
    return 0;
}

static void carry_out(enum etcd_call what, uint64_t key)
{
    for (int i = 0; i < cluster.count; i++) {
        if (cluster.members[i].key != key)
            continue;
        if (what == ETCD_MEMBER_PROMOTE)
            cluster.members[i].is_learner = 0;
        else
            cluster.members[i] = cluster.members[--cluster.count];
        return;
    }
}

int ha_cluster_change(struct etcd *etcd, enum etcd_call what, const char *id,
                      uint64_t deadline_ms, struct ctrun_error *err)
{
    const bool is_lost = is_answer_lost;

    changes++;
    carry_out(what, strtoull(id, NULL, 10));
    is_answer_lost = false;
    return is_lost ? ct_fail(err, -EPROTO, "no such member") : 0;
}

int ha_cluster_add(struct etcd *etcd, const struct ct_ha_member *member,
                   uint64_t deadline_ms, struct ctrun_error *err)
{
    return ct_fail(err, -EPROTO, "not now");
}

int ha_cluster_move_lead(const struct etcd_config *config, const char *to,
                         uint64_t deadline_ms, struct ctrun_error *err)
{
    return 0;
}

int ha_cluster_secure(const struct etcd_config *config, uint64_t deadline_ms,
                      struct ctrun_error *err)
{
    return 0;
}

bool ha_certify(struct ha *ha, const struct ct_ha_plan *plan)
{
    return true;
}

/* ---- The server and its candidate ------------------------------------------------------------ */

void server_send_ha(struct server *server, const struct ct_ha_plan *plan)
{
    sent = *plan;
}

void leader_candidate_use(struct leader_candidate *candidate,
                          const struct etcd_config *etcd)
{
}

int leader_candidate_start(struct leader_candidate *candidate, struct server *server,
                           const struct addresses *addresses, uint16_t port,
                           struct ctrun_error *err)
{
    return 0;
}

bool leader_candidate_commit(struct leader_candidate *candidate)
{
    return true;
}

void leader_candidate_revert(struct leader_candidate *candidate)
{
}

bool leader_candidate_leads(struct leader_candidate *candidate)
{
    return true;
}

/* ---- Tests ------------------------------------------------------------------------------------ */

static void take_turn(struct ha *ha)
{
    ha->retry_ms = 0;
    (void)ha_lead(ha, &ha->made);
}

static bool is_member(const struct ct_ha_plan *plan, uint64_t key)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->members[i].key == key)
            return true;
    return false;
}

static struct ha_node report_of(uint64_t peer, uint64_t key, bool is_running)
{
    return (struct ha_node){.peer = peer,
                            .report = {.key = key,
                                       .addr = "10.0.0.1",
                                       .client_port = 2379,
                                       .peer_port = 2380,
                                       .is_running = is_running}};
}

/* Three members, one of them lost, and an idle node in its place. */
static void begin(struct ha *ha, struct ha_node *nodes)
{
    static struct config config;

    now_ms = BEGIN_MS;
    config.rdzv.ha.nodes = 3;
    cluster = (struct ct_ha_plan){
        .epoch = 1,
        .count = 3,
        .members = {{.key = SELF}, {.key = LOST}, {.key = AWAY}}};
    nodes[0] = report_of(1, SELF, true);
    nodes[1] = report_of(2, IDLE, false);
    nodes[2] = report_of(3, AWAY, true);
    *ha = (struct ha){.options.config = &config,
                      .nodes = nodes,
                      .node_count = 3,
                      .state = HA_ACTIVE,
                      .leads = true,
                      .leader_ms = UINT64_MAX,
                      .state_ms = BEGIN_MS,
                      .self.key = SELF,
                      .made = cluster};
    pthread_mutex_init(&ha->mutex, NULL);
    changes = 0;
    sent = (struct ct_ha_plan){0};
}

/* Its member was taken out, and the answer was lost: the second try finds it gone. */
TEST(no_other_member_is_taken_out_for_a_lost_one)
{
    struct ha_node nodes[3];
    struct ha ha;

    begin(&ha, nodes);
    take_turn(&ha); /* from now on the lost one is absent */
    now_ms += HA_LOST_MS - 1;
    ha.node_count = 2; /* so is another one, for a moment */
    take_turn(&ha);
    assert_int_equal(changes, 0);
    now_ms += 1;
    is_answer_lost = true;
    take_turn(&ha);
    assert_int_equal(changes, 1);
    assert_false(is_member(&cluster, LOST));
    for (int i = 0; i < 3; i++)
        take_turn(&ha);
    assert_int_equal(changes, 1);
    assert_true(is_member(&cluster, AWAY));
    assert_int_equal(sent.count, 2); /* the nodes are told what there is now */
    assert_true(is_member(&sent, AWAY));
}

TEST(a_lost_member_is_taken_out)
{
    struct ha_node nodes[3];
    struct ha ha;

    begin(&ha, nodes);
    take_turn(&ha);
    now_ms += HA_LOST_MS;
    take_turn(&ha);
    assert_int_equal(changes, 1);
    assert_false(is_member(&cluster, LOST));
    take_turn(&ha);
    assert_int_equal(sent.count, 2);
}

TEST(a_vote_that_was_given_unheard_is_told_to_the_nodes)
{
    struct ha_node nodes[3];
    struct ha ha;

    begin(&ha, nodes);
    nodes[1] = report_of(2, LOST, true);
    cluster.members[1].is_learner = 1;
    ha.made = cluster;
    is_answer_lost = true;
    take_turn(&ha);
    assert_int_equal(changes, 1);
    for (int i = 0; i < 3; i++)
        take_turn(&ha);
    assert_int_equal(changes, 1);
    assert_int_equal(sent.count, 3);
    assert_int_equal(sent.members[1].is_learner, 0);
}

TEST(a_node_that_cannot_be_a_member_is_not_named)
{
    struct ha_node nodes[4];
    struct ha ha;

    begin(&ha, nodes);
    ha.is_founder = true;
    ha.state = HA_WAITING;
    ha.made = (struct ct_ha_plan){0};
    nodes[1].report.client_port = nodes[1].report.peer_port = 0;
    take_turn(&ha); /* three are wanted */
    assert_int_equal(sent.count, 0);
    nodes[3] = report_of(4, LOST, false);
    ha.node_count = 4;
    take_turn(&ha);
    assert_int_equal(sent.count, 3);
    assert_false(is_member(&sent, IDLE));
    assert_true(is_member(&sent, LOST));
}
