/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that compute. */
#include <string.h>

#include "tests/lib/test.h"

#include "worker_sdk/cnn/team.h"

enum {
    MEMBERS = 3
};

static void halve(void *context, int index, int count)
{
    volatile float *halves = context;
    volatile float smallest = 1.17549435e-38f; /* that is not a denormal */

    (void)count;
    halves[index] = smallest / 2;
}

/* The optimizer's averages of a weight that gets no gradient any more shrink step by step: as
 * denormals they make each further step slow. */
TEST(denormals_are_zero_in_each_member)
{
    float halves[MEMBERS] = {1, 1, 1};
    struct ctrun_error err;
    struct cnn_team *team;

    assert_int_equal(cnn_team_create(&team, MEMBERS, &err), 0);
    cnn_team_run(team, halve, halves);
    cnn_team_destroy(team);
    for (int i = 0; i < MEMBERS;
         i++) { /* by its bits: to us a denormal equals zero, too */
        uint32_t bits;
        memcpy(&bits, &halves[i], sizeof bits);
        assert_int_equal(bits, 0);
    }
}
