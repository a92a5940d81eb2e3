/* SPDX-License-Identifier: Apache-2.0 */
/* When workers are stopped, and how: signals, times of grace and patience, the exit code. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "agent/allocation.h"
#include "launcher/config_private.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    GRACE_MS = 30 * 1000, /* torchrun's */
    GRACE_MAX_S = 30 * 24 * 3600,
};

static int find_signal(const char *name, size_t length)
{
    if (length > 3 && strncmp(name, "SIG", 3) == 0) {
        for (int n = 1; n < SIGRTMIN; n++) {
            const char *abbreviation = sigabbrev_np(n);

            if (abbreviation && strlen(abbreviation) == length - 3 &&
                strncmp(abbreviation, name + 3, length - 3) == 0)
                return n;
        }
    }
    return 0;
}

static void resolve_signals(struct config *out, const struct options *options)
{
    const char *rest = option_text(options, OPTION_SIGNALS_TO_HANDLE);
    size_t length;

    out->signals_text = rest;
    for (const char *name; (name = ct_next_field(&rest, ',', &length));) {
        int n;

        name = ct_trim(name, &length);
        n = find_signal(name, length);
        if (n == 0 || n == SIGKILL || n == SIGSTOP || n == SIGCHLD)
            ct_warn("--signals-to-handle: '%.*s' is no signal that can be handled",
                    (int)length, name);
        else if (out->signal_count < CONFIG_SIGNALS_MAX)
            out->signals[out->signal_count++] = n;
    }
}

static int resolve_grace(struct config *out, const struct options *options,
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
        if (!(text = ct_env_find(out->env, name))) {
            if (out->kill_wait_s)
                out->signal_grace_ms = allocation_grace_ms((uint64_t)out->kill_wait_s *
                                                           1000);
            return 0;
        }
        if (option_parse_int(text, &seconds) < 0)
            return ct_fail(err, -EINVAL, "%s=%s: not a number of seconds", name, text);
    }
    if (seconds < 0 || seconds > GRACE_MAX_S)
        return ct_fail(err, -EINVAL,
                       "%s=%s: shutdown_timeout must be non-negative, got %lld", name,
                       text, (long long)seconds);
    out->grace_ms = out->signal_grace_ms = (uint64_t)seconds * 1000;
    out->end_grace_ms = out->grace_ms;
    return 0;
}

static int resolve_patience(struct config *out, const struct options *options,
                            struct ctrun_error *err)
{
    const struct option_value *option = &options->values[OPTION_MIN_UPTIME];
    const struct option_value *hang = &options->values[OPTION_HANG_TIMEOUT];

    if (hang->integer < 0 || hang->integer > GRACE_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--hang-timeout=%s: 0 to %d seconds",
                       hang->text, GRACE_MAX_S);
    out->hang_timeout_ms = (uint64_t)hang->integer * 1000;
    if (option->integer < 0 || option->integer > GRACE_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE, "--min-uptime=%s: 0 to %d seconds",
                       option->text, GRACE_MAX_S);
    out->min_uptime_ms = (uint64_t)option->integer * 1000;
    return 0;
}

static int resolve_requeue(struct config *out, const struct options *options,
                           struct ctrun_error *err)
{
    const struct option_value *code = &options->values[OPTION_REQUEUE_EXIT];

    out->keeps_signals = strcmp(option_text(options, OPTION_SIGNAL_SCOPE), "node") == 0;
    if (code->text && (code->integer < 1 || code->integer > 255))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--requeue-exit=%s: an exit code is 1 to 255", code->text);
    out->requeue_exit = code->text ? (int)code->integer : 0;
    return 0;
}

/* As torchrun: what is no positive number turns the check off. */
static void resolve_stuck_limit(struct config *out)
{
    const char *text = ct_env_find(out->env,
                                   "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT");
    char *end;
    double seconds;

    if (!text)
        return;
    seconds = strtod(text, &end);
    if (end != text && *end == '\0' && seconds > 0)
        out->stuck_limit_ms = seconds > GRACE_MAX_S ? (uint64_t)GRACE_MAX_S * 1000
                                                    : (uint64_t)(seconds * 1000) + 1;
}

int config_stop_resolve(struct config *out, const struct options *options,
                        struct ctrun_error *err)
{
    int rc;

    if ((rc = resolve_grace(out, options, err)) < 0 ||
        (rc = resolve_patience(out, options, err)) < 0 ||
        (rc = resolve_requeue(out, options, err)) < 0)
        return rc;
    resolve_signals(out, options);
    resolve_stuck_limit(out);
    return 0;
}
