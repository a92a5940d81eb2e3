/* SPDX-License-Identifier: Apache-2.0 */
/* One signal to a run reaches each worker once, in whatever order the nodes receive it. */
#include "tests/lib/test.h"

#include <stdlib.h>

#include "agent/node/signal_once.h"

enum {
    NODES = 5,
    LATE_MS = SIGNAL_ONCE_QUIET_MS + 1
};

struct node {
    struct signal_once once;
    int delivered;
};

static uint32_t get(struct node *node, uint64_t now_ms)
{
    bool is_new;
    uint32_t count = signal_once_get(&node->once, SIGUSR1, now_ms, &is_new);

    node->delivered += is_new;
    return count;
}

static void hear(struct node *node, uint32_t count, uint64_t now_ms)
{
    node->delivered += signal_once_receive(&node->once, SIGUSR1, count, now_ms);
}

TEST(a_signal_to_one_node_reaches_all)
{
    struct node a = {0}, b = {0};

    for (uint64_t i = 1; i <= 3; i++) { /* several times, quickly */
        hear(&b, get(&a, i), i);
        assert_int_equal(a.delivered, i);
        assert_int_equal(b.delivered, i);
    }
    hear(&b, get(&a, 3 + LATE_MS), 3 + LATE_MS);
    assert_int_equal(a.delivered, 4);
    assert_int_equal(b.delivered, 4);
}

/* srun signals all nodes, and each sends it to all others; nothing arrives in order. */
TEST(a_signal_to_all_nodes_is_one)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct node nodes[NODES] = {0};
        uint32_t told[NODES][NODES] = {{0}}; /* [from][to]; 0: nothing was sent */
        bool got[NODES] = {false};
        uint64_t now_ms = 1;
        unsigned random = seed;

        for (int left = NODES * NODES; left > 0; now_ms++) {
            int from = rand_r(&random) % NODES;
            int to = rand_r(&random) % NODES;

            if (!got[from]) {
                got[from] = true;
                told[from][0] = get(&nodes[from], now_ms);
                for (int i = 1; i < NODES; i++)
                    told[from][i] = told[from][0];
                told[from][from] = 0;
                left -= 2;
            } else if (told[from][to]) {
                hear(&nodes[to], told[from][to], now_ms);
                told[from][to] = 0;
                left--;
            }
        }
        for (int i = 0; i < NODES; i++)
            if (nodes[i].delivered != 1)
                fail_msg("seed %u: node %d delivered %d", seed, i, nodes[i].delivered);
    }
}

TEST(signals_do_not_count_for_one_another)
{
    struct signal_once once = {0};
    bool is_new;

    assert_int_equal(signal_once_get(&once, SIGUSR1, 1, &is_new), 1);
    assert_int_equal(signal_once_get(&once, SIGUSR2, 1, &is_new), 1);
    assert_true(is_new);
    assert_false(signal_once_receive(&once, SIGUSR2, 1, 2));
    assert_true(signal_once_receive(&once, SIGUSR2, 2, 2));
    assert_true(signal_once_receive(&once, SIGUSR2, 1, 3 + LATE_MS)); /* a new count */
}
