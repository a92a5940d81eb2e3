/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a step: noted on their rank, told to all ranks by the flag, and reported. */
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/reducer.h"

void ct_ddp_raise_flag(struct ctrun_ddp *ddp, int code, const char *text)
{
    ddp->has_flag_up = true;
    ddp->flag[0] = ddp->world_size == 1; /* there is no bucket that could tell */
    if (ddp->report.code)
        return;
    ddp->report.code = code;
    (void)ct_copy(ddp->report.text, sizeof ddp->report.text, text);
}

void ct_ddp_note_not_finite(struct ctrun_ddp *ddp, size_t s)
{
    const size_t p = ddp->layout.slots[s].param;
    char text[CT_DDP_REPORT_BYTES];

    (void)ct_format(text, sizeof text, "%zu '%.64s'", p, ddp->params[p].name);
    ct_ddp_raise_flag(ddp, CTRUN_E_DIVERGED, text);
}

static bool flag_came_up(const struct ctrun_ddp *ddp)
{
    static const uint8_t zero[CT_FLAG_BYTES] = {0};

    return memcmp(ddp->flag, zero, ct_layout_flag_bytes(&ddp->layout)) != 0;
}

int ct_ddp_ask_device(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    long s;
    int rc = ct_checks_find(&ddp->checks, ddp->stream, &s, err);

    if (rc < 0 || s < 0)
        return rc;
    ddp->report.code =
        0; /* it was there before the end, where missing ones are found */
    ct_ddp_note_not_finite(ddp, (size_t)s);
    return 0;
}

int ct_ddp_check_flag(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    int rc;

    if (!flag_came_up(ddp))
        return 0;
    if (ddp->options.check_finite && ddp->world_size > 1 &&
        ct_group_is_device(ddp->group) && (rc = ct_ddp_ask_device(ddp, err)) < 0)
        return rc;
    ddp->checks.found.bad_norm = 0; /* what was clipped had no meaning */
    memset(ddp->flag, 0, sizeof ddp->flag);
    ddp->order_length = 0; /* not the order of a good step */
    return ct_ddp_exchange_reports(ddp->group, &ddp->report, err);
}

int ct_ddp_fail_clip(const struct ctrun_ddp *ddp, size_t s, struct ctrun_error *err)
{
    const size_t p = ddp->layout.slots[s].param;

    return ct_fail(err, CTRUN_E_DIVERGED,
                   "ddp: the gradient of parameter %zu '%s' is not finite, or too "
                   "large to clip",
                   p, ddp->params[p].name);
}

int ct_ddp_check_clip(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    const uint32_t bad = ddp->checks.found.bad_norm;

    ddp->checks.found.bad_norm = 0;
    return bad ? ct_ddp_fail_clip(ddp, bad - 1, err) : 0;
}
