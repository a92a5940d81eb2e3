/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/print_config.h"

#include <errno.h>

#include "agent/error_file/redact.h"
#include "agent/error_file/json.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

enum {
    VALUE_MAX_BYTES = 1024,
    ORIGIN_MAX_BYTES = 512
};

/* All of them, as typed. */
static void format_list(char *dst, size_t size, const char *const *list, int count,
                        const char *between)
{
    *dst = '\0';
    for (int i = 0; i < count; i++)
        (void)ct_append_item(dst, size, between, "%s", list[i]); /* cut is fine */
}

/* The resolved value, where it differs from the option's text. False: print the text. */
static bool format_resolved(char *dst, size_t size, enum option_id id,
                            const struct options *options, const struct config *config)
{
    switch ((int)id) {
    case OPTION_NNODES:
        (void)ct_format(dst, size, "%d:%d", config->run.nodes.min,
                        config->run.nodes.max);
        return true;
    case OPTION_ROLE:
        if (config->run.roles.count == 0)
            return false;
        format_list(dst, size, options->roles, options->role_count, " ");
        return true;
    case OPTION_ROLE_RESTARTS:
        if (options->role_restarts_count == 0)
            return false;
        format_list(dst, size, options->role_restarts, options->role_restarts_count,
                    ",");
        return true;
    case OPTION_NPROC_PER_NODE:
        (void)ct_format(dst, size, "%d", config->run.nproc);
        return true;
    case OPTION_RDZV_BACKEND:
        (void)ct_copy(dst, size, config_backend_name(config->rdzv.backend));
        return true;
    case OPTION_RDZV_ENDPOINT:
        if (config->rdzv.backend == CONFIG_LOCAL || config->rdzv.pmi.is_used)
            (void)ct_format(dst, size, "%s, a free port", config->rdzv.endpoint.host);
        else
            (void)ct_format(dst, size, "%s port %d", config->rdzv.endpoint.host,
                            config->rdzv.endpoint.port);
        return true;
    case OPTION_BOOTSTRAP:
        if (!config->rdzv.pmi.is_used && !*config->rdzv.pmi.why_not)
            return false;
        (void)ct_copy(dst, size, config->rdzv.pmi.is_used ? "pmi" : "port");
        return true;
    case OPTION_NODE_RANK:
        if (config->run.node_rank < 0)
            return false;
        (void)ct_format(dst, size, "%d", config->run.node_rank);
        return true;
    case OPTION_RDZV_ID: (void)ct_copy(dst, size, config->run.run_id); return true;
    case OPTION_SHUTDOWN_TIMEOUT:
        (void)ct_format(dst, size, "%llu s",
                        (unsigned long long)(config->stop.signal_grace_ms / 1000));
        return true;
    case OPTION_LOG_LINE_PREFIX_TEMPLATE:
        (void)ct_copy(dst, size, config->output.prefix_template);
        return true;
    case OPTION_OMP_THREADS:
        if (config->work.placement.omp_threads == 0)
            return false;
        (void)ct_format(dst, size, "%d", config->work.placement.omp_threads);
        return true;
    default: return false;
    }
}

static void format_value(char *dst, size_t size, enum option_id id,
                         const struct options *options, const struct config *config)
{
    const char *own = ct_env_find(config->env, "OMP_NUM_THREADS");

    if (id == OPTION_OMP_THREADS && config->work.placement.omp_threads == 0)
        (void)ct_format(dst, size, "%s", own ? own : "unset");
    else if (option_table[id].kind == OPTION_KIND_FLAG)
        (void)ct_copy(dst, size, options->values[id].is_on ? "yes" : "no");
    else if (!format_resolved(dst, size, id, options, config) &&
             ct_format(dst, size, "%s", option_text(options, id)) < 0)
        (void)ct_format(dst, size, "%.1000s...", option_text(options, id));
    if (config->output.redacts)
        (void)redact(dst);
}

/* The environment variable that replaces an option that was not given. */
static const char *stand_in(enum option_id id, const struct config *config)
{
    static const struct {
        enum option_id id;
        const char *name;
    } names[] = {
        {OPTION_SHUTDOWN_TIMEOUT, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
        {OPTION_LOG_LINE_PREFIX_TEMPLATE, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = ct_env_find(config->env, names[i].name);

        if (names[i].id == id && value && *value)
            return names[i].name;
    }
    return NULL;
}

static bool is_by_batch(enum option_id id, const struct config *config)
{
    if (id == OPTION_SHUTDOWN_TIMEOUT)
        return config->run.kill_wait_s > 0;
    if (!config->run.batch_system)
        return false;
    if (id == OPTION_BOOTSTRAP)
        return config->rdzv.pmi.is_used || *config->rdzv.pmi.why_not;
    if (id == OPTION_NNODES || id == OPTION_RDZV_ID)
        return true;
    if (id == OPTION_NODE_RANK)
        return config->run.node_rank >= 0;
    return config->run.nodes.max > 1 &&
           (id == OPTION_RDZV_BACKEND || id == OPTION_RDZV_ENDPOINT);
}

/* Who set the option; NULL: the file. */
static const char *name_origin(enum option_id id, const struct options *options,
                               const struct config *config)
{
    const struct option_value *value = &options->values[id];
    bool is_given = option_table[id].kind == OPTION_KIND_FLAG
                        ? option_is_given(options, id)
                        : option_has_text(options, id);
    const char *name;

    if (id == OPTION_OMP_THREADS && ct_env_find(config->env, "OMP_NUM_THREADS"))
        return "OMP_NUM_THREADS"; /* wins over everything */
    if (options->values[OPTION_STANDALONE].is_on &&
        (id == OPTION_RDZV_BACKEND || id == OPTION_RDZV_ENDPOINT ||
         id == OPTION_RDZV_ID))
        return "--standalone";
    if (id == OPTION_NPROC_PER_NODE && !is_given && config->run.roles.count > 0)
        return "--role";
    if (is_given && value->source == OPTION_FROM_FILE)
        return NULL;
    if (is_given)
        return value->source == OPTION_TYPED ? "command line" : option_table[id].env;
    if ((name = stand_in(id, config)))
        return name;
    if (id == OPTION_NNODES && config->run.sized_by)
        return config->run.sized_by;
    if (!is_by_batch(id, config))
        return "default";
    return config->run.batch_system ? config->run.batch_system : "Slurm";
}

static void format_origin(char *dst, size_t size, enum option_id id,
                          const struct options *options, const struct config *config)
{
    const char *name = name_origin(id, options, config);

    if (name)
        (void)ct_copy(dst, size, name);
    else
        (void)ct_format(dst, size, "%.480s:%d", option_text(options, OPTION_CONFIG),
                        options->values[id].line);
}

static bool is_shown(enum option_id id)
{
    return option_table[id].kind != OPTION_KIND_STOP && id != OPTION_PRINT_CONFIG &&
           id != OPTION_DRY_RUN && id != OPTION_JSON;
}

int print_config(FILE *out, const struct options *options, const struct config *config,
                 bool as_json, struct ctrun_error *err)
{
    char value[VALUE_MAX_BYTES];
    char from[ORIGIN_MAX_BYTES];
    bool is_first = true;

    fputs(as_json ? "{\"settings\":{" : "", out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const char *name = option_table[id].name;

        if (!is_shown((enum option_id)id))
            continue;
        format_value(value, sizeof value, (enum option_id)id, options, config);
        format_origin(from, sizeof from, (enum option_id)id, options, config);
        if (as_json) {
            fprintf(out, "%s\"%s\":{\"value\":", is_first ? "" : ",", name);
            json_print_text(out, value);
            fputs(",\"from\":", out);
            json_print_text(out, from);
            fputs("}", out);
        } else {
            fprintf(out, "%-26s %-34s %s\n", name, *value ? value : "-", from);
        }
        is_first = false;
    }
    fputs(as_json ? "}}\n" : "", out);
    return fflush(out) == 0
               ? 0
               : ct_fail(err, -errno, "--print-config: %s", strerror(errno));
}
