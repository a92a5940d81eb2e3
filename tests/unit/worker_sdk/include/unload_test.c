/* SPDX-License-Identifier: Apache-2.0 */
/* A program that loads libctrun.so itself, and unloads it while threads of the library live. */
#include <dlfcn.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/include/ctrun.h"

enum {
    DEVICES = 3 /* two of them are threads that wait for work */
};

/* ISO C has no cast from object to function. */
static void find(void *library, const char *name, void *function)
{
    void *const at = dlsym(library, name);

    assert_non_null(at);
    memcpy(function, &at, sizeof at);
}

static int touch(void *context, int device, struct ctrun_error *err)
{
    ((bool *)context)[device] = true;
    return 0;
}

TEST(threads_outlive_dlclose)
{
    int (*create)(struct ctrun_dp **, const struct ctrun_param *, size_t, int,
                  struct ctrun_error *);
    int (*apply)(struct ctrun_dp *, int, ctrun_dp_fn *, void *, struct ctrun_error *);
    void (*destroy)(struct ctrun_dp *);
    void *library = dlopen(LIBCTRUN, RTLD_NOW | RTLD_LOCAL);
    bool is_touched[DEVICES] = {false};
    struct ctrun_dp *dp;

    if (!library)
        fail_msg("%s", dlerror());
    find(library, "ctrun_dp_create", &create);
    find(library, "ctrun_dp_apply", &apply);
    find(library, "ctrun_dp_destroy", &destroy);
    assert_int_equal(create(&dp, NULL, 0, DEVICES, NULL), 0);
    assert_int_equal(dlclose(library), 0);
    assert_int_equal(apply(dp, DEVICES, touch, is_touched, NULL), 0);
    for (int i = 0; i < DEVICES; i++)
        assert_true(is_touched[i]);
    destroy(dp);
}
