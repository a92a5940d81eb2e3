/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/batch/nested.h"

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

/* True inside a worker of torchrun or ctrun. */
static bool is_inside(char *const *env)
{
    return ct_env_find(env, CT_ENV_RUN_ID) && ct_env_find(env, CT_ENV_RANK) &&
           ct_env_find(env, CT_ENV_LOCAL_RANK);
}

bool nested_is_in_task(char *const *env, const char *run_id)
{
    const char *task = ct_env_find(env, CT_ENV_BATCH_TASK);

    if (!is_inside(env))
        return false;
    if (task)
        return strcmp(task, run_id) == 0;
    /* torchrun does not set that variable; we assume that it runs in this same task. A ctrun sets
     * it when it is a task: the ctrun around us is none, and its worker has started us as one. */
    return !ct_env_find(env, CT_ENV_GENERATION);
}

char *nested_format(char *dst, size_t size, char *const *env)
{
    static const char *const names[] = {
        CT_ENV_RANK,        CT_ENV_WORLD_SIZE,  CT_ENV_LOCAL_RANK,
        CT_ENV_MASTER_ADDR, CT_ENV_MASTER_PORT, CT_ENV_RUN_ID,
    };
    char list[256] = "";

    dst[0] = '\0';
    if (!is_inside(env))
        return dst;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ct_env_find(env, names[i]))
            (void)ct_append_item(list, sizeof list, "/", "%s", names[i]); /* fits */
    (void)ct_format(
        dst, size,
        "inherited %s ignored: this is inside rank %.20s of run %.100s, and "
        "a run of its own",
        list, ct_env_find(env, CT_ENV_RANK), ct_env_find(env, CT_ENV_RUN_ID));
    return dst;
}
