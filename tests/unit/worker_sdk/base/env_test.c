/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

TEST(set_replaces_and_keeps_order)
{
    char a[] = "A=1";
    char b[] = "B=2";
    char *base[] = {a, b, NULL};
    struct ct_env env;

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

TEST(grows_past_its_first_size)
{
    struct ct_env env;
    char name[16];

    assert_int_equal(ct_env_init(&env, NULL), 0);
    for (int i = 0; i < 200; i++) {
        ct_format(name, sizeof name, "N%d", i);
        assert_int_equal(ct_env_setf(&env, name, "%d", i), 0);
    }
    assert_string_equal(ct_env_get(&env, "N199"), "199");
    assert_null(env.list[200]);
    ct_env_deinit(&env);
    ct_env_deinit(&env); /* a second call does no harm */
}

/* A launcher makes an environment for each worker: the cost must not grow with the number of
 * names. */
TEST(takes_few_allocations)
{
    char base_entry[] = "SOME_NAME=some value";
    char *base[101] = {0};
    struct ct_env env;
    char name[16];

    for (int i = 0; i < 100; i++)
        base[i] = base_entry;
    ct_alloc_fail_at(3); /* a third allocation fails */
    assert_int_equal(ct_env_init(&env, base), 0);
    for (int i = 0; i < 30; i++) {
        ct_format(name, sizeof name, "N%d", i);
        assert_int_equal(ct_env_set(&env, name, "value"), 0);
    }
    ct_alloc_fail_at(0);
    assert_string_equal(ct_env_get(&env, "N29"), "value");
    assert_string_equal(ct_env_get(&env, "SOME_NAME"), "some value");
    ct_env_deinit(&env);
}

/* Values shorter and longer than the space that is reserved for added ones. */
TEST(long_values_are_replaced_and_removed)
{
    static char value[5000];
    struct ct_env env;

    memset(value, 'x', sizeof value - 1);
    assert_int_equal(ct_env_init(&env, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ct_env_set(&env, "LONG", value), 0);
        assert_int_equal(ct_env_set(&env, "SHORT", "1"), 0);
    }
    assert_string_equal(ct_env_get(&env, "LONG"), value);
    ct_env_remove(&env, "LONG");
    assert_null(ct_env_get(&env, "LONG"));
    assert_string_equal(ct_env_get(&env, "SHORT"), "1");
    ct_env_deinit(&env);
}
