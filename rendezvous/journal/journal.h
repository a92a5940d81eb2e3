/* SPDX-License-Identifier: Apache-2.0 */
/* What a restarted server must know of its runs, as batches of bytes. Pure: a sink keeps the
 * batches (journal_file.h, or another one elsewhere).
 *
 *   round_step ── journal_note ── batch ── sink->store ── and only then the step's messages go out
 *
 *   restart: all kept batches in order ── journal_book_add ... ── journal_book_restore
 *
 * A batch is the change that one step made to one run; it counts whole or not at all. A
 * JOURNAL_WHOLE batch has the complete state of its run, so the sink may drop earlier batches of
 * this run. JOURNAL_END says that the run is over: the sink may drop all its batches, this one too.
 * A run begins with a WHOLE batch, and each new world is one, so few batches lie between two. Every
 * other batch has the checksum of the batch before it, so that a lost batch is noticed. Batches of
 * different runs do not depend on each other.
 *
 * A run is kept once its first world has started, and of its members only those of the last world.
 * All other agents join again by themselves, and nothing is lost.
 *
 * If a sink loses its last batches (power cut, full disk): members of a later world are refused
 * when they resume, and end their workers by their leases. The server waits for the end of these
 * leases, also for runs that it has never heard of (has_past). So two worlds never live at once;
 * the run starts its workers again.
 *
 *     batch    u8 version, u8 flags, text run id, records
 *     record   u8 kind, u32 length, body; a kind that is not known is skipped
 *
 * Texts and messages inside are coded as on the wire (worker_sdk/wire/message.h). Kinds are
 * numbered forever; a changed body needs a new number or a higher version. */
#pragma once

#include "rendezvous/round/round.h"

enum {
    JOURNAL_VERSION = 2,
    /* Room for a world of ROUND_NODES_MAX nodes of a kilobyte each. */
    JOURNAL_BATCH_MAX_BYTES = 128 << 20,
};

enum journal_flags {
    JOURNAL_WHOLE = 1u << 0,
    JOURNAL_END = 1u << 1,
};

/* Where batches go. */
struct journal_sink {
    void *context; /* borrowed */
    /* Called on the server's thread. 0: the batch is kept, and the messages of its step are sent to
     * the agents. -ENOBUFS: there is no room for it beside earlier ones; unless it is WHOLE, a WHOLE
     * batch follows at once. Else they must not be sent: this server gives the run up, closes its
     * connections and forgets it. `run_id` and `batch` are borrowed. */
    int (*store)(void *context, const char *run_id, unsigned flags,
                 const uint8_t *batch, size_t length);
    /* Writes again what could not be written; called every SERVER_RETRY_MS on the server's thread. May
     * be NULL. */
    void (*retry)(void *context);
    /* Why kept batches are not where a restarted server finds them; NULL: they are. Does no I/O.
     * Borrowed until the next call, on the server's thread. May be NULL. */
    const char *(*why_broken)(const void *context);
};

/* ---- Writing ----------------------------------------------------------------------------- */

/* What the journal has of one run; all zero: nothing. */
struct journal_mark {
    bool is_kept; /* the journal has the run: it needs an END */
    uint64_t generation;
    uint64_t limits;
    uint64_t state_sum, trouble_sum, world_sum, faults_sum;
    uint32_t newcomers; /* round->newcomers, as noted; a change needs a WHOLE batch */
    uint64_t
        calm_generation; /* of a world noted as running without a failure; 0: none */
    uint64_t batch_sum;  /* of the last batch */
};

struct journal_run {
    const char *id; /* borrowed */
    uint64_t heartbeat_ms;
    struct round *round; /* its `news` are emptied */
};

/* Appends the changes of the last step as one batch to `out` (empty; its maximum should be
 * JOURNAL_BATCH_MAX_BYTES). 1 with *flags set, 0 if nothing has to be kept, or -ENOBUFS, -ENOMEM,
 * -EMSGSIZE: then nothing counts as kept, and the next batch is a WHOLE one. */
int journal_note(struct journal_mark *mark, const struct journal_run *run,
                 struct ct_buf *out, unsigned *flags);
/* Appends the complete state of the run as a WHOLE batch, for a sink that begins again. */
int journal_note_whole(struct journal_mark *mark, const struct journal_run *run,
                       struct ct_buf *out);

/* ---- Reading ----------------------------------------------------------------------------- */

/* One run as read from the batches. */
struct journal_entry {
    struct ct_list node;
    char id[CT_RUN_ID_MAX];
    uint64_t heartbeat_ms;
    uint64_t batch_sum;
    struct round *round; /* owned until the caller takes it, then NULL */
};

struct journal_book {
    struct ct_list entries; /* struct journal_entry */
    uint64_t last_id;       /* the largest id of all members */
    /* There was a server before, and its last batches may be missing; set by the caller that fills
     * the book. Then new runs, too, wait until leases that it may have given are over. */
    bool has_past;
};

void journal_book_init(struct journal_book *book);
/* Adds the next batch. 0, -EBADMSG (no valid batch; its run is dropped), -ENOMEM. */
int journal_book_add(struct journal_book *book, const uint8_t *batch, size_t length);
/* Reads flags and run id of a batch only. 0, -EBADMSG. */
int journal_look(const uint8_t *batch, size_t length, unsigned *flags,
                 char run_id[CT_RUN_ID_MAX]);
/* To be called after the last batch: makes each round ready for a server to continue with
 * (round_restore()). Runs in an impossible state are dropped; returns how many. */
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
/* Finds the first batch and sets *batch and *batch_length. Returns its length with the frame; 0:
 * not complete; -EBADMSG: no frame, or a wrong checksum. */
int64_t journal_frame_decode(const uint8_t *data, size_t length, const uint8_t **batch,
                             size_t *batch_length);
