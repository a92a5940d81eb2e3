/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/exit_status.h"

#include <errno.h>

#include "worker_sdk/wire/contract.h"

static int status_of_error(int code)
{
    switch (code < 0 ? code : -code) {
    case CTRUN_E_USAGE: return CT_EXIT_USAGE;
    case CTRUN_E_NO_HOST:
    case CTRUN_E_JOIN_TIMEOUT:
    case CTRUN_E_UNREACHABLE:
    case CTRUN_E_PEER_LOST:
    case CTRUN_E_LEADER_LOST:
    case CTRUN_E_NO_HA:
    case CTRUN_E_DNS:
    case CTRUN_E_SPARE:
    case -EXFULL: /* the rendezvous server has no room */
    case CTRUN_E_TIMEOUT: return CT_EXIT_RETRY;
    case -EADDRINUSE:
    case CTRUN_E_PORT_BUSY:
    case CTRUN_E_LOOPBACK:
    case CTRUN_E_WRONG_RUN:
    case CTRUN_E_OTHER_JOB:
    case CTRUN_E_VERSION:
    case CTRUN_E_FINGERPRINT:
    case CTRUN_E_AUTH: return CT_EXIT_REFUSED;
    case CTRUN_E_EXCLUDED:
    case CTRUN_E_UNKILLABLE: return CT_EXIT_UNKILLABLE;
    case CTRUN_E_BUDGET: return CT_EXIT_BUDGET;
    case -ENOEXEC: return CT_EXIT_CANNOT_EXEC;
    case CTRUN_E_EXEC: return CT_EXIT_NOT_FOUND;
    default: return CT_EXIT_FAILURE;
    }
}

static int status_of_verdict(const struct ct_verdict *verdict)
{
    if (verdict->outcome == CT_OUTCOME_SUCCEEDED)
        return CT_EXIT_OK;
    return verdict->exit_code ? verdict->exit_code : CT_EXIT_FAILURE;
}

/* The code by kind of failure. Causes other than a worker's have their own codes in every style. */
static int class_of(const struct ct_verdict *verdict, int own)
{
    if (verdict->outcome == CT_OUTCOME_CRASH_LOOP)
        return CT_EXIT_CLASS_LOOP;
    if (verdict->outcome != CT_OUTCOME_FAILED || verdict->failure_count == 0)
        return own;
    switch (verdict->failures[0].cause) {
    case CT_CAUSE_EXIT:
    case CT_CAUSE_RAISED: return CT_EXIT_CLASS_EXIT;
    case CT_CAUSE_SIGNAL: return CT_EXIT_CLASS_SIGNAL;
    case CT_CAUSE_OOM: return CT_EXIT_CLASS_OOM;
    case CT_CAUSE_HANG: return CT_EXIT_CLASS_HANG;
    default: return own;
    }
}

int exit_status(const struct exit_end *end, enum exit_style style)
{
    const bool has_verdict = !end->signal && !end->error && end->verdict;
    const int own = end->signal    ? CT_EXIT_SIGNAL + end->signal
                    : end->error   ? status_of_error(end->error)
                    : end->verdict ? status_of_verdict(end->verdict)
                                   : end->status;

    if (own == CT_EXIT_OK || style == EXIT_STYLE_OWN ||
        (end->error && own == CT_EXIT_USAGE))
        return own;
    if (style == EXIT_STYLE_TORCHRUN)
        return CT_EXIT_FAILURE;
    return has_verdict ? class_of(end->verdict, own) : own;
}

bool exit_status_is_workers(const struct exit_end *end, enum exit_style style)
{
    const struct ct_verdict *verdict = end->verdict;
    const uint8_t cause = verdict && verdict->failure_count ? verdict->failures[0].cause
                                                            : CT_CAUSE_NONE;

    return style == EXIT_STYLE_OWN && !end->signal && !end->error && verdict &&
           (verdict->outcome == CT_OUTCOME_FAILED ||
            verdict->outcome == CT_OUTCOME_CRASH_LOOP) &&
           (cause == CT_CAUSE_EXIT || cause == CT_CAUSE_SIGNAL ||
            cause == CT_CAUSE_OOM);
}
