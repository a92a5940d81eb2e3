/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/output_config.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/options/log_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

/* "a,,b,c" is "a,b" and "c". */
static int parse_filters(const char *text, char **out, const char *option,
                         struct ctrun_error *err)
{
    size_t room = strlen(text) + 1;
    int count = 0;

    while (*text) {
        size_t length = 0;

        if (count == CONFIG_FILTERS_MAX)
            return ct_fail(err, -EINVAL, "%s: more than %d texts", option,
                           CONFIG_FILTERS_MAX);
        if (!(out[count] = ct_zalloc(room)))
            return -ENOMEM;
        while (*text && !(text[0] == ',' && text[1] != ',')) {
            out[count][length++] = *text;
            text += text[0] == ',' ? 2 : 1;
        }
        text += *text == ',';
        if (length) {
            count++;
        } else { /* an empty text would match everything */
            free(out[count]);
            out[count] = NULL;
        }
    }
    return 0;
}

/* Several roles each count their own ranks; but a merged line may be of several roles. */
static const char *default_prefix(const struct run_config *run, bool collapses)
{
    if (run->roles.count == 0)
        return "[${role_name}${local_rank}]:";
    return collapses ? "[${rank}]:" : "[${role_name}${role_rank}]:";
}

/* --color; auto: the terminal has colours, and NO_COLOR is not set. */
static bool has_color(const struct options *options, char *const *env, int fd)
{
    const char *when = option_text(options, OPTION_COLOR);
    const char *off = ct_env_find(env, "NO_COLOR");
    const char *terminal = ct_env_find(env, "TERM");

    if (strcmp(when, "auto") != 0)
        return strcmp(when, "always") == 0;
    return !(off && *off) && terminal && strcmp(terminal, "dumb") != 0 && isatty(fd);
}

/* ---- Standard input ------------------------------------------------------------------ */

/* How many ranks there will be; 0: the nodes' sizes may differ. */
static int count_ranks(const struct run_config *run)
{
    if (run->nodes.max == 1)
        return run->nproc;
    return run->task.is_rank ? run->nodes.max : 0;
}

static int resolve_input(struct output_config *out, const struct options *options,
                         const struct run_config *run, struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_STDIN);
    const int count = count_ranks(run);
    uint64_t rank;

    out->stdin_rank = CONFIG_STDIN_ALL;
    if (strcmp(text, "all") == 0)
        return 0;
    out->stdin_rank = CONFIG_STDIN_NONE;
    if (strcmp(text, "none") == 0)
        return 0;
    if (ct_parse_u64(text, 0, INT_MAX, &rank) < 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--stdin=%s: must be a rank of the job, all or none", text);
    if (count > 0 && rank >= (uint64_t)count)
        return ct_fail(err, CTRUN_E_USAGE, "--stdin=%s: there %s %d rank%s, 0 to %d",
                       text, count == 1 ? "is" : "are", count, count == 1 ? "" : "s",
                       count - 1);
    out->stdin_rank = (int)rank;
    return 0;
}

/* ---- Output -------------------------------------------------------------------------- */

/* Warns of a filter that hides all workers: perhaps it has ranks of the job instead of local ranks.
 * A task that is one rank does not know the others, and does not warn. */
static void warn_hidden(const bool *is_shown, const char *filter,
                        const struct run_config *run)
{
    for (int i = 0; i < run->nproc; i++)
        if (is_shown[i] || run->task.is_rank)
            return;
    ct_warn("--local-ranks-filter=%s: this node has local ranks 0 to %d, of which it "
            "shows none on the console",
            filter, run->nproc - 1);
}

static int resolve_files(struct output_config *out, const struct options *options,
                         const struct run_config *run, struct ctrun_error *err)
{
    struct stat info;
    int rc = streams_parse(&out->streams, option_text(options, OPTION_REDIRECTS),
                           option_text(options, OPTION_TEE),
                           option_text(options, OPTION_LOCAL_RANKS_FILTER), err);

    if (rc < 0)
        return rc;
    warn_hidden(out->streams.is_shown, option_text(options, OPTION_LOCAL_RANKS_FILTER),
                run);
    if (option_has_text(options, OPTION_LOG_DIR))
        out->log_dir = option_text(options, OPTION_LOG_DIR);
    out->has_no_files = out->log_dir && strcmp(out->log_dir, "/dev/null") == 0;
    if (out->log_dir && !out->has_no_files && stat(out->log_dir, &info) == 0 &&
        !S_ISDIR(info.st_mode))
        return ct_fail(err, -EINVAL, "--log-dir: log_dir: %s is a file", out->log_dir);
    return 0;
}

int output_config_resolve(struct output_config *out, const struct options *options,
                          char *const *env, const struct run_config *run,
                          struct ctrun_error *err)
{
    const char *environment = ct_env_find(env, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    const char *prefix = option_text(options, OPTION_LOG_LINE_PREFIX_TEMPLATE);
    int rc;

    if ((rc = resolve_input(out, options, run, err)) < 0 ||
        (rc = resolve_files(out, options, run, err)) < 0)
        return rc;
    out->prints_torch_events = strcmp(option_text(options, OPTION_EVENT_LOG_HANDLER),
                                      "console") == 0;
    if (strcmp(option_text(options, OPTION_TEE), "0") != 0) {
        out->paints_out = has_color(options, env, STDOUT_FILENO);
        out->paints_err = has_color(options, env, STDERR_FILENO);
    }
    out->has_whole_table = strcmp(option_text(options, OPTION_SUMMARY), "torchrun") ==
                           0;
    out->has_table = out->has_whole_table ||
                     (strcmp(option_text(options, OPTION_SUMMARY), "auto") == 0 &&
                      !isatty(STDERR_FILENO));
    out->uses_pty = strcmp(option_text(options, OPTION_PTY), "auto") == 0;
    out->redacts = strcmp(option_text(options, OPTION_REDACT), "on") == 0;
    out->collapses = options->values[OPTION_COLLAPSE].is_on;
    if (!*prefix)
        prefix = environment && *environment ? environment
                                             : default_prefix(run, out->collapses);
    out->prefix_template = prefix;
    if ((rc = log_limits_parse(options, &out->log_max_bytes, &out->log_keep, err)) <
            0 ||
        (rc = log_limits_parse_rate(options, &out->rate_limit, err)) < 0)
        return rc;
    if ((rc = parse_filters(option_text(options, OPTION_DUPLICATE_STDOUT_FILTERS),
                            out->out_filters, "--duplicate-stdout-filters", err)) < 0)
        return rc;
    return parse_filters(option_text(options, OPTION_DUPLICATE_STDERR_FILTERS),
                         out->err_filters, "--duplicate-stderr-filters", err);
}

void output_config_deinit(struct output_config *config)
{
    for (int i = 0; i < CONFIG_FILTERS_MAX; i++) {
        free(config->out_filters[i]);
        free(config->err_filters[i]);
    }
}
