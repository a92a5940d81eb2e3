/* SPDX-License-Identifier: Apache-2.0 */
/* Several programs in one job: --role NAME=N:COMMAND, repeated. */
#include <errno.h>

#include "launcher/config/config_private.h"
#include "launcher/config/torch_env.h"
#include "launcher/config/program_hash.h"
#include "launcher/options/role_spec.h"
#include "launcher/options/shell_words.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

struct config_role {
    char **words; /* owned */
    struct program program;
};

/* "trainer+data": for people, and for nodes to tell whether they are alike. */
static void join_names(struct config *out)
{
    *out->run.role = '\0';
    for (int i = 0; i < out->run.roles.count; i++)
        (void)ct_append_item(out->run.role, sizeof out->run.role, "+", "%s",
                             out->run.roles.list[i].name); /* cut is fine */
}

static int take_spec(struct config *out, const char *text, struct ctrun_error *err)
{
    const int number = out->run.roles.count;
    struct ct_role *role = &out->run.roles.list[number];
    const char *command;
    int rc = role_spec_parse(role, &command, text, err);

    if (rc < 0)
        return rc;
    for (int i = 0; i < number; i++)
        if (strcmp(out->run.roles.list[i].name, role->name) == 0)
            return ct_fail(err, CTRUN_E_USAGE, "--role=%.300s: %s is given twice", text,
                           role->name);
    if ((rc = shell_words_split(&out->run.role_programs[number].words, command, err)) <
        0)
        return ct_wrap(err, "--role=%s", role->name), rc;
    out->run.roles.count++;
    out->run.nproc += (int)role->slots;
    return 0;
}

/* All --role-restarts that were typed, or else the one of the environment or the file. */
static int resolve_restarts(struct config *out, const struct options *options,
                            struct ctrun_error *err)
{
    const char *const other = option_text(options, OPTION_ROLE_RESTARTS);
    const int typed = options->role_restarts_count;
    int64_t counts[CT_ROLES_MAX];
    int rc = 0;

    if (typed == 0 && !option_has_text(options, OPTION_ROLE_RESTARTS))
        return 0;
    if (out->run.roles.count == 0 &&
        options->values[OPTION_ROLE_RESTARTS].source == OPTION_FROM_ENV)
        return 0; /* a ctrun that a worker starts inherits it */
    if (out->run.roles.count == 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--role-restarts=%.300s: is for roles that --role=NAME=N:COMMAND "
            "names; for the whole job there is --max-restarts",
            other);
    for (int i = 0; i < CT_ROLES_MAX; i++)
        counts[i] = ROLE_SPEC_UNSET;
    for (int i = 0; i < typed && rc == 0; i++)
        rc = role_spec_parse_restarts(counts, &out->run.roles,
                                      options->role_restarts[i], err);
    if (typed == 0)
        rc = role_spec_parse_restarts(counts, &out->run.roles, other, err);
    for (int i = 0; i < CT_ROLES_MAX; i++)
        out->run.role_restarts[i] = counts[i] > 0 ? (uint32_t)counts[i] : 0;
    return rc;
}

int config_roles_resolve(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const char *nproc = option_text(options, OPTION_NPROC_PER_NODE);
    char sum[16];
    int rc = 0;

    if (options->role_count == 0)
        return resolve_restarts(out, options, err); /* there must be none */
    out->run.role_programs = ct_zalloc_array((size_t)options->role_count,
                                             sizeof *out->run.role_programs);
    if (!out->run.role_programs)
        return ct_fail(err, -ENOMEM, "--role: out of memory");
    out->run.nproc = 0;
    for (int i = 0; i < options->role_count && rc == 0; i++)
        rc = take_spec(out, options->roles[i], err);
    if (rc < 0)
        return rc;
    if (out->run.nproc > NPROC_MAX)
        return ct_fail(err, CTRUN_E_USAGE, "--role: %d workers on a node: at most %d",
                       out->run.nproc, NPROC_MAX);
    (void)ct_format(sum, sizeof sum, "%d", out->run.nproc);
    if (option_has_text(options, OPTION_NPROC_PER_NODE) && strcmp(nproc, sum) != 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--nproc-per-node=%s: the roles have %s workers: leave it out",
                       nproc, sum);
    join_names(out);
    return resolve_restarts(out, options, err);
}

int config_roles_find_programs(struct config *out, const struct options *options,
                               struct ctrun_error *err)
{
    struct options one = *options;

    for (int i = 0; i < out->run.roles.count; i++) {
        struct config_role *role = &out->run.role_programs[i];
        int rc;

        one.program = role->words;
        if ((rc = program_resolve(&role->program, &one, out->env, err)) < 0)
            return ct_wrap(err, "--role=%s", out->run.roles.list[i].name), rc;
    }
    out->work.program = out->run.role_programs[0].program;
    out->work.program.name = out->run.role;
    return 0;
}

void config_roles_deinit(struct config *config)
{
    for (int i = 0; i < config->run.roles.count; i++)
        shell_words_free(config->run.role_programs[i].words);
    free(config->run.role_programs);
    config->run.role_programs = NULL;
}

/* ---- Questions ------------------------------------------------------------------------- */

void config_role_at(struct ct_role_at *out, const struct config *config,
                    const struct ct_start *start, int local_rank)
{
    ct_role_find(out, &config->run.roles, config->run.role, start,
                 (uint32_t)local_rank);
}

uint32_t config_role_restarts(const struct config *config, int local_rank)
{
    static const struct ct_start nowhere;
    struct ct_role_at at;

    if (config->run.roles.count == 0)
        return 0;
    config_role_at(&at, config, &nowhere, local_rank);
    return config->run.role_restarts[at.number];
}

const struct program *config_program(const struct config *config, int local_rank)
{
    static const struct ct_start nowhere;
    struct ct_role_at at;

    if (config->run.roles.count == 0)
        return &config->work.program;
    config_role_at(&at, config, &nowhere, local_rank);
    return &config->run.role_programs[at.number].program;
}

int config_widest_role(const struct config *config)
{
    uint32_t widest = config->run.roles.count > 0 ? 0 : (uint32_t)config->run.nproc;

    for (int i = 0; i < config->run.roles.count; i++)
        if (config->run.roles.list[i].slots > widest)
            widest = config->run.roles.list[i].slots;
    return (int)widest;
}

bool config_knows_gloo_scale(const struct config *config)
{
    for (int i = 0; i < config->run.nproc; i++)
        if (!torch_env_knows_gloo_scale(config_program(config, i), config->env))
            return false;
    return true;
}

const struct program *config_warm_program(const struct config *config)
{
    if (!config->work.warm.modules || config->rdzv.pmi.is_for_worker)
        return NULL;
    for (int i = 0; i < config->run.nproc; i++)
        if (config_program(config, i)->mode != PROGRAM_DIRECT)
            return config_program(config, i);
    return NULL;
}

uint64_t config_program_hash(const struct config *config)
{
    uint64_t whole = 0;

    if (config->run.roles.count == 0)
        return program_hash(&config->work.program, config->env);
    for (int i = 0; i < config->run.roles.count; i++) {
        const uint64_t hash = program_hash(&config->run.role_programs[i].program,
                                           config->env);

        if (hash == 0)
            return 0; /* not known: not compared */
        whole = whole * 31 + hash;
    }
    return whole;
}
