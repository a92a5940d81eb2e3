/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/dry_run.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/config/host_slot.h"
#include "agent/error_file/json.h"
#include "launcher/options/shell_words.h"
#include "launcher/run/plan.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

/* True for variables that are known only when the round begins. With one node these are
 * MASTER_ADDR, MASTER_PORT and the error file. */
static bool is_open(const struct config *config, const char *name)
{
    static const char *const by_round[] = {
        CT_ENV_RANK,       CT_ENV_GROUP_RANK,       CT_ENV_ROLE_RANK,
        CT_ENV_WORLD_SIZE, CT_ENV_GROUP_WORLD_SIZE, CT_ENV_ROLE_WORLD_SIZE,
    };

    if (strcmp(name, CT_ENV_MASTER_ADDR) == 0 || strcmp(name, CT_ENV_MASTER_PORT) == 0)
        return config->rdzv.backend != CONFIG_STATIC;
    if (strcmp(name, CT_ENV_ERROR_FILE) == 0)
        return !config->output.has_no_files;
    if (config->run.task.is_rank && strcmp(name, CT_ENV_WORLD_SIZE) == 0)
        return false;
    if (config->run.task.is_rank && (strcmp(name, CT_ENV_GROUP_RANK) == 0 ||
                                     strcmp(name, CT_ENV_GROUP_WORLD_SIZE) == 0))
        return false;
    for (size_t i = 0;
         config->run.nodes.max > 1 && i < sizeof by_round / sizeof *by_round; i++)
        if (strcmp(name, by_round[i]) == 0)
            return true;
    return false;
}

/* The round as it will be on one node. With several nodes, is_open() hides the other values. */
static struct ct_start expected_start(const struct config *config)
{
    struct ct_start start = {
        .generation = 1,
        .group_world_size = 1,
        .world_size = (uint32_t)(config->run.task.is_rank ? config->run.nodes.max
                                                          : config->run.nproc),
        .role_world_size = (uint32_t)config->run.nproc,
        .master_port = (uint16_t)config->rdzv.endpoint.port,
    };

    start.uses_gloo_scale = config_knows_gloo_scale(config);
    start.role_count = config->run.roles.count;
    for (int i = 0; i < config->run.roles.count; i++)
        start.roles[i].world_size = config->run.roles.list[i].slots;
    (void)ct_copy(start.master_addr, sizeof start.master_addr,
                  config->rdzv.endpoint.host);
    return start;
}

static bool is_inherited(const struct config *config, const char *entry)
{
    for (char *const *own = config->env; *own; own++)
        if (strcmp(*own, entry) == 0)
            return true;
    return false;
}

/* For the shells of users: 'it'\''s', but $'two\nlines', as bash, zsh and ksh know it. */
static void print_word(FILE *out, const char *word)
{
    bool has_control = false;

    if (shell_words_is_simple(word)) {
        fputs(word, out);
        return;
    }
    for (const char *at = word; *at; at++)
        has_control |= iscntrl((unsigned char)*at) != 0;
    fputs(has_control ? "$'" : "'", out);
    for (; *word; word++)
        if (*word == '\n')
            fputs("\\n", out);
        else if (iscntrl((unsigned char)*word))
            fprintf(out, "\\%03o", (unsigned char)*word);
        else if (*word == '\'')
            fputs(has_control ? "\\'" : "'\\''", out);
        else
            fprintf(out, has_control && *word == '\\' ? "\\%c" : "%c", *word);
    fputc('\'', out);
}

static void print_environment(FILE *out, const struct config *config,
                              const struct ct_env *env, bool as_json)
{
    bool first = true;

    for (size_t i = 0; i < env->count; i++) {
        const char *equals = strchr(env->list[i], '=');
        char name[128];

        if (!equals || is_inherited(config, env->list[i]) ||
            ct_format(name, sizeof name, "%.*s", (int)(equals - env->list[i]),
                      env->list[i]) < 0)
            continue;
        if (!as_json) {
            fprintf(out, "    %s=", name);
            if (is_open(config, name))
                fputc('?', out);
            else
                print_word(out, equals + 1);
            fputc('\n', out);
            continue;
        }
        fputs(first ? "" : ",", out);
        first = false;
        json_print_text(out, name);
        fputc(':', out);
        if (is_open(config, name))
            fputs("null", out);
        else
            json_print_text(out, equals + 1);
    }
}

static void print_argv(FILE *out, char *const *argv, bool as_json)
{
    for (int i = 0; argv[i]; i++) {
        fputs(i ? (as_json ? "," : " ") : "", out);
        if (as_json)
            json_print_text(out, argv[i]);
        else
            print_word(out, argv[i]);
    }
}

/* CPUs and limits of one worker. */
static void print_bind(FILE *out, const struct config *config, int local_rank,
                       bool as_json)
{
    const struct placement *placement = &config->work.placement;
    char cpus[CPUSET_TEXT_MAX];

    if (!placement->bound)
        return;
    local_rank += config->run.task.place;
    cpuset_format(&placement->bound[local_rank], cpus, sizeof cpus);
    if (!placement->gpus)
        fprintf(out, as_json ? ",\"cpus\":\"%s\"" : "    CPUs %s\n", cpus);
    else
        fprintf(out,
                as_json ? ",\"gpu\":\"%s\",\"cpus\":\"%s\"" : "    GPU %s, CPUs %s\n",
                placement->gpus[local_rank], cpus);
}

static void print_json_nics(FILE *out, const struct nic_hint *hint)
{
    fprintf(out, ",\"nics\":{\"gpu\":\"%s\"", hint->gpu);
    if (hint->count > 0)
        fprintf(out, ",\"distance\":\"%s\"", pci_link_name(hint->distance.link));
    fputs(",\"nearest\":[", out);
    for (int i = 0; i < hint->count; i++) {
        fputs(i ? ",{\"name\":" : "{\"name\":", out);
        json_print_text(out, hint->near[i].name);
        fprintf(out, ",\"kind\":\"%s\",\"has_link\":%s}",
                nic_kind_name(hint->near[i].kind),
                hint->near[i].has_link ? "true" : "false");
    }
    fputs("]}", out);
}

/* The network devices nearest to the worker's GPU. */
static void print_nics(FILE *out, const struct config *config, int local_rank,
                       bool as_json)
{
    const struct nic_hint *hint = config->work.nics.list;

    if (local_rank >= config->work.nics.count || !*(hint += local_rank)->gpu)
        return;
    if (as_json) {
        print_json_nics(out, hint);
        return;
    }
    fprintf(out, "    GPU %s, ", hint->gpu);
    fputs(hint->count ? "nearest" : "no network device on a PCI bus", out);
    for (int i = 0; i < hint->count; i++)
        fprintf(out, "%s %s (%s, %s%s)", i ? "," : "", hint->near[i].name,
                nic_kind_name(hint->near[i].kind), pci_link_name(hint->distance.link),
                hint->near[i].has_link ? "" : ", no link");
    fputc('\n', out);
}

/* Prints nothing when the node has no roles. */
static void print_role(FILE *out, const struct config *config,
                       const struct ct_start *start, int local_rank, bool as_json)
{
    struct ct_role_at role;

    if (config->run.roles.count == 0)
        return;
    config_role_at(&role, config, start, local_rank);
    if (!as_json) {
        fprintf(out, " (%s)", role.name);
        return;
    }
    fputs(",\"role\":", out);
    json_print_text(out, role.name);
}

static int print_worker(FILE *out, const struct config *config, int local_rank,
                        bool as_json)
{
    struct ct_start start = expected_start(config);
    struct ct_env env = {0};
    char **argv = plan_argv(config, local_rank);
    int rc = argv ? plan_environment(&env, config, &start, local_rank, NULL) : -ENOMEM;

    if (rc == 0) {
        fprintf(out, as_json ? "%s{\"local_rank\":%d" : "%sworker %d",
                as_json && local_rank ? "," : "", local_rank);
        print_role(out, config, &start, local_rank, as_json);
        fputs(as_json ? ",\"argv\":[" : "\n    ", out);
        print_argv(out, argv, as_json);
        fputs(as_json ? "],\"env\":{" : "\n", out);
        print_environment(out, config, &env, as_json);
        fputs(as_json ? "}" : "", out);
        print_bind(out, config, local_rank, as_json);
        print_nics(out, config, local_rank, as_json);
        fputs(as_json ? "}" : "", out);
    }
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
    ct_env_deinit(&env);
    return rc;
}

static void print_limits(FILE *out, const struct config *config, bool as_json)
{
    const struct placement *placement = &config->work.placement;
    unsigned long long files = bind_files_limit(placement->raises_files);
    char cpus[CPUSET_TEXT_MAX];

    cpuset_format(&placement->allowed, cpus, sizeof cpus);
    if (as_json)
        fprintf(
            out, ",\"cpus\":\"%s\",\"cores\":%d,\"open_files\":%llu,\"raises_core\":%s",
            cpus, placement->cores, files, placement->raises_core ? "true" : "false");
    else
        fprintf(out, "CPUs       : %s (%d cores)\nopen files : %llu\ncore files : %s\n",
                cpus, placement->cores, files,
                placement->raises_core ? "raised to the hard limit" : "as inherited");
    if (config->work.warm.modules) {
        const char *modules = config_warm_program(config) ? config->work.warm.modules
                                                          : NULL;

        fputs(as_json ? ",\"warm\":" : "warm       : ", out);
        if (as_json && modules)
            json_print_text(out, modules);
        else
            fputs(modules   ? modules
                  : as_json ? "null"
                  : config->rdzv.pmi.is_for_worker
                      ? "no: the workers talk to the PMI of another launcher"
                      : "no: no program here is run by Python",
                  out);
        fputs(as_json ? "" : "\n", out);
    }
}

/* What the batch system has reported about the job's time limit and requeues. */
static void print_time(FILE *out, const struct config *config, bool as_json)
{
    const char *began = as_json ? "," : "";

    if (config->run.requeues)
        fprintf(out, as_json ? "%s\"requeues\":%u" : "%srequeued   : %u times\n", began,
                config->run.requeues);
    if (config->stop.end_s)
        fprintf(out, as_json ? "%s\"time_left_s\":%lld" : "%stime left  : %lld s\n",
                began, (long long)config_time_left(config));
    if (config->stop.end_s && config->stop.stop_before_end_s)
        fprintf(out,
                as_json ? "%s\"stop_before_end_s\":%llu,\"stop_signal\":\"SIG%s\""
                        : "%sbefore end : %llu s, SIG%s to the workers\n",
                began, (unsigned long long)config->stop.stop_before_end_s,
                ct_signal_name(config->stop.end_signal));
    if (config->run.kill_wait_s)
        fprintf(out, as_json ? "%s\"kill_wait_s\":%u" : "%skill wait  : %u s\n", began,
                config->run.kill_wait_s);
}

static void print_head(FILE *out, const struct config *config)
{
    fprintf(out, "nodes      : %d:%d\n", config->run.nodes.min, config->run.nodes.max);
    fprintf(out, "workers    : %d on this node (%s)\n", config->run.nproc,
            config->run.host);
    if (config->run.batch_system)
        fprintf(out, "batch      : %s\n", config->run.batch);
    print_time(out, config, false);
    fprintf(out, "backend    : %s\n", config_backend_name(config->rdzv.backend));
    if (*host_slot_get()->hosts)
        fprintf(out, "hosts      : %s\n", host_slot_get()->hosts);
    if (config->rdzv.pmi.is_used)
        fprintf(out, "bootstrap  : srun's PMI; if it does not answer, port %d\n",
                config->rdzv.endpoint.port);
    else if (*config->rdzv.pmi.why_not)
        fprintf(out, "bootstrap  : a port derived from the job; no PMI: %s\n",
                config->rdzv.pmi.why_not);
    if (config->rdzv.backend == CONFIG_LOCAL || config->rdzv.endpoint.port == 0 ||
        config->rdzv.pmi.is_used)
        fprintf(out, "endpoint   : %s, a free port\n", config->rdzv.endpoint.host);
    else
        fprintf(out, "endpoint   : %s port %d\n", config->rdzv.endpoint.host,
                config->rdzv.endpoint.port);
    fprintf(out, "run id     : %s\n", config->run.run_id);
    fprintf(out, "restarts   : %u\n", config->run.max_restarts);
    fprintf(out, "log dir    : %s\n",
            config->output.log_dir ? config->output.log_dir
                                   : "torchelastic_* in the temporary directory");
    print_limits(out, config, false);
}

static void print_json_head(FILE *out, const struct config *config)
{
    fprintf(out,
            "{\"version\":1,\"nodes\":{\"min\":%d,\"max\":%d},\"nproc_per_node\":%d,"
            "\"max_restarts\":%u,"
            "\"backend\":\"%s\",\"endpoint\":{\"host\":",
            config->run.nodes.min, config->run.nodes.max, config->run.nproc,
            config->run.max_restarts, config_backend_name(config->rdzv.backend));
    json_print_text(out, config->rdzv.endpoint.host);
    if (config->rdzv.endpoint.port > 0 && !config->rdzv.pmi.is_used)
        fprintf(out, ",\"port\":%d},\"host\":", config->rdzv.endpoint.port);
    else
        fputs(",\"port\":null},\"host\":", out);
    json_print_text(out, config->run.host);
    if (*host_slot_get()->hosts) {
        fputs(",\"hosts\":", out);
        json_print_text(out, host_slot_get()->hosts);
    }
    fputs(",\"run_id\":", out);
    json_print_text(out, config->run.run_id);
    if (config->run.batch_system) {
        fputs(",\"batch\":", out);
        json_print_text(out, config->run.batch);
    }
    if (config->rdzv.pmi.is_used)
        fputs(",\"bootstrap\":{\"way\":\"pmi\"}", out);
    else if (*config->rdzv.pmi.why_not) {
        fputs(",\"bootstrap\":{\"way\":\"port\",\"why\":", out);
        json_print_text(out, config->rdzv.pmi.why_not);
        fputs("}", out);
    }
    print_time(out, config, true);
    fputs(",\"role\":", out);
    json_print_text(out, config->run.role);
    print_limits(out, config, true);
    fputs(",\"workers\":[", out);
}

int dry_run_print(FILE *out, const struct config *config, bool as_json,
                  struct ctrun_error *err)
{
    if (as_json)
        print_json_head(out, config);
    else
        print_head(out, config);
    for (int i = 0; i < config->run.nproc; i++) {
        int rc = print_worker(out, config, i, as_json);

        if (rc < 0)
            return ct_fail(err, rc, "--dry-run: %s", strerror(-rc));
    }
    fputs(as_json ? "]}\n" : "", out);
    return fflush(out) == 0 ? 0
                            : ct_fail(err, -errno, "--dry-run: %s", strerror(errno));
}
