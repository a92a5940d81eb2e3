/* SPDX-License-Identifier: Apache-2.0 */
/* This node's member, with a keeper and an etcd that do as the test says. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "launcher/ha/ha_private.h"
#include "tests/lib/test.h"

static int asked;      /* requests to the keeper */
static int results[3]; /* of the first ones; then 0 */
static bool has_ended; /* etcd, for the next look */

int ha_keeper_ask(const struct ha_keeper *keeper,
                  const struct ha_keeper_request *request,
                  struct ha_keeper_reply *reply, bool *is_gone, struct ctrun_error *err)
{
    const int rc = asked < 3 ? results[asked] : 0;

    asked++;
    *reply = (struct ha_keeper_reply){0};
    return rc < 0 ? ct_fail(err, rc, "it is busy") : 0;
}

bool ha_keeper_has_ended(const struct ha_keeper *keeper, struct ha_keeper_reply *reply)
{
    const bool is = has_ended;

    *reply = (struct ha_keeper_reply){0};
    has_ended = false;
    return is;
}

bool ha_cluster_is_up(const struct etcd_config *config, uint64_t deadline_ms)
{
    return true;
}

void ha_cluster_format_name(char *dst, uint64_t key)
{
    *dst = '\0';
}

int ha_cluster_format(char *dst, size_t size, const struct ct_ha_plan *plan)
{
    *dst = '\0';
    return 0;
}

void ha_cluster_fill(struct etcd_config *config, const struct ct_ha_plan *plan)
{
}

void leader_candidate_use(struct leader_candidate *candidate,
                          const struct etcd_config *etcd)
{
}

void leader_candidate_set_members(struct leader_candidate *candidate,
                                  const struct etcd_config *etcd)
{
}

int leader_candidate_start(struct leader_candidate *candidate, struct server *server,
                           const struct addresses *addresses, uint16_t port,
                           struct ctrun_error *err)
{
    return 0;
}

static struct config config;
static struct addresses addresses = {.has_bind = true};

/* Member 5 of epoch 1. */
static void begin(struct ha *ha, const int rcs[3])
{
    asked = 0;
    memcpy(results, rcs, sizeof results);
    assert_int_equal(ct_addr_parse("127.0.0.1", 0, &addresses.bind), 0);
    *ha = (struct ha){
        .options = {.config = &config, .addresses = &addresses},
        .wake_fd = eventfd(0, EFD_CLOEXEC),
        .certified_epoch = 1,
        .started_epoch = 1,
        .self = {
            .key = 5, .addr = "127.0.0.1", .client_port = 2379, .peer_port = 2380}};
    pthread_mutex_init(&ha->mutex, NULL);
}

/* It is reported as a node that is no member, and can become none. */
static void assert_no_member(const struct ha *ha)
{
    assert_true(ha->is_broken);
    assert_int_not_equal(ha->self.key, 0);
    assert_int_not_equal(ha->self.key, 5); /* the lost member */
    assert_int_equal(ha->self.client_port, 0);
    assert_int_equal(ha->self.is_running, 0);
}

/* Its answer may still come, and would be taken for that to the next request. */
TEST(a_keeper_that_does_not_answer_in_time_is_asked_no_more)
{
    const struct ct_ha_plan plan = {0};
    struct ha ha;

    begin(&ha, (const int[3]){-ETIMEDOUT}); /* STOP */
    ha.has_started = true;
    ha.self.is_running = 1;
    has_ended = true;
    (void)ha_keep_member(&ha, &plan);
    assert_int_equal(asked, 1);
    (void)ha_keep_member(&ha, &plan);
    assert_int_equal(asked, 1);
    assert_no_member(&ha);
    close(ha.wake_fd);
}

/* Its member does not start, or has ended and no other port is free: another node must become
 * one. */
TEST(a_node_that_cannot_be_a_member_says_so)
{
    const struct ct_ha_plan plan = {
        .epoch = 1, .phase = CT_HA_STARTING, .count = 1, .members = {{.key = 5}}};
    struct ha ha;

    begin(&ha, (const int[3]){-ENOENT}); /* START */
    (void)ha_keep_member(&ha, &plan);
    assert_no_member(&ha);
    close(ha.wake_fd);

    begin(&ha, (const int[3]){0, -EADDRINUSE}); /* STOP, RESERVE */
    ha.has_started = true;
    ha.self.is_running = 1;
    has_ended = true;
    (void)ha_keep_member(&ha, &plan);
    assert_no_member(&ha);
    close(ha.wake_fd);
}
