/* SPDX-License-Identifier: Apache-2.0 */
/* What members do about a call that is not done soon; so a call that is quick costs no request.
 *
 * First they read again and again whether another member has ended the group. Later each leaves a
 * note which collective it waits for, late/RANK, and compares that with what others wait for. At the
 * deadline a rank whose note is of an earlier collective, or that has none, has not come. Only one
 * member reads the notes of all at the deadline, and tells the others. */
#include <errno.h>
#include <time.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    LOOK_MS = 40,          /* until the board is read, and between two times */
    LOOKS_A_SECOND = 5000, /* of a large group together: one store answers them all */
    PATIENCE = 10,         /* a slow store is asked for a tenth of the time */
    LATE_MS = 1000,        /* until a call is late, or a quarter of its time */
    LATE_PART = 4,
    NAMING_MS = 1000, /* at most, to read the notes of all */
    NAMED_MAX = 16    /* ranks in a message */
};

/* ---- The first call that is not done ------------------------------------------------ */

/* False: there is none. Messages have no number: only two members know of each. */
static bool find_pending(struct nccl *nccl, bool skips_messages, struct ct_call *call,
                         uint64_t *began_ms)
{
    /* This thread may be capturing a stream. */
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    bool is_found = false;

    (void)ct_nccl_api.cudaThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_lock(&nccl->lock);
    ct_list_for_each(struct ticket, ticket, &nccl->running, node) {
        if (ticket->is_placed &&
            ct_nccl_api.cudaEventQuery(ticket->done) == cudaSuccess)
            continue;
        if (ticket->call.number == 0 && skips_messages)
            continue;
        *call = ticket->call;
        *began_ms = ticket->began_ms;
        is_found = true;
        break;
    }
    pthread_mutex_unlock(&nccl->lock);
    (void)ct_nccl_api.cudaThreadExchangeStreamCaptureMode(&mode);
    return is_found;
}

static bool is_late(const struct ct_call *call, uint64_t began_ms)
{
    const uint64_t part_ms = (call->deadline_ms - began_ms) / LATE_PART;

    return ct_now_ms() >= began_ms + (part_ms < LATE_MS ? part_ms : LATE_MS);
}

/* Only by the thread that looks. */
static void leave_note(struct nccl *nccl)
{
    char key[CT_BOOTSTRAP_KEY_MAX], text[CT_NOTE_MAX];
    uint64_t began_ms;
    struct ct_call call;
    struct ct_nccl_note own;

    if (!find_pending(nccl, true, &call, &began_ms) || !is_late(&call, began_ms))
        return;
    own = ct_nccl_note_of(nccl, &call);
    ct_nccl_format_note(text, &own);
    ct_nccl_name_note(nccl, key, "late", (uint64_t)nccl->rank);
    if (own.number != nccl->noted &&
        nccl->board.put(nccl->board.context, key, text) == 0)
        nccl->noted = own.number;
    ct_nccl_compare_late(nccl, &call);
}

/* ---- Looking ------------------------------------------------------------------------------ */

static uint64_t interval_ms(const struct nccl *nccl)
{
    const uint64_t fair_ms = (uint64_t)nccl->size * 1000 / LOOKS_A_SECOND;

    return fair_ms > LOOK_MS ? fair_ms : LOOK_MS;
}

/* One thread at a time looks; the others have no need to. */
void ct_nccl_look(struct nccl *nccl, uint64_t since_ms)
{
    const uint64_t now_ms = ct_now_ms();
    uint64_t look_ms = nccl->look_ms;

    if (!nccl->board.read || now_ms < since_ms + LOOK_MS || now_ms < look_ms ||
        !atomic_compare_exchange_strong(&nccl->look_ms, &look_ms, UINT64_MAX))
        return;
    ct_nccl_read_reason(nccl);
    if (ct_verdict_get(&nccl->verdict, NULL) == 0)
        leave_note(nccl);
    look_ms = ct_now_ms();
    nccl->look_ms = now_ms + PATIENCE * (look_ms - now_ms) > look_ms + interval_ms(nccl)
                        ? now_ms + PATIENCE * (look_ms - now_ms)
                        : look_ms + interval_ms(nccl);
}

/* ---- At the deadline ---------------------------------------------------------------------- */

static void nap(uint64_t ms)
{
    const struct timespec time = {.tv_nsec = (long)ms * 1000000L};

    (void)nanosleep(&time, NULL); /* a shorter sleep is fine */
}

/* Whether this member is the first to ask: the others wait for what it tells, for a while. */
static bool is_first(struct nccl *nccl)
{
    const uint64_t until_ms = ct_deadline_ms(NAMING_MS + NAMING_MS / 2);
    char key[CT_BOOTSTRAP_KEY_MAX], own[24], first[CT_NOTE_MAX];

    ct_nccl_name_key(nccl, key, "naming");
    (void)ct_format(own, sizeof own, "%d", nccl->rank);
    if (nccl->board.put_first(nccl->board.context, key, own, first) < 0)
        return false;
    if (strcmp(own, first) == 0)
        return true;
    do {
        nap(interval_ms(nccl));
        ct_nccl_read_reason(nccl);
    } while (ct_verdict_get(&nccl->verdict, NULL) == 0 && ct_now_ms() < until_ms);
    return false;
}

/* 1, 0: there is none, or negative. Another thread may be asking. */
static int read_late(struct nccl *nccl, int rank, struct ct_nccl_note *note,
                     uint64_t until_ms)
{
    char key[CT_BOOTSTRAP_KEY_MAX], text[CT_NOTE_MAX];
    int rc;

    ct_nccl_name_note(nccl, key, "late", (uint64_t)rank);
    while ((rc = nccl->board.read(nccl->board.context, key, text)) == -EAGAIN &&
           ct_now_ms() < until_ms)
        nap(1);
    return rc > 0 ? ct_nccl_parse_note(text, note) : rc;
}

/* Lists the members that have not come to the collective. False: that is not known. */
static bool list_missing(struct nccl *nccl, uint64_t number, char *names, size_t size)
{
    const uint64_t until_ms = ct_deadline_ms(NAMING_MS);
    struct ct_nccl_note theirs;
    int count = 0, rc = 0;

    names[0] = '\0';
    for (int i = 0; i < nccl->size && rc >= 0 && count <= NAMED_MAX; i++) {
        if (i == nccl->me)
            continue;
        rc = ct_now_ms() < until_ms ? read_late(nccl, nccl->ranks[i], &theirs, until_ms)
                                    : -ETIMEDOUT;
        if (rc < 0 || (rc > 0 && theirs.number >= number))
            continue;
        if (count++ < NAMED_MAX)
            (void)ct_append_item(names, size, ", ", "rank %d", nccl->ranks[i]);
        else
            (void)ct_append_item(names, size, ", ", "...");
    }
    return rc >= 0 && count > 0;
}

/* No member is done before all have come: of other calls one that is done leaves no note. */
static bool needs_all(const struct ct_call *call)
{
    return call->number > 0 &&
           (call->kind == CT_CALL_ALL_REDUCE || call->kind == CT_CALL_REDUCE_SCATTER ||
            call->kind == CT_CALL_ALL_GATHER || call->kind == CT_CALL_ALL_TO_ALL ||
            call->kind == CT_CALL_BARRIER || call->kind == CT_CALL_SPLIT);
}

void ct_nccl_name_missing(struct nccl *nccl, struct ctrun_error *why)
{
    char names[320], text[CT_CALL_TEXT_MAX];
    struct ct_call call;
    uint64_t began_ms;

    if (why->code != CTRUN_E_TIMEOUT || !nccl->board.read ||
        ct_verdict_get(&nccl->verdict, NULL) < 0 ||
        !find_pending(nccl, false, &call, &began_ms) || !needs_all(&call) ||
        !is_first(nccl) || !list_missing(nccl, call.number, names, sizeof names))
        return;
    ct_call_format(text, &call);
    (void)ct_fail(why, CTRUN_E_TIMEOUT, "nccl: %s: no answer in time from: %s", text,
                  names);
}
