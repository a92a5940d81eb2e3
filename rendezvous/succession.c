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

static int take_runs(struct dispatch *dispatch, struct journal_book *book,
                     uint64_t silence_ms)
{
    const uint64_t now_ms = ct_now_ms();

    if (journal_book_restore(book, now_ms > silence_ms ? now_ms - silence_ms : 0) > 0)
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
