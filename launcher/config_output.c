/* SPDX-License-Identifier: Apache-2.0 */
/* Where the workers' output goes: terminal, files, filters, prefixes. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/config_private.h"
#include "launcher/log_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
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

/* Of several roles each counts for itself, but a line may be of several of them. */
static const char *default_prefix(const struct config *config)
{
    if (config->roles.count == 0)
        return "[${role_name}${local_rank}]:";
    return config->collapses ? "[${rank}]:" : "[${role_name}${role_rank}]:";
}

/* --color; auto is for a terminal that can, and a user who has not said NO_COLOR. */
static bool has_color(const struct config *config, const struct options *options,
                      int fd)
{
    const char *when = option_text(options, OPTION_COLOR);
    const char *off = ct_env_find(config->env, "NO_COLOR");
    const char *terminal = ct_env_find(config->env, "TERM");

    if (strcmp(when, "auto") != 0)
        return strcmp(when, "always") == 0;
    return !(off && *off) && terminal && strcmp(terminal, "dumb") != 0 && isatty(fd);
}

int config_output_resolve(struct config *out, const struct options *options,
                          struct ctrun_error *err)
{
    const char *environment = ct_env_find(out->env,
                                          "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    const char *prefix = option_text(options, OPTION_LOG_LINE_PREFIX_TEMPLATE);
    struct stat info;
    int rc;

    rc = streams_parse(&out->streams, option_text(options, OPTION_REDIRECTS),
                       option_text(options, OPTION_TEE),
                       option_text(options, OPTION_LOCAL_RANKS_FILTER), err);
    if (rc < 0)
        return rc;
    if (option_has_text(options, OPTION_LOG_DIR))
        out->log_dir = option_text(options, OPTION_LOG_DIR);
    out->has_no_files = out->log_dir && strcmp(out->log_dir, "/dev/null") == 0;
    if (out->log_dir && !out->has_no_files && stat(out->log_dir, &info) == 0 &&
        !S_ISDIR(info.st_mode))
        return ct_fail(err, -EINVAL, "--log-dir: log_dir: %s is a file", out->log_dir);
    if (strcmp(option_text(options, OPTION_TEE), "0") != 0) {
        out->paints_out = has_color(out, options, STDOUT_FILENO);
        out->paints_err = has_color(out, options, STDERR_FILENO);
    }
    out->collapses = options->values[OPTION_COLLAPSE].is_on;
    if (!*prefix)
        prefix = environment && *environment ? environment : default_prefix(out);
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
