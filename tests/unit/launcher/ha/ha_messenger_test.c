/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher that has founded a run hears that the run lives elsewhere. */
#include "launcher/etcd/leader_candidate.h"
#include "launcher/ha/ha_private.h"
#include "rendezvous/server/server.h"
#include "tests/lib/test.h"

static bool has_stepped_down, stands_down;

void ha_lead_end(struct ha *ha)
{
}

void leader_candidate_revert(struct leader_candidate *candidate)
{
}

/* From here on a step of the server would be written to an etcd that is not there. */
void leader_candidate_stand_down(struct leader_candidate *candidate)
{
    assert_true(has_stepped_down);
    stands_down = true;
}

void server_step_down(struct server *server)
{
    has_stepped_down = true;
}

void server_send_ha(struct server *server, const struct ct_ha_plan *plan)
{
    assert_true(stands_down);
    assert_int_equal(plan->epoch, 7);
}

TEST(the_server_has_no_run_any_more_when_the_candidate_stands_down)
{
    struct config config = {.run.run_id = "r"};
    struct ha ha = {.options.config = &config,
                    .is_founder = true,
                    .leads = true,
                    .found = {.epoch = 7, .phase = CT_HA_ACTIVE}};

    pthread_mutex_init(&ha.mutex, NULL);
    pthread_cond_init(&ha.changed, NULL);
    ha_take_found(&ha);
    assert_false(ha.is_founder || ha.leads);
    assert_int_equal(ha.plan.epoch, 7);
    pthread_cond_destroy(&ha.changed);
    pthread_mutex_destroy(&ha.mutex);
}
