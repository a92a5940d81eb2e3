/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/run_journal.h"

#include <string.h>

#include "worker_sdk/base/log.h"

int run_journal_keep(const struct journal_sink *sink, struct journal_mark *mark,
                     const struct journal_run *run)
{
    struct ct_buf batch;
    unsigned flags;
    int rc;

    if (!sink)
        return 0;
    ct_buf_init(&batch, JOURNAL_BATCH_MAX_BYTES);
    rc = journal_note(mark, run, &batch, &flags);
    if (rc < 0) /* a gap, which a restarted server can live with */
        ct_err("journal: run=%s: %s", run->id, strerror(-rc));
    if (rc > 0)
        rc = sink->store(sink->context, run->id, flags, ct_buf_data(&batch),
                         ct_buf_length(&batch));
    else
        rc = 0;
    ct_buf_deinit(&batch);
    return rc;
}
