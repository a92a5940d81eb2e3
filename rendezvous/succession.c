/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/succession.h"

#include <errno.h>

#include "rendezvous/run_journal.h"
#include "worker_sdk/base/clock.h"

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

/* When its members count as heard last. However long the silence was, they get most of a lease to
 * come back: a world without them costs more than the wait. */
static uint64_t choose_heard_ms(const struct journal_book *book, uint64_t silence_ms)
{
    const uint64_t now_ms = ct_now_ms();
    struct ct_list *it;

    ct_list_for_each(it, &book->entries) {
        struct journal_entry *entry = ct_list_entry(it, struct journal_entry, node);

        if (entry->round && silence_ms > entry->round->settings.lost_after_ms / 10 * 3)
            silence_ms = entry->round->settings.lost_after_ms / 10 * 3;
    }
    return now_ms > silence_ms ? now_ms - silence_ms : 0;
}

static int take_runs(struct dispatch *dispatch, struct journal_book *book,
                     uint64_t silence_ms)
{
    if (journal_book_restore(book, choose_heard_ms(book, silence_ms)) > 0)
        return -EBADMSG; /* its world may live: nobody else must begin one */
    return run_restore_all(dispatch, book);
}

int succession_begin(struct dispatch *dispatch, const void *journal, size_t length,
                     uint64_t silence_ms, struct ctrun_error *err)
{
    struct journal_book book;
    int rc;

    journal_book_init(&book);
    if ((rc = read_journal(&book, journal, length)) == 0)
        rc = take_runs(dispatch, &book, silence_ms);
    journal_book_deinit(&book);
    if (rc < 0)
        return ct_fail(err, rc, "the journal of the host before cannot be read");
    dispatch->is_standby = false;
    return 0;
}
