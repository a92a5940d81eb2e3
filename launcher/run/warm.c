/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/warm.h"

#include <errno.h>
#include <string.h>

#include "launcher/report/messages.h"
#include "launcher/run/plan.h"
#include "worker_sdk/base/str.h"

/* --warm=torch,auto */
static bool learns(const char *modules)
{
    size_t length;

    for (const char *name; (name = ct_next_field(&modules, ',', &length));)
        if (length == sizeof WARM_AUTO - 1 && memcmp(name, WARM_AUTO, length) == 0)
            return true;
    return false;
}

int warm_init(struct warm *out, const struct config *config, struct ctrun_error *err)
{
    const struct program *program = config_warm_program(config);

    memset(out, 0, sizeof *out);
    if (!config->work.warm.modules || config->work.no_program.code < 0)
        return 0;
    if (!program) {
        messages_warn(0, "--warm: workers are started by exec: %s",
                      config->rdzv.pmi.is_for_worker
                          ? "the workers talk to the PMI of another launcher"
                          : "no program here is run by Python");
        return 0;
    }
    if (plan_template_environment(&out->env, config) < 0)
        return ct_fail(err, -ENOMEM, "--warm: out of memory");
    out->plan = (struct template_plan){
        .python = program->path,
        .modules = config->work.warm.modules,
        .script = program->mode == PROGRAM_PYTHON ? program->args[0] : "",
        .env = out->env.list,
        .workers = config->run.nproc,
        .learns = learns(config->work.warm.modules),
        .limit_ms = config->work.warm.limit_ms,
    };
    placement_bind(&out->plan.bind, &config->work.placement, config->run.task.place);
    if (config->run.nproc > 1)
        out->plan.bind.has_cpus = false;
    return 1;
}

void warm_deinit(struct warm *warm)
{
    ct_env_deinit(&warm->env);
}
