/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank leaves a mark, counts itself, and waits for the last one, who opens the door. The
 * marks are only read when somebody did not come. */
#include "worker_sdk/client/barrier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    NAME_MAX_BYTES = 512,
    NAMED_RANKS = 16, /* in the message */
};

static int set_flag(struct ct_store *store, const char *name, const char *suffix,
                    struct ctrun_error *err)
{
    char key[NAME_MAX_BYTES];

    if (ct_format(key, sizeof key, "%s/%s", name, suffix) < 0)
        return ct_fail(err, -ENAMETOOLONG, "barrier '%.40s...': the name is too long",
                       name);
    return ct_store_set(store, key, "1", 1, err);
}

/* Which marks are there: one flag per rank, or NULL. Caller frees. */
static bool *look_for_marks(struct ct_store *store, const char *name, int size)
{
    size_t count = (size_t)size;
    char(*texts)[NAME_MAX_BYTES] = ct_zalloc_array(count, sizeof *texts);
    const char **keys = ct_zalloc_array(count, sizeof *keys);
    bool *present = ct_zalloc_array(count, sizeof *present);

    if (texts && keys && present) {
        for (size_t i = 0; i < count; i++) {
            (void)ct_format(texts[i], sizeof *texts, "%s/%zu", name,
                            i); /* fitted before */
            keys[i] = texts[i];
        }
        if (ct_store_check_each(store, keys, count, present, NULL) < 0) {
            free(present);
            present = NULL;
        }
    }
    free(texts);
    free(keys);
    return present;
}

/* "rank 3 has", "ranks 1, 2, 5 and 9 more have". */
static void format_missing(char *text, size_t text_size, const bool *present, int size)
{
    char list[NAMED_RANKS * 13] = "";
    int missing = 0;

    for (int rank = 0; rank < size; rank++) {
        size_t length = strlen(list);

        if (present[rank] || missing++ >= NAMED_RANKS)
            continue;
        (void)ct_format(list + length, sizeof list - length, "%s%d", length ? ", " : "",
                        rank);
    }
    if (missing > NAMED_RANKS)
        (void)ct_format(text, text_size, "ranks %s and %d more have", list,
                        missing - NAMED_RANKS);
    else
        (void)ct_format(text, text_size, "%s %s %s", missing == 1 ? "rank" : "ranks",
                        list, missing == 1 ? "has" : "have");
}

static int explain(struct ct_store *store, const char *name, int size,
                   uint64_t timeout_ms, struct ctrun_error *err)
{
    char missing[NAMED_RANKS * 13 + 64] = "somebody has";
    bool *present = look_for_marks(store, name, size);

    if (present)
        format_missing(missing, sizeof missing, present, size);
    free(present);
    return ct_fail(err, CTRUN_E_TIMEOUT,
                   "barrier '%s': %s not come within %.1f s (of %d ranks)", name,
                   missing, (double)timeout_ms / 1e3, size);
}

int ct_store_barrier(struct ct_store *store, const char *name, int rank, int size,
                     uint64_t timeout_ms, struct ctrun_error *err)
{
    char number[16];
    char count[NAME_MAX_BYTES];
    char open[NAME_MAX_BYTES];
    const char *door = open;
    int64_t arrived;
    int rc;

    (void)ct_format(number, sizeof number, "%d", rank);
    if (ct_format(open, sizeof open, "%s/open", name) < 0 ||
        ct_format(count, sizeof count, "%s/count", name) < 0)
        return ct_fail(err, -ENAMETOOLONG, "barrier '%.40s...': the name is too long",
                       name);
    if ((rc = set_flag(store, name, number, err)) < 0 ||
        (rc = ct_store_add(store, count, 1, &arrived, err)) < 0)
        return rc;
    if (arrived >= size)
        return set_flag(store, name, "open", err);
    rc = ct_store_wait(store, &door, 1, timeout_ms, err);
    return rc == CTRUN_E_TIMEOUT ? explain(store, name, size, timeout_ms, err) : rc;
}
