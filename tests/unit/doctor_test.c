/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "launcher/doctor.h"
#include "tests/lib/test.h"

static void a_name_that_is_loopback_is_a_trap(void **state)
{
    struct doctor doctor = {0};
    struct ct_addr addr;

    (void)state;
    assert_int_equal(ct_addr_parse("127.0.1.1", 0, &addr), 0);
    doctor_check_name(&doctor, "node1", &addr, 1, 3);
    assert_int_equal(doctor.list[0].level, DOCTOR_WARN);
    assert_string_equal(doctor.list[0].value, "node1 is 127.0.1.1");
    assert_int_equal(ct_addr_parse("10.0.0.1", 0, &addr), 0);
    doctor_check_name(&doctor, "node1", &addr, 1, 5000);
    assert_int_equal(doctor.list[2].level, DOCTOR_OK);
    assert_int_equal(doctor.list[3].level, DOCTOR_WARN); /* slow */
}

static void a_small_shm_warns_and_none_fails(void **state)
{
    struct doctor doctor = {0};

    (void)state;
    doctor_check_shm(&doctor, 64 << 20, 64 << 20);
    assert_int_equal(doctor.list[0].level, DOCTOR_WARN);
    assert_false(doctor_has_failed(&doctor));
    doctor_check_shm(&doctor, 0, 0);
    assert_true(doctor_has_failed(&doctor));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_is_loopback_is_a_trap),
        cmocka_unit_test(a_small_shm_warns_and_none_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
