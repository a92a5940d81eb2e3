/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/option.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/nearest.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

enum {
    NAME_MAX_BYTES = 64,
    MATCHES_MAX = 2 * OPTION_COUNT
};

/* One spelling of one option. */
struct match {
    enum option_id id;
    bool has_underscores;
};

struct parser {
    struct options *out;
    char **argv;
    int argc;
    int at;
    struct ctrun_error *err;
};

int option_parse_int(const char *text, int64_t *out)
{
    char digits[24];
    size_t length = strlen(text);

    text = ct_trim(text, &length);
    if (length >= sizeof digits)
        return -ERANGE;
    memcpy(digits, text, length);
    digits[length] = '\0';
    return ct_parse_i64(digits, INT64_MIN, INT64_MAX, out);
}

static int parse_float(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    while (isspace((unsigned char)*end))
        end++;
    return end == text || *end ? -EINVAL : 0;
}

/* ---- Names --------------------------------------------------------------------------- */

static void spell(char *dst, const char *name, bool with_underscores)
{
    (void)ct_copy(dst, NAME_MAX_BYTES, name); /* table names are shorter */
    for (; with_underscores && *dst; dst++)
        if (*dst == '-')
            *dst = '_';
}

static bool is_known(const struct options *options, int id)
{
    return options->is_launch || !option_table[id].is_launch_only;
}

/* Those that torchrun does not have. */
static bool is_own(enum option_id id)
{
    return ct_starts_with(option_table[id].help, "ctrun: ");
}

/* An abbreviation that means one of torchrun's options means it here: --print-c is
 * --print-completion, although ctrun has --print-config. Own options only count where none of
 * torchrun's begins so. */
static int prefer_torchrun(struct match *matches, int count)
{
    int kept = 0;

    for (int i = 0; i < count; i++)
        if (!is_own(matches[i].id))
            matches[kept++] = matches[i];
    return kept ? kept : count;
}

/* All spellings that begin with prefix[length], or only the exact one when there is
 * one. */
static int find_long(const struct options *options, const char *prefix, size_t length,
                     struct match *matches)
{
    char spelling[NAME_MAX_BYTES];
    int count = 0;

    for (int id = 0; id < OPTION_COUNT; id++) {
        int spellings = strchr(option_table[id].name, '-') ? 2 : 1;

        for (int i = 0; i < spellings && is_known(options, id); i++) {
            spell(spelling, option_table[id].name, i == 1);
            if (strncmp(spelling, prefix, length) != 0)
                continue;
            matches[count] = (struct match){(enum option_id)id, i == 1};
            if (strlen(spelling) == length) {
                matches[0] = matches[count];
                return 1;
            }
            count++;
        }
    }
    return prefer_torchrun(matches, count);
}

static int find_letter(char letter)
{
    for (int id = 0; id < OPTION_COUNT; id++)
        if (option_table[id].letter && option_table[id].letter == letter)
            return id;
    return -1;
}

static const char *nearest_name(const struct options *options, const char *typed)
{
    const char *nearest = NULL;
    char wanted[NAME_MAX_BYTES];
    size_t best;

    if (ct_copy(wanted, sizeof wanted, typed) < 0)
        return NULL;
    wanted[strcspn(wanted, "=")] = '\0';
    for (char *p = wanted; *p; p++)
        *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
    best = strlen(wanted) / 3 + 2; /* further away is a guess, not a help */
    for (int id = 0; id < OPTION_COUNT; id++) {
        size_t d = nearest_distance(wanted, option_table[id].name);

        if (d < best && is_known(options, id)) {
            best = d;
            nearest = option_table[id].name;
        }
    }
    return nearest;
}

static int fail_unknown(struct parser *parser, const char *typed)
{
    const char *name = nearest_name(parser->out, typed + strspn(typed, "-"));

    if (strcmp(typed, "--use-env") == 0 || strcmp(typed, "--use_env") == 0)
        return ct_fail(parser->err, CTRUN_E_USAGE,
                       "unrecognized arguments: %s; leave it out: workers always find "
                       "LOCAL_RANK in the environment; or call ctrun-launch",
                       typed);
    if (!name)
        return ct_fail(parser->err, CTRUN_E_USAGE, "unrecognized arguments: %s", typed);
    return ct_fail(parser->err, CTRUN_E_USAGE,
                   "unrecognized arguments: %s; did you mean --%s?", typed, name);
}

static int fail_ambiguous(struct parser *parser, const char *typed,
                          const struct match *matches, int count)
{
    char list[512] = "";
    char spelling[NAME_MAX_BYTES];

    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);

        spell(spelling, option_table[matches[i].id].name, matches[i].has_underscores);
        (void)ct_format(list + used, sizeof list - used, "%s--%s", i ? ", " : "",
                        spelling);
    }
    return ct_fail(parser->err, CTRUN_E_USAGE, "ambiguous option: %s could match %s",
                   typed, list);
}

/* ---- Values -------------------------------------------------------------------------- */

static void describe_option(char *dst, size_t size, enum option_id id)
{
    const struct option *option = &option_table[id];
    char underscored[NAME_MAX_BYTES];

    spell(underscored, option->name, true);
    if (option->letter)
        (void)ct_format(dst, size, "-%c/--%s", option->letter, option->name);
    else if (strchr(option->name, '-'))
        (void)ct_format(dst, size, "--%s/--%s", option->name, underscored);
    else
        (void)ct_format(dst, size, "--%s", option->name);
}

static bool is_choice(const char *choices, const char *text)
{
    size_t length;

    for (const char *word; (word = ct_next_field(&choices, ' ', &length));)
        if (strlen(text) == length && strncmp(word, text, length) == 0)
            return true;
    return false;
}

/* argparse converts values from the environment like typed ones, but checks no choices. */
static int set_value(struct options *out, enum option_id id, const char *text,
                     enum option_source source, struct ctrun_error *err)
{
    const struct option *option = &option_table[id];
    struct option_value *value = &out->values[id];
    char who[2 * NAME_MAX_BYTES + 8];

    describe_option(who, sizeof who, id);
    value->text = text;
    value->source = source;
    if (option->kind == OPTION_KIND_INT && option_parse_int(text, &value->integer) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "argument %s: invalid int value: '%s'%s%s",
                       who, text, source == OPTION_FROM_ENV ? " from " : "",
                       source == OPTION_FROM_ENV ? option->env : "");
    if (option->kind == OPTION_KIND_FLOAT && parse_float(text, &value->number) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "argument %s: invalid float value: '%s'%s%s",
                       who, text, source == OPTION_FROM_ENV ? " from " : "",
                       source == OPTION_FROM_ENV ? option->env : "");
    if (option->choices && source == OPTION_TYPED && !is_choice(option->choices, text))
        return ct_fail(err, CTRUN_E_USAGE,
                       "argument %s: invalid choice: '%s' (choose from: %s)", who, text,
                       option->choices);
    return 0;
}

static int set_from_environment(struct options *out, enum option_id id,
                                const char *text, struct ctrun_error *err)
{
    int64_t number;

    if (option_table[id].kind != OPTION_KIND_FLAG)
        return set_value(out, id, text, OPTION_FROM_ENV, err);
    if (option_parse_int(text, &number) < 0)
        return ct_fail(err, -EINVAL, "%s=%s: a flag wants 1 or 0 here",
                       option_table[id].env, text);
    out->values[id] = (struct option_value){OPTION_FROM_ENV, text, number != 0, number,
                                            0};
    return 0;
}

static int set_defaults(struct options *out, char *const *env, struct ctrun_error *err)
{
    *out = (struct options){.action = OPTIONS_RUN};
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];
        const char *text = option->env ? ct_env_find(env, option->env) : NULL;
        int rc = 0;

        if (text)
            rc = set_from_environment(out, (enum option_id)id, text, err);
        else if (option->fallback)
            rc = set_value(out, (enum option_id)id, option->fallback,
                           OPTION_FROM_DEFAULT, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- Words --------------------------------------------------------------------------- */

static bool is_negative_number(const char *text)
{
    size_t digits = strspn(text + 1, "0123456789");

    if (text[0] != '-')
        return false;
    if (text[1 + digits] == '.') {
        size_t fraction = strspn(text + 2 + digits, "0123456789");

        return fraction && !text[2 + digits + fraction];
    }
    return digits && !text[1 + digits];
}

/* True when argparse would take the word for an option, known or not. */
static bool is_option_word(const char *word)
{
    if (word[0] != '-' || !word[1])
        return false;
    if (word[1] != '-' && find_letter(word[1]) >= 0)
        return true;
    return !is_negative_number(word) && (word[1] == '-' || !strchr(word, ' '));
}

static int take_value(struct parser *parser, enum option_id id, const char *attached)
{
    char who[2 * NAME_MAX_BYTES + 8];

    if (attached)
        return set_value(parser->out, id, attached, OPTION_TYPED, parser->err);
    if (parser->at + 1 >= parser->argc ||
        is_option_word(parser->argv[parser->at + 1])) {
        describe_option(who, sizeof who, id);
        return ct_fail(parser->err, CTRUN_E_USAGE, "argument %s: expected one argument",
                       who);
    }
    return set_value(parser->out, id, parser->argv[++parser->at], OPTION_TYPED,
                     parser->err);
}

static int take_flag(struct parser *parser, enum option_id id, const char *attached)
{
    char who[2 * NAME_MAX_BYTES + 8];

    if (attached) {
        describe_option(who, sizeof who, id);
        return ct_fail(parser->err, CTRUN_E_USAGE,
                       "argument %s: ignored explicit argument '%s'", who, attached);
    }
    switch (id) {
    case OPTION_HELP: parser->out->action = OPTIONS_HELP; break;
    case OPTION_VERSION: parser->out->action = OPTIONS_VERSION; break;
    default:
        parser->out->values[id] = (struct option_value){OPTION_TYPED, NULL, true, 1, 0};
    }
    return 0;
}

static int take_option(struct parser *parser, enum option_id id, const char *attached)
{
    int rc;

    if (!option_table[id].value)
        return take_flag(parser, id, attached);
    rc = take_value(parser, id, attached);
    if (rc == 0 && id == OPTION_PRINT_COMPLETION)
        parser->out->action = OPTIONS_COMPLETION;
    return rc;
}

static int read_long(struct parser *parser, const char *word)
{
    struct match matches[MATCHES_MAX];
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    int count = find_long(parser->out, name, length, matches);

    if (count == 0)
        return fail_unknown(parser, word);
    if (count > 1)
        return fail_ambiguous(parser, word, matches, count);
    return take_option(parser, matches[0].id, name[length] ? name + length + 1 : NULL);
}

/* -m, -r3, -r=3, -r 3 and clusters: flags may be followed by one letter with a value. */
static int read_short(struct parser *parser, const char *word)
{
    for (const char *p = word + 1; *p; p++) {
        int id = find_letter(*p);
        int rc;

        if (id < 0)
            return p == word + 1
                       ? fail_unknown(parser, word)
                       : ct_fail(parser->err, CTRUN_E_USAGE,
                                 "argument -%c: ignored explicit argument '%s'", p[-1],
                                 p);
        if (option_table[id].value)
            return take_option(parser, (enum option_id)id,
                               !p[1] ? NULL : p + 1 + (p[1] == '='));
        if ((rc = take_flag(parser, (enum option_id)id, p[1] == '=' ? p + 2 : NULL)) <
                0 ||
            parser->out->action != OPTIONS_RUN)
            return rc;
    }
    return 0;
}

/* "ctrun-launch", with any directory in front. */
static bool is_launch_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strcmp(slash ? slash + 1 : path, "ctrun-launch") == 0;
}

int options_parse(struct options *out, int argc, char **argv, char *const *env,
                  struct ctrun_error *err)
{
    struct parser parser = {
        .out = out, .argv = argv, .argc = argc, .at = 1, .err = err};
    int rc = set_defaults(out, env, err);

    out->is_launch = argc > 0 && is_launch_name(argv[0]);
    for (; rc == 0 && parser.at < argc; parser.at++) {
        const char *word = argv[parser.at];

        if (strcmp(word, "--") == 0) {
            parser.at++;
            break;
        }
        if (!is_option_word(word))
            break;
        rc = word[1] == '-' ? read_long(&parser, word) : read_short(&parser, word);
        if (out->action != OPTIONS_RUN)
            return rc;
    }
    if (rc < 0)
        return rc;
    out->program = argv + parser.at;
    out->program_count = argc - parser.at;
    if (out->program_count <= 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "the following arguments are required: training_script, "
                       "training_script_args (the program to run)");
    return 0;
}
