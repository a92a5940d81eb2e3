/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as a script. What is changed is still a script whose quotes match, no two
 * changes overlap, and there is a diff exactly where there is a change. */
#include <errno.h>
#include <stdlib.h>

#include "launcher/migrate.h"
#include "worker_sdk/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    OUT_MAX_BYTES = 4 << 20
};

static void check(const struct migrate *migrate, const char *text, size_t length)
{
    struct migrate again = {0};
    struct ct_buf after;
    struct ct_buf diff;

    ct_buf_init(&after, OUT_MAX_BYTES);
    ct_buf_init(&diff, OUT_MAX_BYTES);
    if (text_edits_apply(&migrate->edits, text, 0, length, &after) == 0 &&
        text_edits_diff(&migrate->edits, "f", text, length, &diff) == 0 &&
        ct_buf_append(&after, "", 1) == 0) {
        const char *fresh = (const char *)ct_buf_data(&after);
        const size_t fresh_length = ct_buf_length(&after) - 1;
        const int is_same = fresh_length == length && memcmp(fresh, text, length) == 0;

        if (is_same != (ct_buf_length(&diff) == 0) ||
            migrate_read(&again, fresh, fresh_length, NULL) == -EINVAL)
            abort();
        migrate_deinit(&again);
    }
    ct_buf_deinit(&after);
    ct_buf_deinit(&diff);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    struct migrate migrate = {0};
    struct ctrun_error err = {0};
    int rc;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    rc = migrate_read(&migrate, text, size, &err);
    if (rc == 0)
        check(&migrate, text, size);
    else if (rc == -EINVAL && !*err.text)
        abort(); /* changes that overlap */
    migrate_deinit(&migrate);
    free(text);
    return 0;
}
