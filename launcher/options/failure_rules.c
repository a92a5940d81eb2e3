/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/failure_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options/config_file.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/whole_file.h"

enum {
    WORDS_MIN_BYTES = 4, /* a shorter text would match in every log */
    VALUE_MAX_BYTES = 300
};

/* Values are printed beside other facts of a failure, so their length is limited. */
static int check_value(const struct config_file_entry *entry, struct ctrun_error *err)
{
    const size_t length = strlen(entry->value);
    const size_t least = strcmp(entry->name, "words") == 0 ? WORDS_MIN_BYTES : 1;

    if (length >= least && length <= VALUE_MAX_BYTES)
        return 0;
    return ct_fail(err, CTRUN_E_USAGE, "%s has %zu bytes; %zu to %d are possible",
                   entry->name, length, least, VALUE_MAX_BYTES);
}

/* The last rule must be complete before the next one begins. */
static int check_last(const struct failure_rules *rules, struct ctrun_error *err)
{
    return rules->count == 0 || rules->list[rules->count - 1].likely
               ? 0
               : ct_fail(err, CTRUN_E_USAGE, "the rule before has no `likely`");
}

static int begin_rule(struct failure_rules *rules, const char *words,
                      struct ctrun_error *err)
{
    const int rc = check_last(rules, err);

    if (rc < 0)
        return rc;
    if (rules->count == FAILURE_RULES_MAX)
        return ct_fail(err, CTRUN_E_USAGE, "more than %d rules", FAILURE_RULES_MAX);
    rules->list[rules->count++] = (struct failure_rule){.words = words};
    return 0;
}

static int take_kind(struct failure_rule *rule, const char *value,
                     struct ctrun_error *err)
{
    if (strcmp(value, "hardware") != 0)
        return ct_fail(err, CTRUN_E_USAGE, "kind = \"%.40s\": want hardware", value);
    if (rule->is_hardware)
        return ct_fail(err, CTRUN_E_USAGE, "`kind` is given twice in a rule");
    rule->is_hardware = true;
    return 0;
}

static int take(struct failure_rules *rules, const struct config_file_entry *entry,
                struct ctrun_error *err)
{
    const int rc = check_value(entry, err);
    struct failure_rule *rule;
    const char **field;
    bool is_kind;

    if (rc < 0)
        return rc;
    if (strcmp(entry->name, "words") == 0)
        return begin_rule(rules, entry->value, err);
    is_kind = strcmp(entry->name, "kind") == 0;
    if (!is_kind && strcmp(entry->name, "likely") != 0 &&
        strcmp(entry->name, "do") != 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "`%.40s` is not a name here: want words, likely, do or kind",
                       entry->name);
    if (rules->count == 0)
        return ct_fail(err, CTRUN_E_USAGE, "`%s` comes before the first `words`",
                       entry->name);
    rule = &rules->list[rules->count - 1];
    if (is_kind)
        return take_kind(rule, entry->value, err);
    field = *entry->name == 'l' ? &rule->likely : &rule->remedy;
    if (*field)
        return ct_fail(err, CTRUN_E_USAGE, "`%s` is given twice in a rule",
                       entry->name);
    *field = entry->value;
    return 0;
}

int failure_rules_parse(struct failure_rules *out, char *text, size_t length,
                        const char *name, struct ctrun_error *err)
{
    struct config_file file;
    struct config_file_entry entry;
    int rc;

    *out = (struct failure_rules){.text = text};
    ct_make_plain(text, true);
    config_file_init(&file, text, length);
    while ((rc = config_file_next(&file, &entry, err)) > 0 &&
           (rc = take(out, &entry, err)) == 0)
        ;
    if (rc == 0)
        rc = check_last(out, err);
    if (rc == 0)
        return 0;
    failure_rules_deinit(out);
    ct_wrap(err, "%.300s:%d", name, file.line);
    return CTRUN_E_USAGE;
}

int failure_rules_read(struct failure_rules *out, const char *path,
                       struct ctrun_error *err)
{
    char *text;
    size_t length;
    const int rc = ct_whole_file_read(path, FAILURE_RULES_FILE_MAX_BYTES, &text,
                                      &length, NULL);

    *out = (struct failure_rules){0};
    if (rc < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--failure-rules=%.300s: %s", path,
                       rc == -EBADMSG ? "it is no regular file" : strerror(-rc));
    return failure_rules_parse(out, text, length, path, err);
}

void failure_rules_deinit(struct failure_rules *rules)
{
    free(rules->text);
    *rules = (struct failure_rules){0};
}
