/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/tree.h"
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

/* ---- Programs ------------------------------------------------------------------------------ */

static char root[] = "/tmp/ctrun-env-XXXXXX";

static int make_root(void **state)
{
    memcpy(root + sizeof root - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    return test_remove_tree(root);
}

/* As the only variable; in static memory. "%" is the folder of the test. */
static char *const *set_path(const char *value)
{
    static char text[PATH_MAX + 64];
    static char *list[] = {text, NULL};

    (void)ct_format(text, sizeof text, "PATH=");
    for (; *value; value++)
        (void)ct_append(text, sizeof text, "%.*s", *value == '%' ? INT_MAX : 1,
                        *value == '%' ? root : value);
    return list;
}

static void put_program(const char *folder, int mode)
{
    char path[128];

    test_put_under(root, "", "%s/tool", folder);
    (void)ct_format(path, sizeof path, "%s/%s/tool", root, folder);
    assert_int_equal(chmod(path, (mode_t)mode), 0);
}

static void check_found(const char *path, const char *name, const char *folder)
{
    char found[PATH_MAX], expected[128];

    (void)ct_format(expected, sizeof expected, "%s/%s/tool", root, folder);
    assert_true(ct_env_find_program(found, sizeof found, set_path(path), name));
    assert_string_equal(found, expected);
}

TEST_AROUND(the_first_executable_file_of_the_path_is_the_program, make_root,
            remove_root)
{
    char found[PATH_MAX];

    put_program("plain", 0600);
    put_program("folder/tool", 0700);
    put_program("one", 0700);
    put_program("two", 0700);
    check_found("/nonexistent:%/plain:%/folder:%/one:%/two", "tool", "one");
    check_found("%/two:%/one", "tool", "two");
    assert_false(
        ct_env_find_program(found, sizeof found, set_path("%/plain:%/folder"), "tool"));
    assert_false(ct_env_find_program(found, sizeof found, set_path("%/one"), "other"));
}

TEST_AROUND(an_empty_entry_of_the_path_is_the_current_folder, make_root, remove_root)
{
    char before[PATH_MAX], found[PATH_MAX], folder[128];

    put_program("one", 0700);
    (void)ct_format(folder, sizeof folder, "%s/one", root);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    assert_true(ct_env_find_program(found, sizeof found, set_path("/nonexistent::/bin"),
                                    "tool"));
    assert_string_equal(found, "./tool");
    assert_int_equal(chdir(before), 0);
}

TEST_AROUND(a_name_with_a_slash_is_not_looked_for, make_root, remove_root)
{
    char found[PATH_MAX], name[128];

    put_program("one", 0700);
    put_program("plain", 0600);
    (void)ct_format(name, sizeof name, "%s/one/tool", root);
    check_found("%/plain", name, "one");
    (void)ct_format(name, sizeof name, "%s/plain/tool", root);
    assert_false(ct_env_find_program(found, sizeof found, set_path("%/one"), name));
    assert_false(ct_env_find_program(found, sizeof found, set_path("%"), "one/tool"));
}

TEST(without_a_path_the_usual_folders_are_searched)
{
    static char *const none[] = {NULL};
    char found[PATH_MAX];

    assert_true(ct_env_find_program(found, sizeof found, none, "sh"));
    assert_true(ct_env_find_program(found, sizeof found, NULL, "sh"));
    assert_false(
        ct_env_find_program(found, sizeof found, set_path("/nonexistent"), "sh"));
}

TEST(what_is_too_long_for_a_path_is_no_program)
{
    char found[PATH_MAX], name[PATH_MAX + 8];

    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_false(
        ct_env_find_program(found, sizeof found, set_path("/bin:/usr/bin"), name));
    name[0] = '/';
    assert_false(ct_env_find_program(found, sizeof found, set_path("/bin"), name));
}
