/* SPDX-License-Identifier: Apache-2.0 */
/* Any batches into a journal's book. Each round that can be restored must run until it is
 * forgotten. Each batch has its length in front, a big-endian u16. */

#include "rendezvous/journal/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The round checks its invariants by assertions. */
static void outlive(struct round *round)
{
    uint64_t now_ms = 1000;

    for (int i = 0; i < 64; i++) {
        (void)round_step(round, &(struct round_command){.kind = ROUND_TICK}, now_ms);
        if (round->action_count > 0 &&
            round->actions[round->action_count - 1].kind == ROUND_FORGET)
            return;
        now_ms = round_next_ms(round);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct journal_book book;
    const uint8_t *batch;
    size_t length;

    (void)journal_frame_decode(data, size, &batch, &length);
    journal_book_init(&book);
    while (size >= 2) {
        length = (size_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
        length = length < size ? length : size;
        (void)journal_book_add(&book, data, length);
        data += length;
        size -= length;
    }
    (void)journal_book_restore(&book, 1000, 1000);
    ct_list_for_each(struct journal_entry, entry, &book.entries, node)
        outlive(entry->round);
    journal_book_deinit(&book);
    return 0;
}
