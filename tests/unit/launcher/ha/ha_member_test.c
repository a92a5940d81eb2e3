/* SPDX-License-Identifier: Apache-2.0 */
/* This node's member, with a keeper and an etcd that do as the test says. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "launcher/ha/ha_private.h"
#include "tests/lib/test.h"

static int asked;      /* requests to the keeper */
static int asked_rc;   /* the result of the next one; then 0 */
static bool has_ended; /* etcd, for the next look */

int ha_keeper_ask(const struct ha_keeper *keeper,
                  const struct ha_keeper_request *request,
                  struct ha_keeper_reply *reply, bool *is_gone, struct ctrun_error *err)
{
    const int rc = asked_rc;

    asked++;
    asked_rc = 0;
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

/* Its answer may still come, and would be taken for that to the next request. */
static void a_keeper_that_does_not_answer_in_time_is_asked_no_more(void **state)
{
    static struct config config;
    static struct addresses addresses = {.has_bind = true};
    const struct ct_ha_plan plan = {0};
    struct ha ha = {.options = {.config = &config, .addresses = &addresses},
                    .wake_fd = eventfd(0, EFD_CLOEXEC),
                    .has_started = true,
                    .started_epoch = 1,
                    .self = {.key = 5, .is_running = 1}};

    assert_int_equal(ct_addr_parse("127.0.0.1", 0, &addresses.bind), 0);
    pthread_mutex_init(&ha.mutex, NULL);
    has_ended = true;
    asked_rc = -ETIMEDOUT; /* to STOP */
    (void)ha_keep_member(&ha, &plan);
    assert_true(ha.is_broken);
    assert_int_equal(asked, 1);
    assert_int_equal(ha.self.key, 0);
    (void)ha_keep_member(&ha, &plan);
    assert_int_equal(asked, 1);
    close(ha.wake_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_keeper_that_does_not_answer_in_time_is_asked_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
