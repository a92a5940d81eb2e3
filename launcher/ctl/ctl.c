/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ctl/ctl.h"

#include "worker_sdk/base/nearest.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    HELP_COLUMN = 24,
};

/* ---- Near words -------------------------------------------------------------------------- */

const char *ctl_nearest(const char *word, const char *const *words)
{
    struct ct_nearest near = ct_nearest_to(word);

    while (*words)
        ct_nearest_offer(&near, *words++);
    return near.word;
}

/* ---- Parsing ----------------------------------------------------------------------------- */

static int option_count(const struct ctl_verb *verb)
{
    int count = 0;

    while (verb->options[count].name)
        count++;
    return count;
}

static int unknown_letter(const struct ctl_verb *verb, char letter,
                          struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_USAGE, "%s has no option -%c", verb->name, letter);
}

static int unknown_option(const struct ctl_verb *verb, const char *word, size_t length,
                          struct ctrun_error *err)
{
    const char *names[CTL_OPTIONS_MAX + 2] = {0};
    const int count = option_count(verb);
    const char *near;
    char name[64];

    (void)ct_format(name, sizeof name, "%.*s", (int)length, word);
    for (int i = 0; i < count; i++)
        names[i] = verb->options[i].name;
    names[count] = "help";
    near = ctl_nearest(name, names);
    return ct_fail(err, CTRUN_E_USAGE, "%s has no option --%s%s%s%s", verb->name, name,
                   near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

static int find_long(const struct ctl_verb *verb, const char *name, size_t length)
{
    for (int i = 0; verb->options[i].name; i++)
        if (strncmp(verb->options[i].name, name, length) == 0 &&
            verb->options[i].name[length] == '\0')
            return i;
    return -1;
}

static int find_letter(const struct ctl_verb *verb, char letter)
{
    for (int i = 0; verb->options[i].name; i++)
        if (verb->options[i].letter && verb->options[i].letter == letter)
            return i;
    return -1;
}

/* Takes the option at argv[*at], and its value.
 * Values are borrowed from argv. "-n5", "-n 5", "--tail=5" and "--tail 5" are one option;
 * letters are not combined. */
static int take_option(struct ctl_call *call, int argc, char **argv, int *at,
                       struct ctrun_error *err)
{
    const char *word = argv[*at];
    const bool is_long = word[1] == '-';
    const char *name = word + (is_long ? 2 : 1);
    const char *value = is_long ? strchr(name, '=') : name[1] ? name + 1 : NULL;
    const size_t length = !is_long ? 1 : value ? (size_t)(value - name) : strlen(name);
    const int i = is_long ? find_long(call->verb, name, length)
                          : find_letter(call->verb, *name);

    if ((is_long && length == 4 && strncmp(name, "help", 4) == 0) ||
        (!is_long && *name == 'h')) {
        call->wants_help = true;
        return 0;
    }
    if (i < 0)
        return is_long ? unknown_option(call->verb, name, length, err)
                       : unknown_letter(call->verb, *name, err);
    if (is_long && value)
        value++;
    if (!call->verb->options[i].value) {
        if (value)
            return ct_fail(err, CTRUN_E_USAGE, "%s: the option takes no value", word);
        call->values[i] = "";
        return 0;
    }
    if (!value && *at + 1 < argc)
        value = argv[++*at];
    if (!value)
        return ct_fail(err, CTRUN_E_USAGE, "%s: %s is missing", word,
                       call->verb->options[i].value);
    call->values[i] = value;
    return 0;
}

static bool is_option(const struct ctl_verb *verb, const char *word)
{
    if (word[0] != '-' || !word[1])
        return false;
    return !verb->takes_negative || word[1 + strspn(word + 1, "0123456789")];
}

int ctl_parse(struct ctl_call *out, const struct ctl_verb *verb, int argc, char **argv,
              struct ctrun_error *err)
{
    bool is_over = false; /* "--" was seen */
    int rc;

    *out = (struct ctl_call){.verb = verb};
    for (int i = 0; verb->options[i].name; i++) {
        const char *env = verb->options[i].env ? getenv(verb->options[i].env) : NULL;

        out->values[i] = env && *env ? env : NULL;
    }
    for (int i = 0; i < argc; i++) {
        if (!is_over && strcmp(argv[i], "--") == 0) {
            is_over = true;
        } else if (!is_over && is_option(verb, argv[i])) {
            if ((rc = take_option(out, argc, argv, &i, err)) < 0)
                return rc;
        } else if (verb->takes_command) {
            out->command = argv + i;
            out->word_count = argc - i;
            break;
        } else if (out->word_count < verb->word_max) {
            out->words[out->word_count++] = argv[i];
        } else {
            return ct_fail(err, CTRUN_E_USAGE, "%s: unexpected argument '%s'%s",
                           verb->name, argv[i],
                           find_long(verb, "run", strlen("run")) < 0
                               ? ""
                               : "; a run is named by --run=ID");
        }
    }
    if (!out->wants_help && out->word_count < verb->word_min)
        return ct_fail(err, CTRUN_E_USAGE, "%s: %s is missing", verb->name,
                       verb->words);
    return 0;
}

const char *ctl_value(const struct ctl_call *call, const char *name)
{
    const int i = find_long(call->verb, name, strlen(name));

    return i < 0 ? NULL : call->values[i];
}

int ctl_number(const struct ctl_call *call, const char *name, int *out,
               struct ctrun_error *err)
{
    const char *text = ctl_value(call, name);
    uint64_t value = 0;

    *out = -1;
    if (!text)
        return 0;
    if (ct_parse_u64(text, 0, INT32_MAX, &value) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--%s %s: not a number", name, text);
    *out = (int)value;
    return 0;
}

/* ---- Help -------------------------------------------------------------------------------- */

static void print_option(FILE *out, const struct ctl_option *option)
{
    char left[64];

    (void)ct_format(
        left, sizeof left, "  %s%.1s%s--%s%s%s", option->letter ? "-" : "    ",
        option->letter ? &option->letter : "", option->letter ? ", " : "", option->name,
        option->value ? " " : "", option->value ? option->value : "");
    fprintf(out, "%-*s%s", HELP_COLUMN, left, strlen(left) >= HELP_COLUMN ? " " : "");
    fprintf(out, "%s%s%s%s\n", option->help, option->env ? " [" : "",
            option->env ? option->env : "", option->env ? "]" : "");
}

void ctl_print_help(FILE *out, const struct ctl_verb *verb)
{
    fprintf(out, "usage: ctrunctl %s [options]%s%s\n\n%s\n\n", verb->name,
            *verb->words ? " " : "", verb->words, verb->help);
    for (int i = 0; verb->options[i].name; i++)
        print_option(out, &verb->options[i]);
    fputs("  -h, --help            this text\n\nSee ctrunctl(1).\n", out);
}

/* ---- Talk -------------------------------------------------------------------------------- */

int ctl_fail(const struct ctrun_error *err)
{
    fprintf(stderr, "ctrunctl: error[%s]: %s\n", ct_error_name(err->code), err->text);
    return err->code == CTRUN_E_USAGE ? CT_EXIT_USAGE : CT_EXIT_FAILURE;
}
