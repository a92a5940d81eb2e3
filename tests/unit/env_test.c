/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

static void set_replaces_and_keeps_order(void **state)
{
    char a[] = "A=1";
    char b[] = "B=2";
    char *base[] = {a, b, NULL};
    struct ct_env env;

    (void)state;
    assert_int_equal(ct_env_init(&env, base), 0);
    assert_int_equal(ct_env_set(&env, "A", "x"), 0);
    assert_int_equal(ct_env_setf(&env, "RANK", "%d", 7), 0);
    assert_string_equal(env.list[0], "A=x");
    assert_string_equal(env.list[1], "B=2");
    assert_string_equal(env.list[2], "RANK=7");
    assert_null(env.list[3]);
    ct_env_remove(&env, "B");
    assert_null(ct_env_get(&env, "B"));
    assert_string_equal(ct_env_get(&env, "RANK"), "7");
    assert_int_equal(ct_env_set(&env, "A=B", "x"), -EINVAL);
    ct_env_deinit(&env);
}

static void grows_past_its_first_size(void **state)
{
    struct ct_env env;
    char name[16];

    (void)state;
    assert_int_equal(ct_env_init(&env, NULL), 0);
    for (int i = 0; i < 200; i++) {
        ct_format(name, sizeof name, "N%d", i);
        assert_int_equal(ct_env_setf(&env, name, "%d", i), 0);
    }
    assert_string_equal(ct_env_get(&env, "N199"), "199");
    assert_null(env.list[200]);
    ct_env_deinit(&env);
    ct_env_deinit(&env); /* twice is harmless */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_replaces_and_keeps_order),
        cmocka_unit_test(grows_past_its_first_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
