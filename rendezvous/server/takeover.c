/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/server/takeover.h"

#include <errno.h>
#include <string.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

static int read_journal(struct journal_book *book, const uint8_t *data, size_t length)
{
    int rc = 0;

    while (length > 0 && rc == 0) {
        const uint8_t *batch;
        size_t batch_length;
        const int64_t taken = journal_frame_decode(data, length, &batch, &batch_length);

        if (taken <= 0)
            return -EBADMSG;
        rc = journal_book_add(book, batch, batch_length);
        data += taken;
        length -= (size_t)taken;
    }
    return rc;
}

/* Keeps every run of the book without members, too: an agent may resume here after all others are
 * lost. */
static void keep_all(struct journal_book *book)
{
    ct_list_for_each(struct journal_entry, entry, &book->entries, node) {
        if (entry->round)
            entry->round->settings.is_kept = true;
    }
}

int takeover_restore(struct runs *runs, struct journal_book *book)
{
    ct_list_for_each(struct journal_entry, entry, &book->entries, node) {
        const struct round *round = entry->round;
        struct run *run = run_open(runs, entry->id, entry->round, entry->heartbeat_ms);

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
        runs->held_from_ms = ct_now_ms();
    if (book->last_id > runs->last_id)
        runs->last_id = book->last_id;
    return 0;
}

static int take_runs(struct dispatch *dispatch, struct journal_book *book,
                     uint64_t served_ms)
{
    if (journal_book_restore(book, served_ms, ct_now_ms()) > 0)
        return -EBADMSG; /* workers of this run may live: no new world of it may start */
    keep_all(book);
    return takeover_restore(&dispatch->runs, book);
}

int takeover_begin(struct dispatch *dispatch, uint64_t term, const void *journal,
                   size_t length, uint64_t served_ms, struct ctrun_error *err)
{
    struct journal_book book;
    int rc;

    journal_book_init(&book);
    if ((rc = read_journal(&book, journal, length)) == 0)
        rc = take_runs(dispatch, &book, served_ms);
    journal_book_deinit(&book);
    if (rc < 0)
        return ct_fail(
            err, rc, "the journal of the previous server cannot be restored: %s",
            rc == -EBADMSG ? "it is damaged, or another version of ctrun wrote it"
                           : strerror(-rc));
    dispatch->is_candidate = false;
    dispatch->term = term;
    dispatch->runs.is_elected = term > 0;
    dispatch->runs.began_ms = ct_now_ms();
    return 0;
}
