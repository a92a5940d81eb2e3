/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all members make the same collectives: NCCL hangs where they differ, or returns wrong
 * data. Members compare through notes in the store:
 *
 *     first/NUMBER   ahead of a collective that a member has not made before in this group, so that
 *                    a call that is made again and again costs one request. The first FIRSTS only,
 *                    for programs whose calls are never the same
 *     call/SLOT      of a collective that is late: of one member for all */
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    WORDS = sizeof(struct ct_nccl_note) / sizeof(uint64_t),
    SLOTS = 16, /* collectives that members wait for at the same time */
    FAILURES_MAX =
        3 /* then no call is compared ahead: it would wait for the store each time */
};

/* ---- Notes -------------------------------------------------------------------------------- */

struct ct_nccl_note ct_nccl_note_of(const struct nccl *nccl, const struct ct_call *call)
{
    return (struct ct_nccl_note){
        .rank = (uint64_t)nccl->rank,
        .number = call->number,
        .kind = call->kind,
        .dtype = call->dtype,
        .op = call->op,
        .peer = (uint64_t)call->peer,
        .count = call->kind == CT_CALL_ALL_GATHER_V ? call->parts : call->count};
}

void ct_nccl_format_note(char text[CT_NOTE_MAX], const struct ct_nccl_note *note)
{
    uint64_t words[WORDS];

    memcpy(words, note, sizeof words);
    text[0] = '\0';
    for (int i = 0; i < WORDS; i++)
        (void)ct_append_item(text, CT_NOTE_MAX, " ", "%llu",
                             (unsigned long long)words[i]);
}

bool ct_nccl_parse_note(const char *text, struct ct_nccl_note *note)
{
    uint64_t words[WORDS];

    for (int i = 0; i < WORDS; i++) {
        size_t length = 0;
        const char *field = ct_next_field(&text, ' ', &length);
        char word[24];

        if (!field || length >= sizeof word)
            return false;
        memcpy(word, field, length);
        word[length] = '\0';
        if (ct_parse_u64(word, 0, UINT64_MAX, &words[i]) < 0)
            return false;
    }
    memcpy(note, words, sizeof words);
    return true;
}

void ct_nccl_name_note(const struct nccl *nccl, char key[CT_BOOTSTRAP_KEY_MAX],
                       const char *kind, uint64_t number)
{
    char what[24];

    (void)ct_format(what, sizeof what, "%s/%llu", kind, (unsigned long long)number);
    ct_nccl_name_key(nccl, key, what);
}

/* ---- Comparing ---------------------------------------------------------------------------- */

static bool differs(const struct ct_nccl_note *a, const struct ct_nccl_note *b)
{
    return a->kind != b->kind || a->dtype != b->dtype || a->op != b->op ||
           a->peer != b->peer || a->count != b->count;
}

/* Ends the group if another member makes another call of the same number. */
static void judge(struct nccl *nccl, const struct ct_call *call,
                  const struct ct_nccl_note *theirs)
{
    const struct ct_nccl_note own = ct_nccl_note_of(nccl, call);
    struct ct_call ours = *call, other = *call;
    struct ctrun_error why;

    if (theirs->number != own.number || !differs(&own, theirs))
        return;
    ours.count = own.count;
    other.kind = (enum ct_call_kind)theirs->kind;
    other.dtype = (enum ctrun_dtype)theirs->dtype;
    other.op = (enum ctrun_op)theirs->op;
    other.peer = (int)theirs->peer;
    other.count = theirs->count;
    (void)ct_call_fail_mismatch(&ours, nccl->rank, &other, (int)theirs->rank, &why);
    ct_nccl_publish(nccl, why.code, why.text);
}

/* Where two leave their notes at the same time, one finds the other's when it looks again. */
void ct_nccl_compare_late(struct nccl *nccl, const struct ct_call *call)
{
    const struct ct_nccl_note own = ct_nccl_note_of(nccl, call);
    char key[CT_BOOTSTRAP_KEY_MAX], text[CT_NOTE_MAX];
    struct ct_nccl_note theirs;
    int rc;

    ct_nccl_name_note(nccl, key, "call", own.number % SLOTS);
    if ((rc = nccl->board.read(nccl->board.context, key, text)) < 0)
        return;
    if (rc > 0 && ct_nccl_parse_note(text, &theirs) && theirs.number >= own.number) {
        judge(nccl, call, &theirs);
        return;
    }
    ct_nccl_format_note(text, &own);
    (void)nccl->board.put(nccl->board.context, key, text);
}

/* Whether the call is to be compared: true once for each kind of call. */
static bool is_new(struct nccl *nccl, const struct ct_nccl_note *note)
{
    const uint64_t hash = ct_hash(&note->kind,
                                  sizeof *note - offsetof(struct ct_nccl_note, kind));

    for (int i = 0; i < nccl->first_count; i++)
        if (nccl->firsts[i] == hash)
            return false;
    if (nccl->first_count == CT_NCCL_FIRSTS)
        return false;
    nccl->firsts[nccl->first_count++] = hash;
    return true;
}

void ct_nccl_compare_first(struct nccl *nccl, const struct ct_call *call)
{
    const struct ct_nccl_note own = ct_nccl_note_of(nccl, call);
    char key[CT_BOOTSTRAP_KEY_MAX], text[CT_NOTE_MAX], first[CT_NOTE_MAX];
    struct ct_nccl_note theirs;

    if (!nccl->board.read || nccl->first_failures == FAILURES_MAX ||
        call->number == 0 || !is_new(nccl, &own))
        return;
    ct_nccl_name_note(nccl, key, "first", own.number);
    ct_nccl_format_note(text, &own);
    if (nccl->board.put_first(nccl->board.context, key, text, first) < 0) {
        nccl->first_count--; /* the next of this kind is compared */
        nccl->first_failures++;
    } else if (ct_nccl_parse_note(first, &theirs)) {
        judge(nccl, call, &theirs);
    }
}
