/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/migrate.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>

#include "launcher/migrate_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

/* ---- Notes ------------------------------------------------------------------------------- */

int migrate_note(struct migrate_work *work, enum migrate_kind kind, size_t at,
                 const char *what, const char *why, ...)
{
    struct migrate *out = work->out;
    struct migrate_note *note;
    va_list args;

    if (out->note_count == MIGRATE_NOTES_MAX)
        return -E2BIG;
    if (out->note_count == out->note_room) {
        const size_t room = out->note_room ? 2 * out->note_room : 16;

        if (!(note = ct_realloc_array(out->notes, room, sizeof *note)))
            return -ENOMEM;
        out->notes = note;
        out->note_room = room;
    }
    note = &out->notes[out->note_count++];
    note->kind = kind;
    note->line = shell_line(work->text, at);
    (void)ct_copy(note->what, sizeof note->what, what);
    va_start(args, why);
    (void)vsnprintf(note->why, sizeof note->why, why, args); /* cut off is fine */
    va_end(args);
    return 0;
}

bool migrate_has_left(const struct migrate *migrate)
{
    for (size_t i = 0; i < migrate->note_count; i++)
        if (migrate->notes[i].kind == MIGRATE_LEFT)
            return true;
    return false;
}

/* ---- Mentions ---------------------------------------------------------------------------- */

bool migrate_mentions_torchrun(const struct migrate_work *work,
                               struct shell_range range, size_t *at)
{
    static const char *const names[] = {"torchrun", "torch.distributed.run",
                                        "torch.distributed.launch"};

    for (*at = range.start; *at < range.end; ++*at)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const size_t length = strlen(names[i]);
            const char *text = work->text + *at;

            if (*at + length <= range.end && memcmp(text, names[i], length) == 0 &&
                (*at == 0 ||
                 (!isalnum((unsigned char)text[-1]) && !strchr("_-.", text[-1]))) &&
                (*at + length == work->length ||
                 (!isalnum((unsigned char)text[length]) &&
                  !strchr("_-.", text[length]))))
                return true;
        }
    return false;
}

bool migrate_is_in(const struct shell_range *list, size_t count, size_t at)
{
    for (size_t i = 0; i < count; i++)
        if (at >= list[i].start && at < list[i].end)
            return true;
    return false;
}

static bool is_told(const struct migrate_work *work, size_t at)
{
    const int line = shell_line(work->text, at);

    for (size_t i = 0; i < work->out->note_count; i++)
        if (work->out->notes[i].kind == MIGRATE_LEFT &&
            work->out->notes[i].line == line)
            return true;
    for (size_t i = 0; i < work->seen.count; i++)
        if (at >= work->seen.list[i].start && at < work->seen.list[i].end)
            return true;
    return migrate_is_in(work->script->comments, work->script->comment_count, at);
}

int migrate_mentions(struct migrate_work *work)
{
    size_t from = 0;
    size_t at;
    int rc = 0;

    while (rc == 0 && migrate_mentions_torchrun(
                          work, (struct shell_range){from, work->length}, &at)) {
        from = at + 1;
        if (!is_told(work, at))
            rc = migrate_note(work, MIGRATE_LEFT, at, "torchrun",
                              "is not understood here, and stays");
    }
    return rc;
}

/* ---- All of it --------------------------------------------------------------------------- */

static int compare_notes(const void *a, const void *b)
{
    const struct migrate_note *x = a;
    const struct migrate_note *y = b;

    return x->line != y->line ? (x->line > y->line) - (x->line < y->line)
                              : (x->kind > y->kind) - (x->kind < y->kind);
}

int migrate_read(struct migrate *out, const char *text, size_t length,
                 struct ctrun_error *err)
{
    struct shell_script script = {0};
    struct migrate_work work = {
        .out = out, .text = text, .length = length, .script = &script, .err = err};
    int rc;

    *out = (struct migrate){0};
    if (length > MIGRATE_MAX_BYTES)
        return ct_fail(err, -E2BIG, "longer than %d bytes", MIGRATE_MAX_BYTES);
    if ((rc = shell_script_read(&script, text, 0, length, err)) == 0 &&
        (rc = migrate_launches(&work, &script, (struct migrate_place){0})) == 0 &&
        (rc = migrate_mentions(&work)) == 0 && (rc = migrate_names(&work)) == 0)
        rc = text_edits_sort(&out->edits);
    else if (rc != -EINVAL)
        rc = ct_fail(err, rc, "%s", strerror(-rc));
    if (rc == 0 && out->note_count)
        qsort(out->notes, out->note_count, sizeof *out->notes, compare_notes);
    text_edits_deinit(&work.seen);
    shell_script_deinit(&script);
    return rc;
}

void migrate_deinit(struct migrate *migrate)
{
    text_edits_deinit(&migrate->edits);
    free(migrate->notes);
    *migrate = (struct migrate){0};
}
