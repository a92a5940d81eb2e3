/* SPDX-License-Identifier: Apache-2.0 */
/* MASTER_ADDR and MASTER_PORT, which go when nobody reads them any more, and other variables that
 * the options used that went: told, and left. */
#include "launcher/migrate_private.h"

#include <ctype.h>

#include "worker_sdk/base/str.h"

enum {
    NAME_MAX_BYTES = 64
};

static bool is_name_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_removed(const struct text_edits *edits, size_t at)
{
    for (size_t i = 0; i < edits->count; i++)
        if (at >= edits->list[i].start && at < edits->list[i].end &&
            !*edits->list[i].text)
            return true;
    return false;
}

/* The next place of the whole name that stays and is no comment; the length when there is none. */
static size_t find_name(const struct migrate_work *work, const char *name,
                        size_t length, size_t from)
{
    for (size_t at = from; at + length <= work->length; at++)
        if (memcmp(work->text + at, name, length) == 0 &&
            (at == 0 || !is_name_byte(work->text[at - 1])) &&
            !is_name_byte(work->text[at + length]) &&
            !is_removed(&work->out->edits, at) &&
            !migrate_is_in(work->script->comments, work->script->comment_count, at))
            return at;
    return work->length;
}

/* ---- MASTER_ADDR and MASTER_PORT --------------------------------------------------------- */

static bool is_master(const struct migrate_work *work, struct shell_range word)
{
    return migrate_is(work, word, "MASTER_ADDR") ||
           migrate_is(work, word, "MASTER_PORT") ||
           migrate_begins(work, word, "MASTER_ADDR=") ||
           migrate_begins(work, word, "MASTER_PORT=");
}

/* Between the words nothing but blanks and lines that go on, and nothing else on these lines but
 * a comment. */
static bool owns_lines(const struct migrate_work *work, const struct shell_range *words,
                       size_t count, struct shell_range *lines)
{
    size_t start = words[0].start;
    size_t end = words[count - 1].end;

    for (size_t i = 1; i < count; i++)
        for (size_t at = words[i - 1].end; at < words[i].start; at++)
            if (!strchr(" \t\\\n", work->text[at]))
                return false;
    while (start > 0 && strchr(" \t", work->text[start - 1]))
        start--;
    while (end < work->length && strchr(" \t", work->text[end]))
        end++;
    if ((start > 0 && work->text[start - 1] != '\n') ||
        (start > 1 && work->text[start - 2] == '\\'))
        return false;
    if (end < work->length && work->text[end] == '#' && end > words[count - 1].end) {
        *lines = (struct shell_range){words[0].start, end}; /* the comment stays */
        return true;
    }
    *lines = (struct shell_range){start, end + (end < work->length)};
    return end == work->length || work->text[end] == '\n';
}

/* `export MASTER_ADDR=...`, by itself at the top. */
static bool is_setting(const struct migrate_work *work,
                       const struct shell_command *command, struct shell_range *lines)
{
    const struct shell_range *words = work->script->words + command->first;
    const size_t first = migrate_is(work, words[0], "export");

    if (command->depth > 0 || command->is_background || command->count == first)
        return false;
    for (size_t i = first; i < command->count; i++)
        if (!is_master(work, words[i]))
            return false;
    return owns_lines(work, words, command->count, lines);
}

/* A place that reads one of the names, outside of the settings themselves; 0: none. */
static int find_user(const struct migrate_work *work,
                     const struct shell_range *settings, size_t count)
{
    static const char *const names[] = {"MASTER_ADDR", "MASTER_PORT"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i]);

        for (size_t at = find_name(work, names[i], length, 0); at < work->length;
             at = find_name(work, names[i], length, at + 1))
            if (!migrate_is_in(settings, count, at))
                return shell_line(work->text, at);
    }
    return 0;
}

static int remove_settings(struct migrate_work *work,
                           const struct shell_range *settings, size_t count)
{
    const int user = count == 0         ? 0
                     : work->has_reader ? work->reader_line
                                        : find_user(work, settings, count);
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        size_t at = settings[i].start;

        while (strchr(" \t", work->text[at]))
            at++;
        if (user) {
            rc = migrate_note(work, MIGRATE_HINT, at, "MASTER_ADDR, MASTER_PORT",
                              "stay: line %d may need them; ctrun tells its workers "
                              "their own",
                              user);
            break;
        }
        rc = text_edits_add(&work->out->edits, settings[i].start, settings[i].end, "");
        if (rc == 0)
            rc = migrate_note(work, MIGRATE_CHANGED, at,
                              migrate_has(work, settings[i], "MASTER_ADDR")
                                  ? (migrate_has(work, settings[i], "MASTER_PORT=")
                                         ? "MASTER_ADDR, MASTER_PORT"
                                         : "MASTER_ADDR")
                                  : "MASTER_PORT",
                              "goes: ctrun tells the workers where they meet");
    }
    return rc;
}

/* ---- What nothing reads any more --------------------------------------------------------- */

static bool is_noted(const struct migrate_work *work, const char *what)
{
    for (size_t i = 0; i < work->out->note_count; i++)
        if (work->out->notes[i].kind == MIGRATE_HINT &&
            strcmp(work->out->notes[i].what, what) == 0)
            return true;
    return false;
}

static int tell_unused(struct migrate_work *work, const char *name, size_t length)
{
    const struct shell_script *script = work->script;
    char what[NAME_MAX_BYTES];

    if (length >= sizeof what)
        return 0;
    for (size_t i = 0; i < script->word_count; i++) {
        const struct shell_range word = script->words[i];
        size_t at;

        if (migrate_assigned(work, word) != length ||
            memcmp(work->text + word.start, name, length) != 0 ||
            is_removed(&work->out->edits, word.start))
            continue;
        at = find_name(work, name, length, 0);
        if (at != word.start || find_name(work, name, length, at + 1) < work->length)
            return 0; /* something else names it */
        (void)ct_format(what, sizeof what, "%.*s", (int)length, name);
        if (is_noted(work, what))
            return 0;
        return migrate_note(work, MIGRATE_HINT, word.start, what,
                            "nothing in this script reads it any more; it can go");
    }
    return 0;
}

/* Each $NAME and ${NAME} in what went. */
static int tell_all_unused(struct migrate_work *work)
{
    const size_t count = work->out->edits.count;
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct text_edit *edit = &work->out->edits.list[i];

        if (*edit->text)
            continue;
        for (size_t at = edit->start; at < edit->end && rc == 0; at++) {
            size_t end;

            if (work->text[at] != '$')
                continue;
            at += work->text[at + 1] == '{' ? 2 : 1;
            for (end = at; end < edit->end && is_name_byte(work->text[end]);)
                end++;
            if (end > at)
                rc = tell_unused(work, work->text + at, end - at);
        }
    }
    return rc;
}

int migrate_names(struct migrate_work *work)
{
    enum {
        SETTINGS_MAX = 16
    };
    const struct shell_script *script = work->script;
    struct shell_range settings[SETTINGS_MAX];
    size_t count = 0;
    int rc = 0;

    for (size_t i = 0; i < script->command_count && count < SETTINGS_MAX; i++)
        count += is_setting(work, &script->commands[i], &settings[count]);
    if (work->out->launches > 0 && !work->has_kept && !migrate_has_left(work->out))
        rc = remove_settings(work, settings, count);
    return rc < 0 ? rc : tell_all_unused(work);
}
