/* SPDX-License-Identifier: Apache-2.0 */
/* Why a member has ended the group, for the others: the key "abort" of the group in the store holds
 * the first reason, as its code and its text. */
#include <limits.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

void ct_nccl_open_board(struct nccl *nccl, const struct ct_backend_setup *setup)
{
    (void)ct_format(nccl->key, sizeof nccl->key, "%s/%08x", setup->key, nccl->id_hash);
    if (setup->size > 1)
        nccl->board = setup->place->board;
}

void ct_nccl_name_key(const struct nccl *nccl, char key[CT_BOOTSTRAP_KEY_MAX],
                      const char *what)
{
    (void)ct_format(key, CT_BOOTSTRAP_KEY_MAX, "%s/%s", nccl->key, what); /* has room */
}

/* A note that no member has written ends the group, too. */
static void take_reason(struct nccl *nccl, char note[CT_NOTE_MAX])
{
    char *const blank = strchr(note, ' ');
    const char *text = blank ? blank + 1 : "";
    int64_t code;

    if (blank)
        *blank = '\0';
    if (!blank || ct_parse_i64(note, INT_MIN, -1, &code) < 0) {
        code = CTRUN_E_PROTOCOL;
        text =
            "nccl: the note in the store why a member has ended the group is damaged";
    }
    (void)ct_verdict_set(&nccl->verdict, (int)code, text);
}

/* Where others continue without a lost rank, each hears of the loss from its agent, and an error of
 * NCCL may be the loss: then calls wait for the agent, but not openings and splits. */
static bool is_published(const struct nccl *nccl, int code)
{
    if (nccl->losses.sees_ranks && code == CTRUN_E_PEER_LOST)
        return false;
    return !nccl->is_kept || nccl->is_splitting || code == CTRUN_E_ABORTED ||
           code == CTRUN_E_TIMEOUT || code == CTRUN_E_MISMATCH;
}

/* The code for the others. Where they may continue without this rank, its failure is an abort. */
static int code_for_others(const struct nccl *nccl, int code)
{
    return !nccl->losses.sees_ranks || code == CTRUN_E_TIMEOUT ||
                   code == CTRUN_E_MISMATCH
               ? code
               : CTRUN_E_ABORTED;
}

/* Of these two the text names the ranks. */
static bool has_rank(int code)
{
    return code == CTRUN_E_ABORTED || code == CTRUN_E_MISMATCH;
}

void ct_nccl_publish(struct nccl *nccl, int code, const char *text)
{
    char key[CT_BOOTSTRAP_KEY_MAX], own[CT_NOTE_MAX], note[CT_NOTE_MAX], rank[24] = "";
    int rc = -1;

    ct_nccl_name_key(nccl, key, "abort");
    if (!has_rank(code))
        (void)ct_format(rank, sizeof rank, "rank %d: ", nccl->rank);
    (void)ct_format(own, sizeof own, "%d %s%s", code_for_others(nccl, code), rank,
                    text);
    if (!nccl->board.read || ct_verdict_get(&nccl->verdict, NULL) < 0)
        rc = 0;
    else if (is_published(nccl, code) && !nccl->is_leaving)
        rc = nccl->board.put_first(nccl->board.context, key, own, note) == 0;
    else if (code != CTRUN_E_PEER_LOST) /* whose loss may be that of the store */
        rc = nccl->board.read(nccl->board.context, key, note);
    if (rc > 0 && strcmp(note, own) == 0)
        text = strchr(own, ' ') + 1;
    else if (rc > 0)
        take_reason(nccl, note);
    (void)ct_verdict_set(&nccl->verdict, code, text);
}

void ct_nccl_read_reason(struct nccl *nccl)
{
    char key[CT_BOOTSTRAP_KEY_MAX], note[CT_NOTE_MAX];

    ct_nccl_name_key(nccl, key, "abort");
    if (nccl->board.read(nccl->board.context, key, note) > 0)
        take_reason(nccl, note);
}
