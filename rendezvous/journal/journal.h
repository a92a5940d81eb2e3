/* SPDX-License-Identifier: Apache-2.0 */
/* What a restarted server must know of its runs, as batches of bytes. Pure: where they are kept is
 * the business of a sink (journal_file.h; another may keep them elsewhere).
 *
 *   round_step ── journal_note ── batch ── sink->store ── and only then the step's messages go out
 *
 *   restart: all kept batches in their order ── journal_book_add ... ── journal_book_restore
 *
 * A batch is the change that one step made to one run; it counts whole or not at all. With
 * JOURNAL_WHOLE it says all there is to know of that run, so that the sink may drop this run's
 * batches before it; JOURNAL_END says that the run is over: all of them may be dropped, this one
 * too. A run begins with a WHOLE batch, and each new world is one, so that not much lies between
 * two; each other one names the checksum of the batch before it, so that none is missed when one
 * was lost. Batches of different runs do not depend on each other.
 *
 * Only worlds count: a run whose first world has not started is not kept, and of members only
 * those of the last world. All others come again by themselves and nothing is lost.
 *
 * What follows for a sink that loses its last batches (power cut, full disk): members of a later
 * world are refused when they resume, and end their workers by their leases, which the server
 * waits for, also with runs that it has never heard of (has_past). So nothing is fatal, and two worlds never live; the run starts its workers anew.
 *
 *     batch    u8 version, u8 flags, text run id, records
 *     record   u8 kind, u32 length, body; a kind that is not known is skipped
 *
 * Texts and messages inside are coded as on the wire (worker_sdk/wire/message.h). Kinds are
 * numbered forever; who changes what is inside one takes a new number or raises the version. */
#pragma once

#include "rendezvous/round/round.h"

enum {
    JOURNAL_VERSION = 2,
    /* A world of ROUND_NODES_MAX nodes of a kilobyte each. */
    JOURNAL_BATCH_MAX_BYTES = 128 << 20,
};

enum journal_flags {
    JOURNAL_WHOLE = 1u << 0,
    JOURNAL_END = 1u << 1,
};

/* Where batches go. */
struct journal_sink {
    void *context; /* kept */
    /* Called on the server's thread; when it returns 0 the batch is kept, and what it stands for
     * is told to the agents. Else the step's messages must not go out: this server gives the run
     * up, closes its connections and forgets it. `run_id` and `batch` are borrowed. */
    int (*store)(void *context, const char *run_id, unsigned flags,
                 const uint8_t *batch, size_t length);
};

/* ---- Writing ----------------------------------------------------------------------------- */

/* What the journal has of one run; zeroed: nothing. */
struct journal_mark {
    bool is_kept; /* there is something to be ended */
    uint64_t generation;
    uint64_t limits;
    uint64_t state_sum, trouble_sum, world_sum;
    uint32_t newcomers; /* round->newcomers, noted; a change takes a WHOLE batch */
    uint64_t
        calm_generation; /* it runs, and has no failure that was not told; 0: else */
    uint64_t batch_sum;  /* of the last batch */
};

struct journal_run {
    const char *id; /* borrowed */
    uint64_t heartbeat_ms;
    struct round *round; /* its `news` are taken */
};

/* Appends what the last step changed as one batch to `out` (empty; its maximum should be
 * JOURNAL_BATCH_MAX_BYTES). 1 with *flags set, 0 when nothing has to be kept, or -ENOBUFS,
 * -ENOMEM, -EMSGSIZE: then nothing counts as kept, and the next batch is a WHOLE one. */
int journal_note(struct journal_mark *mark, const struct journal_run *run,
                 struct ct_buf *out, unsigned *flags);
/* All that is known of the run, whatever was kept before; for a sink that begins again. */
int journal_note_whole(struct journal_mark *mark, const struct journal_run *run,
                       struct ct_buf *out);

/* ---- Reading ----------------------------------------------------------------------------- */

/* One run as the batches tell it. */
struct journal_entry {
    struct ct_list node;
    char id[CT_RUN_ID_MAX];
    uint64_t heartbeat_ms;
    uint64_t batch_sum;
    struct round *round; /* owned until somebody takes it: then NULL */
};

struct journal_book {
    struct ct_list entries; /* struct journal_entry */
    uint64_t last_id;       /* the largest of all members */
    /* There was a server before, and its last batches may be missing: set by who fills the book.
     * Then new runs, too, wait until leases that it may have given are over. */
    bool has_past;
};

void journal_book_init(struct journal_book *book);
/* The next batch. 0, -EBADMSG (no batch of ours; its run is dropped), -ENOMEM. */
int journal_book_add(struct journal_book *book, const uint8_t *batch, size_t length);
/* What the batch is about, without taking it. 0, -EBADMSG. */
int journal_look(const uint8_t *batch, size_t length, unsigned *flags,
                 char run_id[CT_RUN_ID_MAX]);
/* All batches are in: each round becomes one that a server can continue with (round_restore()). Runs
 * that cannot have been so are dropped; returns how many were. */
size_t journal_book_restore(struct journal_book *book, uint64_t served_ms,
                            uint64_t now_ms);
void journal_book_deinit(struct journal_book *book);

/* ---- Batches in one stream of bytes -------------------------------------------------------- */

/*     u32 length of the batch, u64 checksum of the batch, batch */
enum {
    JOURNAL_FRAME_BYTES = 12
};
void journal_frame_encode(uint8_t head[JOURNAL_FRAME_BYTES], const uint8_t *batch,
                          size_t length);
/* The bytes that the first batch takes with its frame, *batch and *batch_length set; 0 when it is
 * not complete; -EBADMSG: something else, or its checksum is wrong. */
int64_t journal_frame_decode(const uint8_t *data, size_t length, const uint8_t **batch,
                             size_t *batch_length);
