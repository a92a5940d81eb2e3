/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch says: torchrun's options, up to its program. */
#include <ctype.h>
#include <string.h>

#include "launcher/migrate_launch.h"
#include "launcher/option_name.h"

/* --name, --name=value, -x: the name's bytes. Length 0: it is made of other things. */
static size_t name_of(const struct migrate_work *work, struct shell_range word,
                      const char **name, bool *has_value)
{
    const char *at = work->text + word.start;
    const char *end = work->text + word.end;
    const char *p;

    at += at[1] == '-' ? 2 : 1;
    for (p = at; p < end && (isalnum((unsigned char)*p) || *p == '-' || *p == '_'); p++)
        ;
    *name = at;
    *has_value = p < end && *p == '=';
    return p == end || *has_value ? (size_t)(p - at) : 0;
}

/* One option of torchrun at word *i, which moves to its last word. False: it is none. */
static bool read_option(const struct migrate_work *work,
                        const struct shell_range *words, size_t count, size_t *i,
                        struct migrate_launch *launch)
{
    const struct shell_range word = words[*i];
    const bool is_long = work->text[word.start + 1] == '-';
    struct migrate_given *given = &launch->given[launch->given_count];
    const char *name;
    bool has_value;
    size_t length = name_of(work, word, &name, &has_value);
    bool is_attached = false;

    if (length == 0 || launch->given_count == MIGRATE_OPTIONS_MAX)
        return false;
    if (!is_long && length > 1 && !has_value) { /* -r3 */
        is_attached = true;
        length = 1;
    }
    if (!is_long && length != 1)
        return false;
    given->id = option_name_find_torchrun(name, length, launch->is_old);
    if (given->id < 0 || option_table[given->id].kind == OPTION_KIND_STOP)
        return false;
    given->first = given->last = *i;
    given->value = (struct shell_range){0, 0};
    if (!option_table[given->id].value) {
        if (has_value || is_attached)
            return false;
    } else if (has_value || is_attached) {
        given->value = (struct shell_range){
            (size_t)(name - work->text) + length + has_value, word.end};
    } else {
        if (*i + 1 >= count || migrate_is_option(work, words[*i + 1]))
            return false;
        given->last = ++*i;
        given->value = words[*i];
    }
    launch->given_count++;
    return true;
}

/* The value of a variable that the script sets once; empty: it is not known. */
static struct shell_range value_of(const struct migrate_work *work,
                                   struct shell_range word)
{
    const struct shell_script *script = work->script;
    const struct shell_range none = {0, 0};
    struct shell_range found = none;
    size_t start = word.start;
    size_t end = word.end;

    while (start < end && strchr("\"${", work->text[start]))
        start++;
    while (end > start && strchr("\"}", work->text[end - 1]))
        end--;
    for (size_t i = 0; i < script->word_count; i++) {
        const struct shell_range other = script->words[i];
        const size_t length = migrate_assigned(work, other);

        if (length == 0 || length != end - start ||
            memcmp(work->text + other.start, work->text + start, length) != 0)
            continue;
        if (found.end)
            return none;
        found = (struct shell_range){other.start + length + 1, other.end};
    }
    return found;
}

/* A program that is written out, or in a variable that says so by its end or its one value. */
static bool is_program(const struct migrate_work *work, struct shell_range word)
{
    struct shell_range value;

    if (!migrate_is_dynamic(work, word) || migrate_ends(work, word, ".py"))
        return true;
    value = value_of(work, word);
    return value.end > value.start && migrate_ends(work, value, ".py") &&
           !memchr(work->text + value.start, ' ', value.end - value.start);
}

bool migrate_options_is_one_word(const struct migrate_work *work,
                                 struct shell_range python)
{
    const struct shell_range value = value_of(work, python);

    return !migrate_is_variable(work, python) || work->text[python.start] == '"' ||
           migrate_has(work, python, "/") ||
           (value.end > value.start && !migrate_is_dynamic(work, value) &&
            !memchr(work->text + value.start, ' ', value.end - value.start));
}

int migrate_options_read(const struct migrate_work *work,
                         const struct shell_range *words, size_t count,
                         struct migrate_launch *launch, size_t *bad)
{
    for (size_t i = launch->last + 1; i < count; i++) {
        if (migrate_is(work, words[i], "--"))
            launch->has_program = true;
        if (launch->has_program)
            break;
        if (!migrate_is_option(work, words[i])) {
            launch->has_program = is_program(work, words[i]);
            break;
        }
        if (!read_option(work, words, count, &i, launch)) {
            *bad = i;
            return 1;
        }
    }
    return 0;
}

const struct migrate_given *migrate_options_find(const struct migrate_launch *launch,
                                                 int id)
{
    for (int i = launch->given_count; i > 0; i--)
        if (launch->given[i - 1].id == id)
            return &launch->given[i - 1];
    return NULL;
}
