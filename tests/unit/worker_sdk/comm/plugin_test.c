/* SPDX-License-Identifier: Apache-2.0 */
/* The errors for a back end that this machine does not have. No GPU is needed. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/comm/comm.h"

static void expect_unsupported(const char *word)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    _Atomic uint64_t sequence = 0;
    const struct ct_group_place place = {.world_size = 1, .sequence = &sequence};
    struct ctrun_group *group;
    struct ctrun_error err;

    options.backend = "nccl";
    assert_int_equal(ct_group_open(&group, &place, &options, &err),
                     CTRUN_E_UNSUPPORTED);
    assert_null(group);
    if (!strstr(err.text, word))
        fail_msg("'%s' is not in: %s", word, err.text);
}

TEST(a_missing_plugin_is_named)
{
    setenv("CTRUN_PLUGIN_DIR", "/nonexistent", 1);
    expect_unsupported("libctrun-nccl.so");
}

TEST(a_folder_whose_name_is_too_long_is_named)
{
    char folder[PATH_MAX];

    memset(folder, 'a', sizeof folder);
    folder[sizeof folder - 1] = '\0';
    setenv("CTRUN_PLUGIN_DIR", folder, 1);
    expect_unsupported("CTRUN_PLUGIN_DIR");
}

TEST(a_missing_nccl_is_named)
{
#ifdef NCCL_FOLDER
    setenv("CTRUN_PLUGIN_DIR", NCCL_FOLDER, 1);
    setenv("CTRUN_NCCL_LIBRARY", "libnccl-nowhere.so", 1);
    expect_unsupported("libnccl-nowhere.so");
#else
    skip();
#endif
}

TEST(a_library_that_is_not_nccl_is_refused)
{
#ifdef NCCL_FOLDER
    setenv("CTRUN_PLUGIN_DIR", NCCL_FOLDER, 1);
    setenv("CTRUN_NCCL_LIBRARY", "libm.so.6", 1);
    /* A function or the CUDA runtime, whichever is missing first. */
    expect_unsupported("nccl: ");
#else
    skip();
#endif
}
