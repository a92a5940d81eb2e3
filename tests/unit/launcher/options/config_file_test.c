/* SPDX-License-Identifier: Apache-2.0 */
/* A file of options: its grammar, and which values take precedence. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launcher/options/config_file.h"
#include "launcher/options/option_file.h"
#include "worker_sdk/base/str_list.h"

static int read_first(const char *text, char *copy, size_t size,
                      struct config_file_entry *out, struct ctrun_error *err)
{
    struct config_file file;

    (void)snprintf(copy, size, "%s", text);
    config_file_init(&file, copy, strlen(copy));
    return config_file_next(&file, out, err);
}

TEST(each_line_reads_to_this_name_and_value)
{
    static const struct {
        const char *text;
        const char *name; /* NULL: the file is empty */
        const char *value;
        int line;
    } rows[] = {
        {"", NULL, NULL, 0},
        {"\n \t\r\n# a = b\n  # c", NULL, NULL, 0},
        {"a=b", "a", "b", 1},
        {"\n\n a-b_2 = c # d\n", "a-b_2", "c", 3},
        {"a = b\r\n", "a", "b", 1},
        {"\xef\xbb\xbf", NULL, NULL, 0},
        {"\xef\xbb\xbf# a\nb = c\n", "b", "c", 2},
        {"a = b#c", "a", "b#c", 1},
        {"a = b=c", "a", "b=c", 1},
        {"a = it's", "a", "it's", 1},
        {"a = \"\"", "a", "", 1},
        {"a = ''#", NULL, NULL, -1},
        {"a = '' #", "a", "", 1},
        {"a = \" b # c \"", "a", " b # c ", 1},
        {"a = \"b\\\"c\\\\d\\n\" # e", "a", "b\"c\\d\\n", 1},
        {"a = 'b\\'", "a", "b\\", 1},
        {"a = '\"'", "a", "\"", 1},
        {"a = 'b\\\\c'", "a", "b\\\\c", 1},
        {"a", NULL, NULL, -1},
        {"a =", NULL, NULL, -1},
        {"a = # b", NULL, NULL, -1},
        {"= b", NULL, NULL, -1},
        {"a b = c", NULL, NULL, -1},
        {"[a]", NULL, NULL, -1},
        {"a = b c", NULL, NULL, -1},
        {"a = \"b\" c", NULL, NULL, -1},
        {"a = \"b\"c", NULL, NULL, -1},
        {"a = \"b", NULL, NULL, -1},
        {"a = \"b\\\"", NULL, NULL, -1},
        {"a = 'b\nc'", NULL, NULL, -1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config_file_entry entry;
        struct ctrun_error err = {0};
        char copy[128];
        const int rc = read_first(rows[i].text, copy, sizeof copy, &entry, &err);

        if (rc != (rows[i].name ? 1 : rows[i].line < 0 ? CTRUN_E_USAGE : 0))
            fail_msg("'%s': %d %s", rows[i].text, rc, err.text);
        if (rc != 1)
            continue;
        assert_string_equal(entry.name, rows[i].name);
        assert_string_equal(entry.value, rows[i].value);
        assert_int_equal(entry.line, rows[i].line);
    }
}

TEST(a_nul_byte_is_no_text)
{
    char text[] = "a = b\0c\n";
    struct config_file file;
    struct config_file_entry entry;

    config_file_init(&file, text, sizeof text - 1);
    assert_int_equal(config_file_next(&file, &entry, NULL), CTRUN_E_USAGE);
}

/* Applies the file to options from a command line and an environment with one name. */
static int apply(struct options *out, char *typed, char *name, const char *file,
                 char *copy, size_t size, struct ctrun_error *err)
{
    char *env[] = {name, NULL};
    static char program[] = "x";
    static char own[] = "ctrun";
    char *argv[] = {own, typed ? typed : program, program, NULL};

    assert_int_equal(options_parse(out, 3, argv, env, err), 0);
    (void)snprintf(copy, size, "%s", file);
    return option_file_apply(out, "f", copy, strlen(copy), err);
}

TEST(the_command_line_wins_over_the_environment_and_both_over_the_file)
{
    const char *file = "max_restarts = 1\nnnodes = 2:3\nrole=a\ncollapse=true\n";
    char typed[] = "--nnodes=7";
    char name[] = "PET_ROLE=b";
    char copy[256];
    struct options options;
    const struct option_value *values = options.values;

    assert_int_equal(apply(&options, typed, name, file, copy, sizeof copy, NULL), 0);
    assert_string_equal(values[OPTION_NNODES].text, "7");
    assert_int_equal(values[OPTION_NNODES].source, OPTION_TYPED);
    assert_string_equal(values[OPTION_ROLE].text, "b");
    assert_int_equal(values[OPTION_ROLE].source, OPTION_FROM_ENV);
    assert_int_equal(values[OPTION_MAX_RESTARTS].integer, 1);
    assert_int_equal(values[OPTION_MAX_RESTARTS].source, OPTION_FROM_FILE);
    assert_int_equal(values[OPTION_MAX_RESTARTS].line, 1);
    assert_true(values[OPTION_COLLAPSE].is_on);
    assert_int_equal(values[OPTION_TEE].source, OPTION_FROM_DEFAULT);
}

TEST(each_wrong_line_is_refused_with_its_place_and_these_words)
{
    static const struct {
        const char *file;
        const char *words;
    } rows[] = {
        {"\nmax-restart = 1", "f:2: no option is named 'max-restart'; did you mean "
                              "max-restarts?"},
        {"nproc = 1", "did you mean nproc-per-node?"},
        {"--nnodes = 1", "did you mean nnodes?"},
        {"use-env = true", "f:1: no option is named 'use-env'"},
        {"max-restarts = x",
         "f:1: argument --max-restarts/--max_restarts: invalid int"},
        {"monitor-interval = x", "invalid float value"},
        {"store-access = x", "invalid choice: 'x'"},
        {"collapse = maybe", "a flag is true or false"},
        {"role = a\nrole = b", "f:2: role is in line 1, too"},
        {"role = 'a=1:x y'",
         "f:1: role = a=1:x y: NAME=N:COMMAND is for the command line"},
        {"log_dir = a\nlog-dir = b", "f:2: log-dir is in line 1, too"},
        {"role", "f:1: 'role' is not NAME = VALUE"},
        {"config = x", "--config is for the command line"},
        {"help = true", "--help is for the command line alone"},
        {"version = true", "--version is for the command line alone"},
        {"dry-run = true", "--dry-run is for the command line and the environment"},
        {"print_config = true", "--print-config is for"},
        {"json = true", "--json is for"},
        {"print-completion = bash", "--print-completion is for"},
        /* An error counts even if another value takes precedence. */
        {"nnodes = 1\nmax-restarts = y", "f:2: argument"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char typed[] = "--max-restarts=2";
        char copy[256];
        struct options options;
        struct ctrun_error err = {0};

        assert_int_equal(
            apply(&options, typed, NULL, rows[i].file, copy, sizeof copy, &err),
            CTRUN_E_USAGE);
        if (!strstr(err.text, rows[i].words))
            fail_msg("'%s': '%s' does not hold '%s'", rows[i].file, err.text,
                     rows[i].words);
    }
}

TEST(a_sentence_about_an_option_of_the_file_gets_its_place)
{
    static const struct {
        const char *sentence;
        bool is_blamed;
    } rows[] = {
        {"--nnodes=0: too few", true},
        {"nnodes=0 is not in format", true},
        {"argument --nnodes: bad", true},
        {"Unsupported nproc_per_node value: x", true},
        {"--role: too long", false}, /* from the command line */
        {"--role: too long; see --nnodes", false},
        {"--nnodes-x: no", false},
        {"all nodes play a role", false},
        {"no memory", false},
    };
    char typed[] = "--role=x";
    char copy[64];
    struct options options;

    assert_int_equal(apply(&options, typed, NULL,
                           "role = a\nnnodes = 0\n"
                           "nproc-per-node = x",
                           copy, sizeof copy, NULL),
                     0);
    options.values[OPTION_CONFIG].text = "f";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ctrun_error err = {.code = -EINVAL};

        (void)snprintf(err.text, sizeof err.text, "%s", rows[i].sentence);
        option_file_blame(&options, &err);
        if (rows[i].is_blamed != (strncmp(err.text, "f:", 2) == 0))
            fail_msg("%s", err.text);
        assert_int_equal(err.code, -EINVAL);
    }
}

TEST(another_machine_is_told_what_the_file_has_set_and_no_more)
{
    char typed[] = "--role=x";
    char copy[128];
    struct options options;
    char *argv[] = {(char[]){"ctrun"}, typed, (char[]){"x"}, NULL};
    static const char *const expected[] = {
        "ctrun", "--max-restarts=1", "--tee=", "--collapse", "--role=x", "x"};
    char **list;

    assert_int_equal(apply(&options, typed, NULL,
                           "max-restarts = 1\nrole = y\ncollapse = on\ncore = off\n"
                           "tee = ''",
                           copy, sizeof copy, NULL),
                     0);
    assert_non_null(list = option_file_argv(&options, argv));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(list[i], expected[i]);
    assert_null(list[sizeof expected / sizeof *expected]);
    ct_str_list_free(list);
}
