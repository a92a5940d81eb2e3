/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/run_journal.h"

#include <errno.h>
#include <string.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

int run_keep(struct run *run)
{
    struct dispatch *dispatch = run->dispatch;
    const struct journal_sink *sink = dispatch->journal;
    const struct journal_run source = {
        .id = run->id, .heartbeat_ms = run->heartbeat_ms, .round = run->round};
    struct ct_buf batch;
    unsigned flags;
    int rc;

    if (!sink)
        return 0;
    ct_buf_init(&batch, JOURNAL_BATCH_MAX_BYTES);
    rc = journal_note(&run->mark, &source, &batch, &flags);
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

void run_abandon(struct run *run)
{
    ct_err("run given up, for its journal cannot be kept run=%s", run->id);
    for (size_t i = 0; i < run->round->members.count; i++) {
        struct peer *peer = run->round->members.list[i]->link.peer;

        if (!peer)
            continue; /* away */
        peer->run = NULL;
        conn_close(peer->conn, "the journal cannot be kept");
    }
    run_forget(run);
}

int run_restore_all(struct dispatch *dispatch, struct journal_book *book)
{
    struct ct_list *it;

    ct_list_for_each(it, &book->entries) {
        struct journal_entry *entry = ct_list_entry(it, struct journal_entry, node);
        const struct round *round = entry->round;
        struct run *run = run_open(dispatch, entry->id, entry->round,
                                   entry->heartbeat_ms);

        if (!run)
            return -ENOMEM;
        entry->round = NULL;
        run->mark.is_kept = true;
        run_arm_timer(run);
        ct_info("run restored run=%s state=%s generation=%llu members=%zu", run->id,
                round_state_name(round->state), (unsigned long long)round->generation,
                round->members.count);
    }
    if (book->has_past)
        dispatch->held_from_ms = ct_now_ms();
    if (book->last_id > dispatch->last_id)
        dispatch->last_id = book->last_id;
    return 0;
}
