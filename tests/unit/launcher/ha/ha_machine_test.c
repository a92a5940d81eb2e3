/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ha/ha_machine.h"
#include "tests/lib/test.h"

/* Three nodes; nothing is done yet. */
static struct ha_facts three(void)
{
    return (struct ha_facts){.wanted = 3, .idle = 3, .nodes = 3, .may_try = true};
}

/* Three members run. */
static struct ha_facts running(void)
{
    return (struct ha_facts){
        .wanted = 3, .voters = 3, .running = 3, .nodes = 3, .may_try = true};
}

static void expect(enum ha_state *state, const struct ha_facts *facts,
                   enum ha_action action, enum ha_state next)
{
    assert_int_equal(ha_step(state, facts), action);
    assert_string_equal(ha_state_name(*state), ha_state_name(next));
}

TEST(it_begins_when_enough_nodes_are_here)
{
    enum ha_state now = HA_WAITING;
    struct ha_facts facts = three();

    facts.idle = 2;
    expect(&now, &facts, HA_DO_NOTHING, HA_WAITING);
    facts.idle = 3;
    facts.may_try = false;
    expect(&now, &facts, HA_DO_NOTHING, HA_WAITING);
    facts.may_try = true;
    expect(&now, &facts, HA_DO_PLAN, HA_STARTING);
}

TEST(the_way_from_three_nodes_to_a_run_that_survives)
{
    enum ha_state now = HA_STARTING;
    struct ha_facts facts = running();

    facts.running = 2;
    expect(&now, &facts, HA_DO_NOTHING, HA_STARTING);
    facts.running = 3;
    expect(&now, &facts, HA_DO_SECURE, HA_SECURING);
    expect(&now, &facts, HA_DO_NOTHING, HA_SECURING);
    facts.outcome = HA_DONE;
    expect(&now, &facts, HA_DO_MOVE, HA_MOVING);
    facts.outcome = HA_NONE;
    expect(&now, &facts, HA_DO_NOTHING, HA_MOVING);
    facts.outcome = HA_DONE;
    expect(&now, &facts, HA_DO_SEND, HA_SENDING);
    facts.outcome = HA_NONE;
    facts.following = 2;
    expect(&now, &facts, HA_DO_NOTHING, HA_SENDING);
    assert_int_equal(ha_survives(now, &facts), 0);
    facts.following = 3;
    expect(&now, &facts, HA_DO_SEND, HA_ACTIVE);
    assert_int_equal(ha_survives(now, &facts), 1);
}

TEST(what_fails_before_anybody_was_told_begins_anew)
{
    static const enum ha_state states[] = {HA_STARTING, HA_SECURING, HA_MOVING};

    for (int i = 0; i < 3; i++) {
        struct ha_facts facts[3] = {running(), running(), running()};

        facts[0].outcome = HA_FAILED;
        facts[1].lost = 1;
        facts[2].is_late = true;
        for (int k = 0; k < 3; k++) {
            enum ha_state now = states[i];

            expect(&now, &facts[k], HA_DO_DROP, HA_WAITING);
        }
    }
}

/* The rendezvous is in etcd already: without etcd its server could send nothing any more. */
TEST(what_has_moved_does_not_move_back)
{
    struct ha_facts facts[2] = {running(), running()};

    facts[0].lost = 1;
    facts[1].is_late = true;
    for (int i = 0; i < 2; i++) {
        enum ha_state now = HA_MOVING;

        facts[i].outcome = HA_DONE;
        expect(&now, &facts[i], HA_DO_SEND, HA_SENDING);
    }
}

TEST(once_told_there_is_no_way_back)
{
    for (enum ha_state first = HA_SENDING; first < HA_STATES; first++)
        for (int bits = 0; bits < 1 << 10; bits++) {
            enum ha_state now = first;
            struct ha_facts facts = running();

            facts.running = 3 - (bits & 1);
            facts.lost = bits >> 1 & 1;
            facts.idle = bits >> 2 & 1;
            facts.following = 3 - (bits >> 3 & 1);
            facts.outcome = (enum ha_outcome)((bits >> 4 & 3) % 3);
            facts.learner = (enum ha_learner)(bits >> 6 & 3);
            facts.is_late = bits >> 8 & 1;
            facts.may_try = bits >> 9 & 1;
            const enum ha_action action = ha_step(&now, &facts);

            assert_true(action != HA_DO_DROP && action != HA_DO_PLAN &&
                        action != HA_DO_SECURE && action != HA_DO_MOVE);
            assert_true(now >= HA_SENDING && now < HA_STATES);
        }
}

TEST(a_lost_member_is_replaced_learner_first)
{
    enum ha_state now = HA_ACTIVE;
    struct ha_facts facts = running();

    facts.running = 2;
    facts.lost = 1;
    expect(&now, &facts, HA_DO_NOTHING, HA_ACTIVE); /* no node can replace it */
    facts.idle = 1;
    expect(&now, &facts, HA_DO_REMOVE, HA_REMOVING);
    facts.outcome = HA_DONE;
    facts.lost = 0;
    facts.voters = 2;
    expect(&now, &facts, HA_DO_SEND, HA_ACTIVE);
    facts.outcome = HA_NONE;
    expect(&now, &facts, HA_DO_ADD, HA_ADDING);
    facts.outcome = HA_DONE;
    facts.learner = HA_LEARNER_STARTS;
    expect(&now, &facts, HA_DO_SEND, HA_LEARNING);
    facts.outcome = HA_NONE;
    expect(&now, &facts, HA_DO_NOTHING, HA_LEARNING);
    facts.learner = HA_LEARNER_RUNS;
    expect(&now, &facts, HA_DO_PROMOTE, HA_PROMOTING);
    facts.outcome = HA_FAILED;
    expect(&now, &facts, HA_DO_NOTHING, HA_LEARNING);
    expect(&now, &facts, HA_DO_PROMOTE, HA_PROMOTING);
    facts.outcome = HA_DONE;
    facts.voters = 3;
    facts.running = 3;
    facts.learner = HA_NO_LEARNER;
    expect(&now, &facts, HA_DO_SEND, HA_ACTIVE);
}

TEST(a_learner_that_is_lost_is_taken_out)
{
    enum ha_state now = HA_LEARNING;
    struct ha_facts facts = running();

    facts.learner = HA_LEARNER_LOST;
    expect(&now, &facts, HA_DO_REMOVE, HA_REMOVING);
    now = HA_LEARNING;
    facts.learner = HA_LEARNER_STARTS;
    facts.is_late = true;
    expect(&now, &facts, HA_DO_REMOVE, HA_REMOVING);
    now = HA_ACTIVE; /* the server that added it is gone */
    facts.is_late = false;
    expect(&now, &facts, HA_DO_SEND, HA_LEARNING);
}

TEST(what_may_be_lost_is_what_a_majority_can_spare)
{
    struct ha_facts facts = running();

    facts.following = 3;
    assert_int_equal(ha_survives(HA_ACTIVE, &facts), 1);
    facts.running = 2;
    assert_int_equal(ha_survives(HA_ACTIVE, &facts), 0);
    facts.running = 1;
    assert_int_equal(ha_survives(HA_ACTIVE, &facts), 0);
    facts.voters = facts.running = 5;
    assert_int_equal(ha_survives(HA_ACTIVE, &facts), 2);
    facts.following = 2; /* one node would not find the next server */
    assert_int_equal(ha_survives(HA_ACTIVE, &facts), 0);
}
