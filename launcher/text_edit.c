/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/text_edit.h"

#include <errno.h>
#include <stdbool.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    CONTEXT = 3
};

/* Whole lines that become others. */
struct block {
    size_t first; /* line, from 0 */
    size_t count;
    size_t at; /* of the new ones, in the diff's buffer of new text */
    size_t length;
    size_t new_count;
};

struct diff {
    const char *text;
    size_t length;
    size_t *starts; /* of each line, and the end; owned */
    size_t line_count;
    struct block *blocks; /* owned */
    size_t block_count;
    struct ct_buf fresh;
};

int text_edits_add(struct text_edits *edits, size_t start, size_t end, const char *text)
{
    char *copy;

    if (edits->count == TEXT_EDITS_MAX)
        return -E2BIG;
    if (edits->count == edits->room) {
        const size_t room = edits->room ? 2 * edits->room : 16;
        struct text_edit *larger = ct_realloc_array(edits->list, room, sizeof *larger);

        if (!larger)
            return -ENOMEM;
        edits->list = larger;
        edits->room = room;
    }
    if (!(copy = ct_strdup(text)))
        return -ENOMEM;
    edits->list[edits->count++] = (struct text_edit){start, end, copy};
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct text_edit *x = a;
    const struct text_edit *y = b;

    return x->start != y->start ? (x->start < y->start ? -1 : 1)
                                : (x->end > y->end) - (x->end < y->end);
}

int text_edits_sort(struct text_edits *edits)
{
    if (edits->count)
        qsort(edits->list, edits->count, sizeof *edits->list, compare);
    for (size_t i = 1; i < edits->count; i++)
        if (edits->list[i].start < edits->list[i - 1].end)
            return -EINVAL;
    return 0;
}

void text_edits_deinit(struct text_edits *edits)
{
    for (size_t i = 0; i < edits->count; i++)
        free(edits->list[i].text);
    free(edits->list);
    *edits = (struct text_edits){0};
}

int text_edits_apply(const struct text_edits *edits, const char *text, size_t start,
                     size_t end, struct ct_buf *out)
{
    int rc = 0;

    for (size_t i = 0; i < edits->count && rc == 0; i++) {
        const struct text_edit *edit = &edits->list[i];

        if (edit->start < start || edit->start >= end)
            continue;
        if ((rc = ct_buf_append(out, text + start, edit->start - start)) == 0)
            rc = ct_buf_append(out, edit->text, strlen(edit->text));
        start = edit->end;
    }
    return rc < 0 ? rc : ct_buf_append(out, text + start, end - start);
}

/* ---- The diff ---------------------------------------------------------------------------- */

static int find_lines(struct diff *diff)
{
    size_t count = 0;

    for (size_t i = 0; i < diff->length; i++)
        count += diff->text[i] == '\n';
    if (diff->length > 0 && diff->text[diff->length - 1] != '\n')
        count++;
    if (!(diff->starts = ct_zalloc_array(count + 1, sizeof *diff->starts)))
        return -ENOMEM;
    for (size_t i = 0; i < diff->length; i++)
        if (i == 0 || diff->text[i - 1] == '\n')
            diff->starts[diff->line_count++] = i;
    diff->starts[diff->line_count] = diff->length;
    return 0;
}

static size_t line_at(const struct diff *diff, size_t at)
{
    size_t low = 0;
    size_t high = diff->line_count;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (diff->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static size_t count_lines(const char *text, size_t length)
{
    size_t count = length > 0 && text[length - 1] != '\n';

    for (size_t i = 0; i < length; i++)
        count += text[i] == '\n';
    return count;
}

static size_t line_length(const char *text, size_t length)
{
    const char *newline = memchr(text, '\n', length);

    return newline ? (size_t)(newline - text) + 1 : length;
}

/* The last line's beginning. */
static size_t last_line(const char *text, size_t length)
{
    size_t at = length - 1;

    while (at > 0 && text[at - 1] != '\n')
        at--;
    return at;
}

/* Takes lines off both ends that are the same before and after. */
static void trim(const struct diff *diff, struct block *block)
{
    const char *fresh = (const char *)ct_buf_data(&diff->fresh);

    while (block->count > 0 && block->new_count > 0) {
        const char *old = diff->text + diff->starts[block->first];
        const size_t length = diff->starts[block->first + 1] -
                              diff->starts[block->first];

        if (line_length(fresh + block->at, block->length) != length ||
            memcmp(old, fresh + block->at, length) != 0)
            break;
        block->first++;
        block->count--;
        block->at += length;
        block->length -= length;
        block->new_count--;
    }
    while (block->count > 0 && block->new_count > 0) {
        const size_t line = block->first + block->count - 1;
        const size_t length = diff->starts[line + 1] - diff->starts[line];
        const size_t at = last_line(fresh + block->at, block->length);

        if (block->length - at != length || memcmp(diff->text + diff->starts[line],
                                                   fresh + block->at + at, length) != 0)
            break;
        block->count--;
        block->length = at;
        block->new_count--;
    }
}

/* Edits that share a line are one block. */
static int find_blocks(struct diff *diff, const struct text_edits *edits)
{
    int rc = 0;

    if (!(diff->blocks = ct_zalloc_array(edits->count + 1, sizeof *diff->blocks)))
        return -ENOMEM;
    for (size_t i = 0; i < edits->count && rc == 0;) {
        struct block *block = &diff->blocks[diff->block_count];
        size_t last;

        block->first = last = line_at(diff, edits->list[i].start);
        for (; i < edits->count && line_at(diff, edits->list[i].start) <= last; i++) {
            const size_t end = edits->list[i].end;
            const size_t line = line_at(diff,
                                        end > edits->list[i].start ? end - 1 : end);

            last = line > last ? line : last;
        }
        block->count = last + 1 - block->first;
        block->at = ct_buf_length(&diff->fresh);
        rc = text_edits_apply(edits, diff->text, diff->starts[block->first],
                              diff->starts[last + 1], &diff->fresh);
        block->length = ct_buf_length(&diff->fresh) - block->at;
        block->new_count = count_lines(
            (const char *)ct_buf_data(&diff->fresh) + block->at, block->length);
        trim(diff, block);
        diff->block_count += block->count + block->new_count > 0;
    }
    return rc;
}

static int print_lines(struct ct_buf *out, char sign, const char *text, size_t length)
{
    int rc = 0;

    for (size_t at = 0; at < length && rc == 0;) {
        const size_t n = line_length(text + at, length - at);

        if ((rc = ct_buf_append(out, &sign, 1)) == 0)
            rc = ct_buf_append(out, text + at, n);
        at += n;
        if (rc == 0 && text[at - 1] != '\n')
            rc = ct_buf_printf(out, "\n\\ No newline at end of file\n");
    }
    return rc;
}

static int print_old(const struct diff *diff, struct ct_buf *out, char sign,
                     size_t first, size_t end)
{
    return print_lines(out, sign, diff->text + diff->starts[first],
                       diff->starts[end] - diff->starts[first]);
}

/* A hunk of the blocks [from, to), and the lines around them. */
static int print_hunk(const struct diff *diff, struct ct_buf *out, size_t from,
                      size_t to, size_t *shift)
{
    const struct block *last = &diff->blocks[to - 1];
    const size_t begin = diff->blocks[from].first > CONTEXT
                             ? diff->blocks[from].first - CONTEXT
                             : 0;
    const size_t rest = diff->line_count - last->first - last->count;
    const size_t end = last->first + last->count + (rest < CONTEXT ? rest : CONTEXT);
    size_t new_count = end - begin;
    size_t at = begin;
    int rc;

    for (size_t i = from; i < to; i++)
        new_count = new_count + diff->blocks[i].new_count - diff->blocks[i].count;
    rc = ct_buf_printf(out, "@@ -%zu,%zu +%zu,%zu @@\n", begin + (end > begin),
                       end - begin, begin + *shift + (new_count > 0), new_count);
    for (size_t i = from; i < to && rc == 0; i++) {
        const struct block *block = &diff->blocks[i];

        if ((rc = print_old(diff, out, ' ', at, block->first)) == 0 &&
            (rc = print_old(diff, out, '-', block->first,
                            block->first + block->count)) == 0)
            rc = print_lines(out, '+',
                             (const char *)ct_buf_data(&diff->fresh) + block->at,
                             block->length);
        at = block->first + block->count;
    }
    *shift += new_count - (end - begin); /* modulo 2^64: may be less */
    return rc < 0 ? rc : print_old(diff, out, ' ', at, end);
}

static int print_hunks(const struct diff *diff, struct ct_buf *out)
{
    size_t shift = 0;
    int rc = 0;

    for (size_t from = 0; from < diff->block_count && rc == 0;) {
        size_t to = from + 1;

        while (to < diff->block_count &&
               diff->blocks[to].first -
                       (diff->blocks[to - 1].first + diff->blocks[to - 1].count) <=
                   2 * CONTEXT)
            to++;
        rc = print_hunk(diff, out, from, to, &shift);
        from = to;
    }
    return rc;
}

int text_edits_diff(const struct text_edits *edits, const char *name, const char *text,
                    size_t length, struct ct_buf *out)
{
    struct diff diff = {.text = text, .length = length};
    int rc;

    ct_buf_init(&diff.fresh, out->max);
    rc = find_lines(&diff);
    if (rc == 0)
        rc = find_blocks(&diff, edits);
    if (rc == 0 && diff.block_count > 0 &&
        (rc = ct_buf_printf(out, "--- %s\n+++ %s\n", name, name)) == 0)
        rc = print_hunks(&diff, out);
    ct_buf_deinit(&diff.fresh);
    free(diff.blocks);
    free(diff.starts);
    return rc;
}
