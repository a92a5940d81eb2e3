/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/warm_config.h"

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

enum {
    WARM_TIMEOUT_S =
        300, /* torch from a slow network file system that all nodes read at once */
    WARM_TIMEOUT_MAX_S = 24 * 3600,
};

/* Names with dots: "torch.distributed". The interpreter finds out whether the module exists. */
static bool is_module(const char *name, size_t length)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    bool is_inside = false; /* a part of the name */

    for (size_t i = 0; i < length; i++) {
        if (strchr(letters, name[i]) || (is_inside && strchr("0123456789", name[i])))
            is_inside = true;
        else if (is_inside && name[i] == '.')
            is_inside = false;
        else
            return false;
    }
    return is_inside;
}

int warm_config_resolve(struct warm_config *out, const struct options *options,
                        char *const *env, struct ctrun_error *err)
{
    const char *timeout = ct_env_find(env, WARM_ENV_TIMEOUT);
    const char *list = option_has_text(options, OPTION_WARM)
                           ? option_text(options, OPTION_WARM)
                           : "0";
    uint64_t seconds = WARM_TIMEOUT_S;
    const char *name;
    size_t length;

    *out = (struct warm_config){0};
    if (strcmp(list, "0") == 0) /* as CTRUN_WARM says it */
        return 0;
    if (strcmp(list, "1") == 0)
        list = option_table[OPTION_WARM].alone;
    out->modules = list;
    while ((name = ct_next_field(&list, ',', &length)))
        if (!is_module(name, length))
            return ct_fail(err, CTRUN_E_USAGE,
                           "--warm=%s: '%.*s' is no name of a Python module",
                           out->modules, (int)length, name);
    if (timeout && ct_parse_u64(timeout, 1, WARM_TIMEOUT_MAX_S, &seconds) < 0)
        return ct_fail(err, CTRUN_E_USAGE, WARM_ENV_TIMEOUT "=%s: 1 to %d seconds",
                       timeout, WARM_TIMEOUT_MAX_S);
    out->limit_ms = seconds * 1000;
    return 0;
}
