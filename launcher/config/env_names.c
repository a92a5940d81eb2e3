/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/env_names.h"

#include "agent/control/ctl_dir.h"
#include "agent/process/child.h"
#include "launcher/config/etcd_config.h"
#include "launcher/config/ha_config.h"
#include "launcher/config/host_slot.h"
#include "launcher/config/warm_config.h"
#include "launcher/stage/stage_map.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/nearest.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/auth.h"
#include "worker_sdk/wire/contract.h"

static const char ours[] = "CTRUN_";

/* Beside those of options. */
static const char *const others[] = {
    CT_ENV_AGENT_SOCKET,  CT_ENV_GENERATION,    CT_ENV_ROLE_RESTART_COUNT,
    CT_ENV_CRASH_REPORT,  CT_ENV_BATCH_TASK,    CT_ENV_END_TIME,
    CT_ENV_EVENTS,        CT_ENV_TOKEN,         ETCD_ENV_USER,
    ETCD_ENV_PASSWORD,    HA_ENV_ETCD,          HA_ENV_OPENSSL,
    CTL_DIR_ENV,          HOST_SLOT_ENV,        STAGE_ENV,
    CHILD_ENV_CLONE3,     "CTRUN_HOSTS_FANOUT", "CTRUN_PLUGIN_DIR",
    "CTRUN_NCCL_LIBRARY", "CTRUN_MNIST_ISA",    "CTRUN_NCCL_RANKS_PER_ROOT",
    "CTRUN_LIBRARY",      WARM_ENV_TIMEOUT,     CT_ENV_RECORDER,
    CT_ENV_PYTHONPATH,    CT_ENV_MAY_SHRINK,    CT_ENV_MAY_GROW,
    CT_ENV_MAY_REFORM,    CT_ENV_SHM_DISABLE,
};

static const char *name_at(size_t i)
{
    return i < OPTION_COUNT ? option_table[i].env : others[i - OPTION_COUNT];
}

static const size_t name_count = OPTION_COUNT + sizeof others / sizeof *others;

static bool is_foreign(const char *name)
{
    static const char *const modules[] = {"ROOT", "HOME", "DIR",     "BASE", "PREFIX",
                                          "LIB",  "INC",  "INCLUDE", "BIN",  "VERSION"};
    const char *rest = name + sizeof ours - 1;

    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strcmp(rest, modules[i]) == 0)
            return true;
    return ct_starts_with(rest, "TEST_");
}

bool env_names_is_known(const char *name)
{
    for (size_t i = 0; i < name_count; i++)
        if (name_at(i) && strcmp(name_at(i), name) == 0)
            return true;
    return is_foreign(name);
}

/* Behind CTRUN_ or PET_. */
static const char *rest_of(const char *name)
{
    return strchr(name, '_') + 1;
}

const char *env_names_nearest(const char *name)
{
    const char *nearest = NULL;
    struct ct_nearest near = ct_nearest_to(rest_of(name));

    for (size_t i = 0; i < name_count; i++) {
        const char *candidate = name_at(i);

        if (candidate && ct_nearest_offer(&near, rest_of(candidate)))
            nearest = candidate;
    }
    return nearest;
}

void env_names_warn(char *const *env)
{
    for (; env && *env; env++) {
        char name[CT_NEAREST_WORD_MAX];
        const char *near;

        if (!ct_starts_with(*env, ours) ||
            ct_format(name, sizeof name, "%.*s", (int)strcspn(*env, "="), *env) < 0 ||
            env_names_is_known(name))
            continue;
        near = env_names_nearest(name);
        ct_warn("%s is set, and nothing reads it%s%s%s", name,
                near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
}
