/* SPDX-License-Identifier: Apache-2.0 */
/* What a node adds to the report of a rank that may have waited for another node. */
#include "agent/node/agent_private.h"
#include "tests/lib/test.h"

static struct agent agent;

static const char *so_of(const struct ct_failure *failure)
{
    const char *text = ct_facts_find(&failure->facts, CT_FACT_SO);

    return text ? text : "none";
}

TEST(a_node_that_cannot_be_reached_is_named_where_a_rank_has_waited)
{
    static const struct {
        uint8_t cause;
        int32_t error;
        bool is_named;
    } rows[] = {
        {CT_CAUSE_HANG, 0, true},
        {CT_CAUSE_EXIT, CTRUN_E_PEER_LOST, true},
        {CT_CAUSE_EXIT, 0, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct ct_failure failure;

        failure = (struct ct_failure){.cause = rows[i].cause, .error = rows[i].error};
        agent.unreachable[0] = '\0';
        agent_add_unreachable(&agent, &failure);
        assert_string_equal(so_of(&failure), "none");
        (void)ct_copy(agent.unreachable, sizeof agent.unreachable,
                      "node3 cannot reach node2 on 10.77.0.12");
        agent_add_unreachable(&agent, &failure);
        assert_string_equal(
            so_of(&failure),
            rows[i].is_named
                ? "node3 cannot reach node2 on 10.77.0.12 when this round began"
                : "none");
    }
}
