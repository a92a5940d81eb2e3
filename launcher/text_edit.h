/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to a text by their places, the text they lead to, and both as a unified diff. Pure. */
#ifndef LAUNCHER_TEXT_EDIT_H
#define LAUNCHER_TEXT_EDIT_H

#include <stddef.h>

#include "worker_sdk/base/buf.h"

enum {
    TEXT_EDITS_MAX = 65536
};

struct text_edit {
    size_t start; /* text[start..end), at least a byte of it, becomes `text` */
    size_t end;
    char *text; /* owned */
};

struct text_edits {
    struct text_edit *list; /* owned; in any order until text_edits_sort() */
    size_t count;
    size_t room;
};

/* 0, -ENOMEM, -E2BIG. */
int text_edits_add(struct text_edits *edits, size_t start, size_t end,
                   const char *text);
/* Puts them in their order. 0, or -EINVAL when two overlap. */
int text_edits_sort(struct text_edits *edits);
void text_edits_deinit(struct text_edits *edits);

/* Appends the changed text[start..end); edits are sorted, none goes over a border. 0 or a negative
 * errno. */
int text_edits_apply(const struct text_edits *edits, const char *text, size_t start,
                     size_t end, struct ct_buf *out);
/* Appends the diff, nothing when nothing changes. 0 or a negative errno. */
int text_edits_diff(const struct text_edits *edits, const char *name, const char *text,
                    size_t length, struct ct_buf *out);

#endif
