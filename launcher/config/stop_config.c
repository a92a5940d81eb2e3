/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/stop_config.h"

#include <errno.h>
#include <signal.h>

#include "agent/watch/allocation.h"
#include "launcher/batch/batch_systems.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/signal_name.h"

enum {
    EXCLUDE_MAX = 1000,   /* failures */
    GRACE_MS = 30 * 1000, /* torchrun's */
    GRACE_MAX_S = 30 * 24 * 3600,
    BEFORE_MAX_S = 30 * 24 * 3600,
    DELAY_MAX_MS = 300 * 1000,
    REPLACE_MAX = 1000000,
};

static int find_signal(const char *name, size_t length)
{
    if (length > 3 && strncmp(name, "SIG", 3) == 0) {
        for (int n = 1; n < SIGRTMIN; n++) {
            const char *abbreviation = ct_signal_name(n);

            if (abbreviation && strlen(abbreviation) == length - 3 &&
                strncmp(abbreviation, name + 3, length - 3) == 0)
                return n;
        }
    }
    return 0;
}

/* As torchrun: a word that names no signal is left out, a signal that no process can handle is an
 * error. */
static int resolve_signals(struct stop_config *out, const struct options *options,
                           struct ctrun_error *err)
{
    const char *rest = option_text(options, OPTION_SIGNALS_TO_HANDLE);
    size_t length;

    out->signals_text = rest;
    for (const char *name; (name = ct_next_field(&rest, ',', &length));) {
        int n;

        name = ct_trim(name, &length);
        n = find_signal(name, length);
        if (n == SIGKILL || n == SIGSTOP)
            return ct_fail(
                err, -EINVAL,
                "--signals-to-handle: no process can handle %.*s: leave it out",
                (int)length, name);
        if (n == 0 || n == SIGCHLD)
            ct_warn("--signals-to-handle: '%.*s' is %s; it is left out", (int)length,
                    name,
                    n ? "how ctrun learns that a worker has ended"
                      : "not the name of a signal, such as SIGTERM");
        else if (out->signal_count < CONFIG_SIGNALS_MAX)
            out->signals[out->signal_count++] = n;
    }
    return 0;
}

static int resolve_grace(struct stop_config *out, const struct options *options,
                         char *const *env, uint32_t kill_wait_s,
                         struct ctrun_error *err)
{
    const struct option_value *option = &options->values[OPTION_SHUTDOWN_TIMEOUT];
    const char *name = "--shutdown-timeout";
    const char *text = option->text;
    int64_t seconds = option->integer;

    out->grace_ms = out->signal_grace_ms = GRACE_MS;
    out->end_grace_ms = UINT64_MAX; /* all the time that is left */
    if (!text) {
        name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
        if (!(text = ct_env_find(env, name))) {
            if (kill_wait_s)
                out->signal_grace_ms = allocation_grace_ms((uint64_t)kill_wait_s *
                                                           1000);
            return 0;
        }
        if (ct_parse_python_int(text, &seconds) < 0)
            return ct_fail(err, -EINVAL, "%s=%s: not a number of seconds", name, text);
    }
    if (seconds > GRACE_MAX_S)
        return ct_fail(err, -EINVAL, "%s=%s: at most %d seconds", name, text,
                       GRACE_MAX_S);
    if (seconds < 0)
        return ct_fail(err, -EINVAL,
                       "%s=%s: shutdown_timeout must be non-negative, got %lld", name,
                       text, (long long)seconds);
    out->grace_ms = out->signal_grace_ms = (uint64_t)seconds * 1000;
    out->end_grace_ms = out->grace_ms;
    return 0;
}

static int resolve_patience(struct stop_config *out, const struct options *options,
                            struct ctrun_error *err)
{
    const struct option_value *option = &options->values[OPTION_MIN_UPTIME];
    const struct option_value *hang = &options->values[OPTION_HANG_TIMEOUT];
    const struct option_value *exclude = &options->values[OPTION_EXCLUDE_AFTER];
    const struct option_value *survivor = &options->values[OPTION_SURVIVOR_GRACE];

    if (hang->integer < 0 || hang->integer > GRACE_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--hang-timeout=%s: 0 to %d seconds",
                       hang->text, GRACE_MAX_S);
    out->hang_timeout_ms = (uint64_t)hang->integer * 1000;
    out->finds_stragglers = options->values[OPTION_STRAGGLERS].is_on;
    if (survivor->integer < 0 || survivor->integer > GRACE_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--survivor-grace=%s: 0 to %d seconds",
                       survivor->text, GRACE_MAX_S);
    out->survivor_grace_ms = (uint64_t)survivor->integer * 1000;
    if (option->integer < 0 || option->integer > GRACE_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--min-uptime=%s: 0 to %d seconds",
                       option->text, GRACE_MAX_S);
    out->min_uptime_ms = (uint64_t)option->integer * 1000;
    if (exclude->integer < 0 || exclude->integer > EXCLUDE_MAX)
        return ct_fail(err, CTRUN_E_USAGE, "--exclude-node-after=%s: 0 to %d failures",
                       exclude->text, EXCLUDE_MAX);
    out->exclude_after = (uint64_t)exclude->integer;
    return 0;
}

/* A node that waits has not joined yet: it must join before the others give up. */
static int resolve_delay(struct stop_config *out, const struct options *options,
                         uint64_t join_timeout_ms, struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_RESTART_DELAY);
    const uint64_t limit_ms = join_timeout_ms / 2;
    double first, max = 0;
    char *end;

    first = strtod(text, &end);
    if (end == text || (*end && *end != ','))
        first = -1;
    if (*end == ',') {
        const char *rest = end + 1;

        max = strtod(rest, &end);
        if (end == rest || *end || !(max >= first))
            first = -1;
    }
    if (!(first >= 0 && first <= GRACE_MAX_S && max <= GRACE_MAX_S) ||
        (first > 0 && first < 0.001))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--restart-delay=%s: want SECONDS or SECONDS,MAX, as 1 or 2,60; "
                       "0 or 0.001 to %d, and MAX at least SECONDS",
                       text, GRACE_MAX_S);
    out->delay_ms = (uint64_t)(first * 1000);
    out->delay_max_ms = max > 0 ? (uint64_t)(max * 1000) : DELAY_MAX_MS;
    if (max == 0 && out->delay_max_ms > limit_ms)
        out->delay_max_ms = limit_ms;
    if (out->delay_ms > 0 && (out->delay_max_ms > limit_ms || out->delay_ms > limit_ms))
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--restart-delay=%s: at most %llu s, half of the join_timeout of "
            "--rdzv-conf",
            text, (unsigned long long)limit_ms / 1000);
    if (out->delay_max_ms < out->delay_ms)
        out->delay_max_ms = out->delay_ms;
    return 0;
}

/* As in resolve_delay(): a node that waits has not joined yet. */
static int resolve_gpu_wait(struct stop_config *out, const struct options *options,
                            uint64_t join_timeout_ms, struct ctrun_error *err)
{
    const struct option_value *option = &options->values[OPTION_GPU_WAIT];
    const uint64_t limit_ms = join_timeout_ms / 2;

    if (option->integer < 0 || option->integer > GRACE_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--gpu-wait=%s: 0 to %d seconds",
                       option->text, GRACE_MAX_S);
    out->gpu_wait_ms = (uint64_t)option->integer * 1000;
    if (out->gpu_wait_ms > limit_ms)
        out->gpu_wait_ms = limit_ms;
    return 0;
}

static int resolve_budget(struct stop_config *out, const struct options *options,
                          struct ctrun_error *err)
{
    const struct option_value *option = &options->values[OPTION_BUDGET];

    if (!(option->number >= 0 && option->number <= GRACE_MAX_S) ||
        (option->number > 0 && option->number < 0.001))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--budget=%s: 0.001 to %d seconds, or 0: none", option->text,
                       GRACE_MAX_S);
    out->budget_ms = (uint64_t)(option->number * 1000);
    return 0;
}

/* A rank that may be started again is not lost. */
static int resolve_survival(struct stop_config *out, const struct options *options,
                            struct ctrun_error *err)
{
    const struct option_value *limit = &options->values[OPTION_SURVIVE_TIMEOUT];
    const struct option_value *replace = &options->values[OPTION_SURVIVE_REPLACE];
    const char *who = option_text(options, OPTION_SURVIVE);

    if (limit->integer < 1 || limit->integer > GRACE_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--survive-timeout=%s: 1 to %d seconds",
                       limit->text, GRACE_MAX_S);
    if (replace->integer < 0 || replace->integer > REPLACE_MAX)
        return ct_fail(err, CTRUN_E_USAGE, "--survive-replace=%s: 0 to %d",
                       replace->text, REPLACE_MAX);
    if (strcmp(who, "none") == 0)
        return replace->integer == 0
                   ? 0
                   : ct_fail(err, CTRUN_E_USAGE,
                             "--survive-replace=%s: only with --survive",
                             replace->text);
    if (options->role_restarts_count > 0 ||
        option_has_text(options, OPTION_ROLE_RESTARTS))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--survive=%s: not with --role-restarts: a rank is either "
                       "started again or done without",
                       who);
    out->survive_ms = (uint64_t)limit->integer * 1000;
    out->frees_peers = strcmp(who, "torch") == 0;
    out->survive_replace = (uint32_t)replace->integer;
    return 0;
}

static int resolve_requeue(struct stop_config *out, const struct options *options,
                           struct ctrun_error *err)
{
    const struct option_value *code = &options->values[OPTION_REQUEUE_EXIT];

    out->allows_chaos = options->values[OPTION_ALLOW_CHAOS].is_on;
    out->keeps_signals = strcmp(option_text(options, OPTION_SIGNAL_SCOPE), "node") == 0;
    if (code->text && (code->integer < 1 || code->integer > 255))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--requeue-exit=%s: an exit code is 1 to 255", code->text);
    out->requeue_exit = code->text ? (int)code->integer : 0;
    return 0;
}

/* As in torchrun, a value that is no positive number turns the check off. */
static void resolve_stuck_limit(struct stop_config *out, char *const *env)
{
    const char *text = ct_env_find(env, "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT");
    char *end;
    double seconds;

    if (!text)
        return;
    seconds = strtod(text, &end);
    if (end != text && *end == '\0' && seconds > 0)
        out->stuck_limit_ms = seconds > GRACE_MAX_S ? (uint64_t)GRACE_MAX_S * 1000
                                                    : (uint64_t)(seconds * 1000) + 1;
}

/* ---- The end of the allocation ------------------------------------------------------- */

/* The signals that may ask workers to end, or to save, which most programs of a batch system
 * understand. With or without SIG, as in sbatch --signal. */
static int find_end_signal(const char *name)
{
    static const struct {
        const char *name;
        int signal;
    } names[] = {{"TERM", SIGTERM}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};

    name += strncmp(name, "SIG", 3) == 0 ? 3 : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0)
            return names[i].signal;
    return 0;
}

static int parse_before(struct stop_config *out, const char *text,
                        struct ctrun_error *err)
{
    const size_t digits = strspn(text, "0123456789");
    char number[24];

    out->end_signal = SIGTERM;
    if (ct_format(number, sizeof number, "%.*s", (int)digits, text) < 0 ||
        ct_parse_u64(number, 0, BEFORE_MAX_S, &out->stop_before_end_s) < 0 ||
        (text[digits] && text[digits] != ','))
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--stop-before-end=%s: want SECONDS or SECONDS,SIGNAL, as 120 or "
            "300,USR1; 0 to %d seconds",
            text, BEFORE_MAX_S);
    if (text[digits] && !(out->end_signal = find_end_signal(text + digits + 1)))
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--stop-before-end=%s: the signal is SIGTERM, which ends the run, "
            "or SIGUSR1 or SIGUSR2, which are passed on",
            text);
    return 0;
}

static int resolve_end(struct stop_config *out, const struct options *options,
                       char *const *env, struct ctrun_error *err)
{
    const struct batch_source source = batch_source_of(&env);
    int rc = batch_end(&out->end_s, &source, err);

    if (rc == 0 && option_has_text(options, OPTION_STOP_BEFORE_END))
        rc = parse_before(out, option_text(options, OPTION_STOP_BEFORE_END), err);
    return rc;
}

int stop_config_resolve(struct stop_config *out, const struct options *options,
                        char *const *env, const struct run_config *run,
                        uint64_t join_timeout_ms, struct ctrun_error *err)
{
    int rc;

    if ((rc = resolve_grace(out, options, env, run->kill_wait_s, err)) < 0 ||
        (rc = resolve_patience(out, options, err)) < 0 ||
        (rc = resolve_budget(out, options, err)) < 0 ||
        (rc = resolve_delay(out, options, join_timeout_ms, err)) < 0 ||
        (rc = resolve_gpu_wait(out, options, join_timeout_ms, err)) < 0 ||
        (rc = resolve_survival(out, options, err)) < 0 ||
        (rc = resolve_requeue(out, options, err)) < 0 ||
        (rc = resolve_signals(out, options, err)) < 0)
        return rc;
    if (option_has_text(options, OPTION_FAILURE_RULES) &&
        (rc = failure_rules_read(&out->rules,
                                 option_text(options, OPTION_FAILURE_RULES), err)) < 0)
        return rc;
    resolve_stuck_limit(out, env);
    out->exit_style = option_exit_style(options);
    return resolve_end(out, options, env, err);
}

void stop_config_deinit(struct stop_config *config)
{
    failure_rules_deinit(&config->rules);
}
