/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/backend/verdict.h"

#include <sched.h>

#include "worker_sdk/base/str.h"

enum {
    NOTHING,
    BEING_WRITTEN,
    THERE
};
enum {
    WRITER_PATIENCE = 1000
}; /* yields before we assume that the writer died while writing */

/* Only one caller writes. Code and text are stored before THERE and read only after it, in every
 * process. */
bool ct_verdict_set(struct ct_verdict *verdict, int code, const char *text)
{
    uint32_t nothing = NOTHING;

    if (!atomic_compare_exchange_strong(&verdict->state, &nothing, BEING_WRITTEN))
        return false;
    verdict->code = code;
    (void)ct_copy(verdict->text, sizeof verdict->text, text); /* cut when too long */
    atomic_store(&verdict->state, THERE);
    return true;
}

/* A writer that was killed while it wrote leaves BEING_WRITTEN for ever: the wait is limited, and
 * the group counts as failed in any case. */
int ct_verdict_get(const struct ct_verdict *verdict, struct ctrun_error *err)
{
    uint32_t state = atomic_load_explicit(&verdict->state, memory_order_acquire);
    char text[CT_VERDICT_TEXT_MAX];

    for (int i = 0; state == BEING_WRITTEN && i < WRITER_PATIENCE; i++) {
        sched_yield();
        state = atomic_load_explicit(&verdict->state, memory_order_acquire);
    }
    if (state == NOTHING)
        return 0;
    if (state != THERE || verdict->code >= 0)
        return ct_fail(
            err, CTRUN_E_PEER_LOST,
            "a rank failed and did not finish writing the reason: it probably died");
    (void)ct_copy(text, sizeof text,
                  verdict->text); /* in shared memory: may lack its end */
    return ct_fail(err, verdict->code, "%s", text);
}
