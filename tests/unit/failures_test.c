/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>

#include "rendezvous/failures.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

static struct ct_failure make(uint8_t cause, int32_t code, int32_t rank)
{
    return (struct ct_failure){
        .generation = 1, .cause = cause, .code = code, .rank = rank, .pid = 100 + rank};
}

static void exit_codes_are_those_of_the_cause(void **state)
{
    static const struct {
        uint8_t cause;
        int32_t code;
        uint8_t exit_code;
    } table[] = {
        {CT_CAUSE_EXIT, 3, 3},
        {CT_CAUSE_EXIT, 256, 1},
        {CT_CAUSE_EXIT, -1, 255},
        {CT_CAUSE_SIGNAL, SIGKILL, 137},
        {CT_CAUSE_SIGNAL, SIGSEGV, 139},
        {CT_CAUSE_OOM, 0, 137},
        {CT_CAUSE_EXEC, ENOENT, 127},
        {CT_CAUSE_EXEC, EACCES, 126},
        {CT_CAUSE_STOPPED, SIGTERM, 143},
        {CT_CAUSE_NODE_LOST, 0, 75},
        {CT_CAUSE_UNKILLABLE, 0, 76},
        {CT_CAUSE_JOIN_TIMEOUT, 0, 75},
        {CT_CAUSE_AGENT, 0, 1},
        {CT_CAUSE_HANG, 2, 1},
        {CT_CAUSE_UNREACHABLE, 29611, 75},
        {200, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ct_failure failure = make(table[i].cause, table[i].code, 0);

        assert_int_equal(failures_exit_code(&failure), table[i].exit_code);
    }
}

static void consequences_stand_behind_causes(void **state)
{
    static struct failures failures;
    struct ct_failure stopped = make(CT_CAUSE_STOPPED, SIGTERM, 0);
    struct ct_failure cause = make(CT_CAUSE_EXIT, 1, 1);
    struct ct_failure out[CT_FAILURES_MAX];

    (void)state;
    failures_add(&failures, &stopped);
    assert_null(failures_get_root(&failures));
    failures_add(&failures, &cause);
    failures_add(&failures, &cause); /* the same again, in the STOPPED of its node */
    assert_int_equal(failures_get_root(&failures)->rank, 1);
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 2);
    assert_int_equal(out[0].cause, CT_CAUSE_EXIT);
    assert_int_equal(out[1].cause, CT_CAUSE_STOPPED);
    failures_clear(&failures);
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 0);
}

static void beyond_the_room_the_first_ones_stay(void **state)
{
    static struct failures failures;
    struct ct_failure out[CT_FAILURES_MAX];

    (void)state;
    for (int rank = 0; rank < 100; rank++) {
        struct ct_failure failure = make(CT_CAUSE_EXIT, 1, rank);

        failures_add(&failures, &failure);
    }
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), CT_FAILURES_MAX);
    assert_int_equal(out[0].rank, 0);
    assert_int_equal(out[CT_FAILURES_MAX - 1].rank, CT_FAILURES_MAX - 1);
    assert_int_equal(failures_copy(&failures, out, 1), 1);
}

static void a_victim_is_not_the_root_cause_even_when_heard_first(void **state)
{
    static struct failures failures;
    struct ct_failure lost = make(CT_CAUSE_NODE_LOST, 0, -1);
    struct ct_failure out[CT_FAILURES_MAX];

    (void)state;
    for (int rank = 0; rank < 100; rank++) {
        struct ct_failure victim = make(CT_CAUSE_EXIT, 1, rank);

        ct_copy(victim.text, sizeof victim.text, "E_PEER_LOST: rank 100 died");
        failures_add(&failures, &victim);
    }
    assert_int_equal(failures_get_root(&failures)->rank,
                     0);            /* nothing better is known */
    failures_add(&failures, &lost); /* finds room, though there was none */
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), CT_FAILURES_MAX);
    assert_int_equal(out[0].cause, CT_CAUSE_NODE_LOST);
    assert_int_equal(out[1].rank, 0); /* the victims stay in order */
    assert_int_equal(out[2].rank, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes_are_those_of_the_cause),
        cmocka_unit_test(consequences_stand_behind_causes),
        cmocka_unit_test(beyond_the_room_the_first_ones_stay),
        cmocka_unit_test(a_victim_is_not_the_root_cause_even_when_heard_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
