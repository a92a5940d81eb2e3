/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that were built with an older or a newer ctrun.h: the public structs are shorter or
 * longer. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/include/ctrun.h"

/* This struct as an older and as a newer library had it. */
struct now {
    size_t size;
    int a;
    int b;
    long added;
};
struct before {
    size_t size;
    int a;
    int b;
};
struct later {
    struct now now;
    long unknown;
};

static const struct now defaults = {sizeof(struct now), 1, 2, 3};

TEST(an_older_caller_gets_the_default_of_what_it_does_not_have)
{
    const struct before given = {sizeof given, 10, 20};
    struct now got = defaults;

    assert_int_equal(ct_sized_read(&got, sizeof got, &given, "X_INIT", NULL), 0);
    assert_int_equal(got.size, sizeof got);
    assert_int_equal(got.a, 10);
    assert_int_equal(got.b, 20);
    assert_int_equal(got.added, 3);
}

TEST(what_a_newer_caller_has_beyond_is_not_looked_at)
{
    const struct later given = {{sizeof given, 10, 20, 30}, 40};
    struct {
        struct now got;
        char guard[16];
    } room = {defaults, "untouched"};

    assert_int_equal(ct_sized_read(&room.got, sizeof room.got, &given, "X_INIT", NULL),
                     0);
    assert_int_equal(room.got.added, 30);
    assert_string_equal(room.guard, "untouched");
}

TEST(entries_of_an_array_are_as_far_apart_as_the_caller_says)
{
    const struct before old[] = {{sizeof *old, 1, 2}, {sizeof *old, 3, 4}};
    const struct later new[] = {{{sizeof *new, 5, 6, 7}, 0},
                                {{sizeof *new, 8, 9, 10}, 0}};
    void *list;
    struct now *got;

    assert_int_equal(
        ct_sized_read_array(&list, &defaults, sizeof *got, old, 2, "X_INIT", NULL), 0);
    got = list;
    assert_int_equal(got[1].a, 3);
    assert_int_equal(got[1].added, 3);
    free(list);
    assert_int_equal(
        ct_sized_read_array(&list, &defaults, sizeof *got, new, 2, "X_INIT", NULL), 0);
    got = list;
    assert_int_equal(got[1].a, 8);
    assert_int_equal(got[1].added, 10);
    free(list);
}

TEST(nothing_is_written_beyond_an_older_callers_struct)
{
    struct {
        struct before out;
        char guard[16];
    } room = {{sizeof room.out, 0, 0}, "untouched"};

    assert_int_equal(ct_sized_write(&room.out, &defaults, sizeof defaults, "X", NULL),
                     0);
    assert_int_equal(room.out.b, 2);
    assert_int_equal(room.out.size, sizeof room.out);
    assert_string_equal(room.guard, "untouched");
}

TEST(a_size_that_nobody_set_is_refused_with_the_remedy)
{
    static const size_t sizes[] = {0, 7, sizeof(size_t), 4097, SIZE_MAX};
    struct now got = defaults;
    struct now given = defaults;
    struct ctrun_error err;
    void *list;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        given.size = sizes[i];
        assert_int_equal(ct_sized_read(&got, sizeof got, &given, "X_INIT", &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, "X_INIT"));
        assert_int_equal(ct_sized_read_array(&list, &defaults, sizeof got, &given, 1,
                                             "X_INIT", &err),
                         -EINVAL);
        assert_null(list);
        assert_int_equal(ct_sized_write(&given, &got, sizeof got, "X_INIT", &err),
                         -EINVAL);
    }
}

TEST(a_struct_that_is_null_is_refused_with_the_remedy)
{
    struct ctrun_sampler *sampler;
    struct ctrun_loader *loader;
    struct now got = defaults;
    struct ctrun_error err;
    void *list;

    assert_int_equal(ctrun_sampler_create(&sampler, NULL, &err), -EINVAL);
    assert_null(sampler);
    assert_non_null(strstr(err.text, "NULL: pass one that begins with CTRUN_SAMPLER_"));
    assert_int_equal(ctrun_loader_open(&loader, NULL, &err), -EINVAL);
    assert_null(loader);
    assert_int_equal(ct_sized_write(NULL, &got, sizeof got, "X_INIT", NULL), -EINVAL);
    assert_int_equal(
        ct_sized_read_array(&list, &defaults, sizeof got, NULL, 1, "X_INIT", NULL),
        -EINVAL);
}

TEST(entries_of_unlike_size_are_refused)
{
    struct now list[] = {defaults, defaults};
    struct ctrun_error err;
    void *out;

    list[1].size = sizeof(struct before);
    assert_int_equal(
        ct_sized_read_array(&out, &defaults, sizeof defaults, list, 2, "X_INIT", &err),
        -EINVAL);
    assert_non_null(strstr(err.text, "entry 1"));
    assert_null(out);
}

/* The library itself, called by a program that knows only the first members of its structs. */
TEST(the_library_takes_an_older_programs_structs)
{
    struct {
        size_t size;
        size_t count;
        int rank;
        int world_size;
    } options = {sizeof options, 10, 0, 1};
    const struct ctrun_sampler_options *given = (const void *)&options;
    struct ctrun_sampler *sampler;
    struct ctrun_error err;

    if (ctrun_sampler_create(&sampler, given, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(ctrun_sampler_length(sampler), 10);
    ctrun_sampler_destroy(sampler);
}

/* The same for a program whose structs, also in an array, have members that this library does not
 * know. */
struct newer_tensor {
    struct ctrun_tensor known;
    uint64_t unknown[3];
};

TEST(the_library_takes_a_newer_programs_structs)
{
    struct ctrun_tensor init = CTRUN_TENSOR_INIT;
    int32_t data[2] = {7, 11};
    struct newer_tensor tensors[2];
    struct ctrun_checkpoint *file;
    struct ctrun_error err;
    char path[] = "/tmp/ctrun-abi-XXXXXX";

    memset(tensors, 0xff, sizeof tensors);
    for (int i = 0; i < 2; i++) {
        tensors[i].known = init;
        tensors[i].known.size = sizeof tensors[i];
        tensors[i].known.name = i ? "b" : "a";
        tensors[i].known.dtype = CTRUN_I32;
        tensors[i].known.data = &data[i];
    }
    close(mkstemp(path));
    if (ctrun_checkpoint_save(path, &tensors[0].known, 2, NULL, 0, &err) < 0)
        fail_msg("%s", err.text);
    data[1] = 0;
    if (ctrun_checkpoint_open(&file, path, &err) < 0 ||
        ctrun_checkpoint_load(file, &tensors[1].known, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(data[1], 11);
    ctrun_checkpoint_close(file);
    assert_int_equal(unlink(path), 0);
}
