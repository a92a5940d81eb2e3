/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/option.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/options/habits.h"
#include "launcher/options/option_name.h"
#include "launcher/options/role_spec.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/nearest.h"
#include "worker_sdk/base/str.h"

struct parser {
    struct options *out;
    char **argv;
    int argc;
    int at;
    const char *plain_role; /* a --role that names no program; NULL: none was typed */
    struct ctrun_error *err;
};

static int parse_float(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    while (isspace((unsigned char)*end))
        end++;
    return end == text || *end ? -EINVAL : 0;
}

/* ---- Names --------------------------------------------------------------------------- */

static int fail_unknown(struct parser *parser, const char *typed)
{
    const char *habit = habits_option(typed);
    const char *name = option_name_nearest(typed + strspn(typed, "-"),
                                           parser->out->is_launch);

    if (habit)
        return ct_fail(parser->err, CTRUN_E_USAGE,
                       "unrecognized arguments: %s; in ctrun it is %s", typed, habit);
    if (!name)
        return ct_fail(parser->err, CTRUN_E_USAGE, "unrecognized arguments: %s", typed);
    return ct_fail(parser->err, CTRUN_E_USAGE,
                   "unrecognized arguments: %s; did you mean --%s?", typed, name);
}

static int fail_ambiguous(struct parser *parser, const char *typed,
                          const struct option_match *matches, int count)
{
    char list[512] = "";
    char spelling[OPTION_NAME_MAX_BYTES];

    for (int i = 0; i < count; i++) {
        option_name_spell(spelling, option_table[matches[i].id].name,
                          matches[i].has_underscores);
        (void)ct_append_item(list, sizeof list, ", ", "--%s", spelling);
    }
    return ct_fail(parser->err, CTRUN_E_USAGE, "ambiguous option: %s could match %s",
                   typed, list);
}

/* ---- Values -------------------------------------------------------------------------- */

static void describe_option(char *dst, size_t size, enum option_id id)
{
    const struct option *option = &option_table[id];
    char underscored[OPTION_NAME_MAX_BYTES];

    option_name_spell(underscored, option->name, true);
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

/* The valid choice nearest to a wrong one, in a sentence; empty when none is near. */
static void suggest_choice(char *dst, size_t size, const char *choices,
                           const char *text)
{
    struct ct_nearest near = ct_nearest_to(text);
    char word[CT_NEAREST_WORD_MAX];
    size_t length;

    dst[0] = '\0';
    for (const char *next; (next = ct_next_field(&choices, ' ', &length));) {
        (void)ct_format(word, sizeof word, "%.*s", (int)length, next);
        if (ct_nearest_offer(&near, word))
            (void)ct_format(dst, size, "; did you mean %s?", word);
    }
}

/* argparse converts values from the environment like typed ones, but checks no choices of torchrun's. */
static int set_value(struct options *out, enum option_id id, const char *text,
                     enum option_source source, struct ctrun_error *err)
{
    const struct option *option = &option_table[id];
    struct option_value *value = &out->values[id];
    const bool is_env = source == OPTION_FROM_ENV;
    const char *from = is_env ? " from " : "";
    const char *name = is_env ? option->env : "";
    char who[2 * OPTION_NAME_MAX_BYTES + 8];
    char hint[CT_NEAREST_WORD_MAX + 32];

    describe_option(who, sizeof who, id);
    value->text = text;
    value->source = source;
    if (option->kind == OPTION_KIND_INT &&
        ct_parse_python_int(text, &value->integer) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "argument %s: invalid int value: '%s'%s%s",
                       who, text, from, name);
    if (option->kind == OPTION_KIND_FLOAT && parse_float(text, &value->number) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "argument %s: invalid float value: '%s'%s%s",
                       who, text, from, name);
    if (option->choices && (option->is_own || !is_env) &&
        !is_choice(option->choices, text)) {
        suggest_choice(hint, sizeof hint, option->choices, text);
        return ct_fail(err, CTRUN_E_USAGE,
                       "argument %s: invalid choice: '%s'%s%s (choose from: %s)%s", who,
                       text, from, name, option->choices, hint);
    }
    return 0;
}

static int set_flag_from_environment(struct option_value *value,
                                     const struct option *option, const char *text,
                                     struct ctrun_error *err)
{
    int64_t number;

    if (ct_parse_python_int(text, &number) < 0)
        return ct_fail(err, -EINVAL, "%s=%s: a flag needs 1 or 0 here", option->env,
                       text);
    *value = (struct option_value){.source = OPTION_FROM_ENV,
                                   .text = text,
                                   .is_on = number != 0,
                                   .integer = number};
    return 0;
}

static int set_defaults(struct options *out, char *const *env, struct ctrun_error *err)
{
    *out = (struct options){.action = OPTIONS_RUN};
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];
        const char *text = option->env ? ct_env_find(env, option->env) : NULL;
        int rc = 0;

        if (text && option->kind == OPTION_KIND_FLAG)
            rc = set_flag_from_environment(&out->values[id], option, text, err);
        else if (text)
            out->values[id] = (struct option_value){.source = OPTION_FROM_ENV,
                                                    .text = text};
        else if (option->fallback)
            rc = set_value(out, (enum option_id)id, option->fallback,
                           OPTION_FROM_DEFAULT, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* As argparse: a value from the environment is not read where the option is typed. */
static int read_environment(struct options *out, struct ctrun_error *err)
{
    int rc = 0;

    for (int id = 0; rc == 0 && id < OPTION_COUNT; id++)
        if (out->values[id].source == OPTION_FROM_ENV &&
            option_table[id].kind != OPTION_KIND_FLAG)
            rc = set_value(out, (enum option_id)id, out->values[id].text,
                           OPTION_FROM_ENV, err);
    return rc;
}

/* ---- A file --------------------------------------------------------------------------- */

static int fail_name(const struct options *options, const char *name,
                     struct ctrun_error *err)
{
    struct option_match matches[OPTION_MATCHES_MAX];
    const char *nearest = option_name_nearest(name + strspn(name, "-"),
                                              options->is_launch);

    /* A file has whole names, no prefixes: a new option must not change what a file means. */
    if (!nearest &&
        option_name_find(matches, name, strlen(name), options->is_launch) > 0)
        nearest = option_table[matches[0].id].name;
    return nearest
               ? ct_fail(err, CTRUN_E_USAGE,
                         "no option is named '%.60s'; did you mean %s?", name, nearest)
               : ct_fail(err, CTRUN_E_USAGE,
                         "no option is named '%.60s'; ctrun --help lists them", name);
}

static int set_flag_from_file(struct option_value *value, const char *name,
                              const char *text, struct ctrun_error *err)
{
    const bool is_on = is_choice("true yes on 1", text);

    if (!is_on && !is_choice("false no off 0", text))
        return ct_fail(err, CTRUN_E_USAGE, "%s = %.60s: a flag is true or false", name,
                       text);
    *value = (struct option_value){
        .source = OPTION_FROM_FILE, .text = text, .is_on = is_on, .integer = is_on};
    return 0;
}

int options_set_from_file(struct options *out, const char *name, const char *text,
                          int line, struct ctrun_error *err)
{
    const int id = option_name_find_whole(name, out->is_launch);
    struct option_value *value = id < 0 ? NULL : &out->values[id];
    struct option_value before;
    int rc;

    if (!value)
        return fail_name(out, name, err);
    if (option_table[id].group == OPTION_GROUP_LAUNCHER)
        return ct_fail(
            err, CTRUN_E_USAGE, "--%s is for the command line%s alone, not for a file",
            option_table[id].name, option_table[id].env ? " and the environment" : "");
    if (value->line)
        return ct_fail(err, CTRUN_E_USAGE, "%s is in line %d, too; remove one of them",
                       name, value->line);
    if (id == OPTION_ROLE && role_spec_is(text))
        return ct_fail(err, CTRUN_E_USAGE,
                       "%s = %.200s: NAME=N:COMMAND is for the command line alone, "
                       "not for a file",
                       name, text);
    before = *value;
    rc = option_table[id].kind == OPTION_KIND_FLAG
             ? set_flag_from_file(value, name, text, err)
             : set_value(out, (enum option_id)id, text, OPTION_FROM_FILE, err);
    if (rc == 0 && before.source > OPTION_FROM_FILE)
        *value = before;
    value->line = line;
    return rc;
}

void options_deinit(struct options *options)
{
    free(options->file_text);
    options->file_text = NULL;
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
    if (word[1] != '-' && option_name_find_letter(word[1]) >= 0)
        return true;
    return !is_negative_number(word) && (word[1] == '-' || !strchr(word, ' '));
}

static int take_value(struct parser *parser, enum option_id id, const char *attached)
{
    char who[2 * OPTION_NAME_MAX_BYTES + 8];

    if (attached)
        return set_value(parser->out, id, attached, OPTION_TYPED, parser->err);
    if (option_table[id].alone)
        return set_value(parser->out, id, option_table[id].alone, OPTION_TYPED,
                         parser->err);
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
    char who[2 * OPTION_NAME_MAX_BYTES + 8];

    if (attached) {
        describe_option(who, sizeof who, id);
        return ct_fail(parser->err, CTRUN_E_USAGE,
                       "argument %s: ignored explicit argument '%s'", who, attached);
    }
    switch (id) {
    case OPTION_HELP: parser->out->action = OPTIONS_HELP; break;
    case OPTION_VERSION: parser->out->action = OPTIONS_VERSION; break;
    default:
        parser->out->values[id] = (struct option_value){
            .source = OPTION_TYPED, .is_on = true, .integer = 1};
    }
    return 0;
}

/* --role-restarts and --role may be repeated, and each one counts; --role only if it names a
 * program. */
static int take_role_restarts(struct parser *parser)
{
    struct options *out = parser->out;

    if (out->role_restarts_count == OPTIONS_ROLES_MAX)
        return ct_fail(parser->err, CTRUN_E_USAGE,
                       "--role-restarts: a node has at most %d roles",
                       OPTIONS_ROLES_MAX);
    out->role_restarts[out->role_restarts_count++] = option_text(out,
                                                                 OPTION_ROLE_RESTARTS);
    return 0;
}

static int take_role(struct parser *parser)
{
    struct options *out = parser->out;

    if (!role_spec_is(option_text(out, OPTION_ROLE))) {
        parser->plain_role = option_text(out, OPTION_ROLE);
        return 0;
    }
    if (out->role_count == OPTIONS_ROLES_MAX)
        return ct_fail(parser->err, CTRUN_E_USAGE,
                       "--role: a node has at most %d roles", OPTIONS_ROLES_MAX);
    out->roles[out->role_count++] = option_text(out, OPTION_ROLE);
    return 0;
}

/* Checks the words after the options; roles have their own programs. */
static int check_program(const struct parser *parser)
{
    const struct options *out = parser->out;
    struct ctrun_error *err = parser->err;
    const char *role = option_text(out, OPTION_ROLE);
    const bool is_near = option_is_given(out, OPTION_ROLE) && strchr(role, '=');

    if (out->role_count > 0 && parser->plain_role)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--role=%.300s: another --role is NAME=N:COMMAND, so this one "
                       "must be too",
                       parser->plain_role);
    if (out->role_count > 0 && out->program_count > 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "%.300s: each --role=NAME=N:COMMAND has its own program; leave "
                       "this one out, or quote the command",
                       out->program[0]);
    if (out->role_count > 0 || out->program_count > 0)
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "the following arguments are required: training_script, "
                   "training_script_args (the program to run)%s%.200s%s",
                   is_near ? "; --role=" : "", is_near ? role : "",
                   !is_near ? ""
                   : role_spec_is(role)
                       ? " must be on the command line, not in PET_ROLE"
                       : " is not NAME=N:COMMAND");
}

static int take_option(struct parser *parser, enum option_id id, const char *attached)
{
    int rc;

    if (!option_table[id].value)
        return take_flag(parser, id, attached);
    rc = take_value(parser, id, attached);
    if (rc == 0 && id == OPTION_PRINT_COMPLETION)
        parser->out->action = OPTIONS_COMPLETION;
    if (rc == 0 && id == OPTION_ROLE)
        rc = take_role(parser);
    if (rc == 0 && id == OPTION_ROLE_RESTARTS)
        rc = take_role_restarts(parser);
    return rc;
}

/* ctrun accepts an option of ctrun-launch by its whole name and ignores it, because its workers
 * always run as with torch.distributed.launch --use-env: scripts need no edit. */
static int find_launch_only(struct option_match *match, const char *name, size_t length)
{
    return option_name_find(match, name, length, true) == 1 &&
                   strlen(option_table[match->id].name) == length
               ? 1
               : 0;
}

static int read_long(struct parser *parser, const char *word)
{
    struct option_match matches[OPTION_MATCHES_MAX];
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    int count = option_name_find(matches, name, length, parser->out->is_launch);

    if (count == 0)
        count = find_launch_only(matches, name, length);
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
        int id = option_name_find_letter(*p);
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

/* Otherwise --hosts=$HOSTS with an unset variable would silently run on one machine. */
static int check_empty(const struct options *options, struct ctrun_error *err)
{
    static const enum option_id checked[] = {OPTION_NNODES, OPTION_NPROC_PER_NODE,
                                             OPTION_HOSTS, OPTION_HOSTS_FILE};

    for (size_t i = 0; i < sizeof checked / sizeof *checked; i++) {
        const struct option_value *value = &options->values[checked[i]];

        if (value->source == OPTION_TYPED && value->text[0] == '=' && !value->text[1])
            return ct_fail(err, -EINVAL, "--%s = ...: no blanks around the =",
                           option_table[checked[i]].name);
        if (value->source != OPTION_FROM_DEFAULT && value->text && !*value->text)
            return ct_fail(
                err, -EINVAL,
                "--%s=: there is no value; is a variable of the shell empty?",
                option_table[checked[i]].name);
    }
    return 0;
}

int options_parse(struct options *out, int argc, char **argv, char *const *env,
                  struct ctrun_error *err)
{
    struct parser parser = {
        .out = out, .argv = argv, .argc = argc, .at = 1, .err = err};
    bool is_over = false; /* "--" was seen */
    int rc = set_defaults(out, env, err);

    out->is_launch = argc > 0 && strcmp(ct_base_name(argv[0]), "ctrun-launch") == 0;
    for (; rc == 0 && parser.at < argc; parser.at++) {
        const char *word = argv[parser.at];

        if (strcmp(word, "--") == 0) {
            is_over = true;
            parser.at++;
            /* torchrun passes a second one on, to Python, which drops it. */
            parser.at += parser.at < argc && strcmp(argv[parser.at], "--") == 0;
            break;
        }
        if (!is_option_word(word))
            break;
        rc = word[1] == '-' ? read_long(&parser, word) : read_short(&parser, word);
        if (out->action != OPTIONS_RUN)
            return rc;
    }
    if (rc < 0 || (rc = read_environment(out, err)) < 0)
        return rc;
    /* argparse also drops the first "--" right after the program. Move it before the program, where
     * it means the same to a node of --hosts that parses these words again. */
    if (!is_over && parser.at + 1 < argc && strcmp(argv[parser.at + 1], "--") == 0) {
        char *dashes = argv[parser.at + 1];

        argv[parser.at + 1] = argv[parser.at];
        argv[parser.at++] = dashes;
    }
    out->program = argv + parser.at;
    out->program_count = argc - parser.at;
    rc = check_program(&parser);
    return rc == 0 && out->action == OPTIONS_RUN ? check_empty(out, err) : rc;
}
