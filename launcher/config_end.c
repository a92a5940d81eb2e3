/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the allocation: when it is, and what is done before it. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "launcher/batch.h"
#include "launcher/config_private.h"
#include "worker_sdk/base/str.h"

enum {
    BEFORE_MAX_S = 30 * 24 * 3600
};

/* What workers may be asked with: to end, or, by what most programs of a batch system know, to
 * save. With or without SIG, as sbatch --signal has it. */
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

static int parse_before(struct config *out, const char *text, struct ctrun_error *err)
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

int config_end_resolve(struct config *out, const struct options *options,
                       struct ctrun_error *err)
{
    const struct batch_source source = batch_source_of(&out->env);
    int rc = batch_end(&out->end_s, &source, err);

    if (rc == 0 && option_has_text(options, OPTION_STOP_BEFORE_END))
        rc = parse_before(out, option_text(options, OPTION_STOP_BEFORE_END), err);
    return rc;
}
