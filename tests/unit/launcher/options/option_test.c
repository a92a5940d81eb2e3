/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of the command line: rows of words, as argparse reads them for torchrun. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launcher/config/env_names.h"
#include "launcher/options/option.h"

enum {
    WORDS_MAX = 16
};

static char *no_env[] = {NULL};

/* Parses words that are separated by blanks; the program's name comes first. */
static int parse_as(struct options *out, char *name, char *line, char **argv,
                    char *const *env, struct ctrun_error *err)
{
    int argc = 0;

    argv[argc++] = name;
    for (char *word = line; *word && argc < WORDS_MAX - 1;) {
        char *end = word + strcspn(word, " ");

        argv[argc++] = word;
        word = *end ? end + 1 : end;
        *end = '\0';
    }
    argv[argc] = NULL;
    return options_parse(out, argc, argv, env, err);
}

static int parse(struct options *out, char *line, char **argv, char *const *env,
                 struct ctrun_error *err)
{
    static char name[] = "ctrun";

    return parse_as(out, name, line, argv, env, err);
}

TEST(each_row_parses_to_the_expected_value)
{
    static const struct {
        const char *line;
        enum option_id id;
        const char *value; /* NULL: the option is a flag, and must be on */
        const char *program;
        int count;
    } rows[] = {
        {"--nproc-per-node=2 x.py", OPTION_NPROC_PER_NODE, "2", "x.py", 1},
        {"--nproc_per_node 2 x.py", OPTION_NPROC_PER_NODE, "2", "x.py", 1},
        {"--nproc-per 2 x.py", OPTION_NPROC_PER_NODE, "2", "x.py", 1},
        {"--nproc_per=2 x.py", OPTION_NPROC_PER_NODE, "2", "x.py", 1},
        {"--rdzv-e=h x.py", OPTION_RDZV_ENDPOINT, "h", "x.py", 1},
        {"-r3 x.py", OPTION_REDIRECTS, "3", "x.py", 1},
        {"-r 3 x.py", OPTION_REDIRECTS, "3", "x.py", 1},
        {"-r=3 x.py", OPTION_REDIRECTS, "3", "x.py", 1},
        {"--redirects=3 x.py", OPTION_REDIRECTS, "3", "x.py", 1},
        {"--redirect=3 x.py", OPTION_REDIRECTS, "3", "x.py", 1},
        {"-mt3 pkg.mod", OPTION_TEE, "3", "pkg.mod", 1},
        {"-mt3 pkg.mod", OPTION_MODULE, NULL, "pkg.mod", 1},
        {"-mt 3 pkg.mod", OPTION_TEE, "3", "pkg.mod", 1},
        {"--stand x.py", OPTION_STANDALONE, NULL, "x.py", 1},
        {"--mod x", OPTION_MODULE, NULL, "x", 1},
        {"--log-l=X x.py", OPTION_LOG_LINE_PREFIX_TEMPLATE, "X", "x.py", 1},
        {"--nnodes 2 --nnodes=3 x.py", OPTION_NNODES, "3", "x.py", 1},
        {"x.py --nnodes 4", OPTION_NNODES, "1:1", "x.py", 3},
        {"x.py -h -- --nnodes 4", OPTION_NNODES, "1:1", "x.py", 5},
        {"-- x.py --foo", OPTION_NNODES, "1:1", "x.py", 2},
        {"x.py -- --nnodes 4", OPTION_NNODES, "1:1", "x.py", 3},
        {"x.py -- -- a", OPTION_NNODES, "1:1", "x.py", 3},
        {"-- x.py -- a", OPTION_NNODES, "1:1", "x.py", 3},
        {"-- -- x.py -- a", OPTION_NNODES, "1:1", "x.py", 3},
        {"--max-restarts -1 x.py", OPTION_MAX_RESTARTS, "-1", "x.py", 1},
        {"--rdzv-conf= x.py", OPTION_RDZV_CONF, "", "x.py", 1},
        {"-5 x", OPTION_NNODES, "1:1", "-5", 2},
        {"--run-path x.py", OPTION_RUN_PATH, NULL, "x.py", 1},
        /* mixed: unknown */
        {"--duplicate_stdout-filters=a x.py", OPTION_COUNT, NULL, NULL, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct options options;
        struct ctrun_error err = {0};
        char line[256];
        char *argv[WORDS_MAX];
        int rc;

        (void)snprintf(line, sizeof line, "%s", rows[i].line);
        rc = parse(&options, line, argv, no_env, &err);
        if (!rows[i].program) {
            assert_int_equal(rc, CTRUN_E_USAGE);
            continue;
        }
        if (rc != 0)
            fail_msg("%s: %s", rows[i].line, err.text);
        if (rows[i].value)
            assert_string_equal(options.values[rows[i].id].text, rows[i].value);
        else
            assert_true(options.values[rows[i].id].is_on);
        assert_string_equal(options.program[0], rows[i].program);
        assert_int_equal(options.program_count, rows[i].count);
        /* A node of --hosts parses the same words again. */
        rc = (int)(options.program - argv) + options.program_count;
        assert_int_equal(options_parse(&options, rc, argv, no_env, &err), 0);
        assert_string_equal(options.program[0], rows[i].program);
        assert_int_equal(options.program_count, rows[i].count);
    }
}

TEST(each_wrong_line_is_refused_with_these_words)
{
    static const struct {
        const char *line;
        const char *words;
    } rows[] = {
        {"--nproc 2 x.py", "ambiguous option"},
        {"--nproc 2 x.py", "--nproc-per-node, --nproc_per_node"},
        {"--log=X x.py", "ambiguous option"},
        {"--print bash", "ambiguous option"},
        {"--bogus x.py", "unrecognized arguments: --bogus"},
        {"--nproc-pre-node=2 x.py", "did you mean --nproc-per-node?"},
        {"--rdvz_endpoint=h x.py", "did you mean --rdzv-endpoint?"},
        {"--token_file=f x.py", "did you mean --rdzv-token-file?"},
        {"-x x.py", "unrecognized arguments: -x"},
        {"--standalone", "the following arguments are required: training_script"},
        {"", "the following arguments are required"},
        {"--standalone=1 x.py", "ignored explicit argument '1'"},
        {"--max-restarts=x x.py",
         "--max-restarts/--max_restarts: invalid int value: 'x'"},
        {"--monitor-interval=x x.py", "invalid float value: 'x'"},
        {"--start-method=foo x.py", "invalid choice: 'foo'"},
        {"--exit-code=torchrn x.py",
         "(choose from: own torchrun class); did you mean torchrun?"},
        {"--numa-binding=core x.py", "did you mean cores?"},
        {"--print-completion nosuch", "invalid choice: 'nosuch'"},
        {"--nnodes", "expected one argument"},
        {"--nnodes --standalone x.py", "expected one argument"},
        {"-mz x.py", "-m: ignored explicit argument 'z'"},
        {"-m=1 x.py", "ignored explicit argument '1'"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct options options;
        struct ctrun_error err = {0};
        char line[256];
        char *argv[WORDS_MAX];

        (void)snprintf(line, sizeof line, "%s", rows[i].line);
        assert_int_equal(parse(&options, line, argv, no_env, &err), CTRUN_E_USAGE);
        if (!strstr(err.text, rows[i].words))
            fail_msg("%s: '%s' does not hold '%s'", rows[i].line, err.text,
                     rows[i].words);
    }
}

TEST(words_of_other_launchers_are_refused_with_ours)
{
    static const struct {
        const char *line;
        const char *say;
    } rows[] = {
        {"-np 4 x.py",
         "-np; in ctrun it is --nproc-per-node=N, the workers of one node"},
        {"-np4 x.py", "-np4; in ctrun it is --nproc-per-node=N"},
        {"-n 4 x.py", "-n; in ctrun it is --nproc-per-node=N"},
        {"-n=4 x.py", "-n=4; in ctrun it is --nproc-per-node=N"},
        {"--nprocs=4 x.py", "--nprocs=4; in ctrun it is --nproc-per-node=N"},
        {"--num_processes=8 x.py", "in ctrun it is --nproc-per-node=N"},
        {"--num-processes 8 x.py", "of one node, not of all"},
        {"--ngpus 4 x.py", "--ngpus; in ctrun it is --nproc-per-node=N"},
        {"--num_machines=2 x.py", "in ctrun it is --nnodes=N"},
        {"--machine_rank=1 x.py", "in ctrun it is --node-rank=N"},
        {"-H a,b x.py", "in ctrun it is --hosts=HOST,..."},
        {"--hostfile f x.py", "in ctrun it is --hosts-file=FILE"},
        {"--report-bindings x.py", "in ctrun it is --dry-run"},
    };
    char *argv[WORDS_MAX];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ctrun_error err;
        struct options options;
        char line[64];

        (void)snprintf(line, sizeof line, "%s", rows[i].line);
        if (parse(&options, line, argv, no_env, &err) != CTRUN_E_USAGE ||
            !strstr(err.text, rows[i].say))
            fail_msg("%s: %s", rows[i].line, err.text);
    }
}

TEST(use_env_is_taken_by_its_whole_name_and_changes_nothing)
{
    static const char *const lines[] = {"--use-env x.py a", "--use_env x.py a",
                                        "--nnodes=1 --use_env x.py a"};
    char *argv[WORDS_MAX];

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct ctrun_error err = {0};
        struct options options;
        char line[64];

        (void)snprintf(line, sizeof line, "%s", lines[i]);
        if (parse(&options, line, argv, no_env, &err) != 0 ||
            options.program_count != 2 || options.is_launch)
            fail_msg("%s: %s", lines[i], err.text);
    }
}

TEST(environment_beats_default_and_command_line_beats_environment)
{
    char nodes[] = "PET_NNODES=4";
    char flag[] = "PET_NO_PYTHON=1";
    char method[] = "PET_START_METHOD=whatever"; /* torchrun does not check these */
    char *env[] = {nodes, flag, method, NULL};
    char line[] = "x.py";
    char line2[] = "--nnodes=2 x.py";
    char *argv[WORDS_MAX];
    struct options options;

    assert_int_equal(parse(&options, line, argv, env, NULL), 0);
    assert_string_equal(options.values[OPTION_NNODES].text, "4");
    assert_true(options.values[OPTION_NO_PYTHON].is_on);
    assert_string_equal(options.values[OPTION_START_METHOD].text, "whatever");
    assert_int_equal(parse(&options, line2, argv, env, NULL), 0);
    assert_string_equal(options.values[OPTION_NNODES].text, "2");
    flag[sizeof flag - 2] = '0';
    line2[0] = '-';
    char line3[] = "x.py";
    assert_int_equal(parse(&options, line3, argv, env, NULL), 0);
    assert_false(options.values[OPTION_NO_PYTHON].is_on);
}

TEST(bad_environment_values_have_torchruns_exit_codes)
{
    char flag[] = "PET_STANDALONE=true";
    char number[] = "PET_MAX_RESTARTS=x";
    char *flag_env[] = {flag, NULL};
    char *number_env[] = {number, NULL};
    char line[] = "x.py";
    char *argv[WORDS_MAX];
    struct options options;

    assert_int_equal(parse(&options, line, argv, flag_env, NULL), -EINVAL); /* exit 1 */
    assert_int_equal(parse(&options, line, argv, number_env, NULL), CTRUN_E_USAGE);
}

/* argparse converts a default only where the option is not typed, and not for --help. */
TEST(a_bad_environment_value_of_an_option_that_is_typed_is_not_read)
{
    char number[] = "PET_MAX_RESTARTS=x";
    char seconds[] = "PET_MONITOR_INTERVAL=";
    char redact[] = "CTRUN_REDACT=1";
    char *env[] = {number, seconds, redact, NULL};
    char line[] = "--max-restarts=1 --monitor-interval=2 --redact=off x.py";
    char help[] = "--help";
    char *argv[WORDS_MAX];
    struct options options;

    assert_int_equal(parse(&options, line, argv, env, NULL), 0);
    assert_int_equal(options.values[OPTION_MAX_RESTARTS].integer, 1);
    assert_string_equal(options.values[OPTION_REDACT].text, "off");
    assert_int_equal(parse(&options, help, argv, env, NULL), 0);
    assert_int_equal(options.action, OPTIONS_HELP);
}

/* With CTRUN_REDACT=1 secrets would be printed, with CTRUN_AUTH=tokn anybody could join. */
TEST(choices_of_our_own_are_checked_in_the_environment_too)
{
    char redact[] = "CTRUN_REDACT=1";
    char auth[] = "CTRUN_AUTH=tokn";
    char *const rows[] = {redact, auth};
    const char *const words[] = {"'1' from CTRUN_REDACT (choose from: on off)",
                                 "'tokn' from CTRUN_AUTH"};
    char *argv[WORDS_MAX];
    struct options options;

    for (int i = 0; i < 2; i++) {
        char *env[] = {rows[i], NULL};
        char line[] = "x.py";
        struct ctrun_error err = {0};

        assert_int_equal(parse(&options, line, argv, env, &err), CTRUN_E_USAGE);
        if (!strstr(err.text, words[i]))
            fail_msg("%s: %s", rows[i], err.text);
    }
}

TEST(options_that_act_at_once_do_not_read_on)
{
    static const struct {
        const char *line;
        enum options_action action;
    } rows[] = {
        {"--help --bogus", OPTIONS_HELP},
        {"-h", OPTIONS_HELP},
        {"-mh --bogus", OPTIONS_HELP},
        {"--version", OPTIONS_VERSION},
        {"--print-completion bash --bogus", OPTIONS_COMPLETION},
        {"--print_completion=zsh", OPTIONS_COMPLETION},
        {"--print-c bash", OPTIONS_COMPLETION}, /* torchrun has no --print-config */
        {"--standalone --print-completion tcsh", OPTIONS_COMPLETION},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct options options;
        char line[256];
        char *argv[WORDS_MAX];

        (void)snprintf(line, sizeof line, "%s", rows[i].line);
        assert_int_equal(parse(&options, line, argv, no_env, NULL), 0);
        assert_int_equal(options.action, rows[i].action);
    }
}

TEST(every_option_parses_in_both_spellings)
{
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];
        char value[64] = "";

        if (option->value)
            (void)snprintf(value, sizeof value, "=%.*s",
                           option->choices ? (int)strcspn(option->choices, " ") : 1,
                           option->choices ? option->choices : "1");
        for (int underscores = 0; underscores < 2; underscores++) {
            struct options options;
            struct ctrun_error err = {0};
            char line[256];
            char *argv[WORDS_MAX];

            (void)snprintf(line, sizeof line, "--%s%s x.py", option->name, value);
            for (char *p = line + 2; underscores && *p && *p != '='; p++)
                *p = *p == '-' ? '_' : *p;
            if (parse_as(&options, (char[]){"bin/ctrun-launch"}, line, argv, no_env,
                         &err) != 0)
                fail_msg("%s: %s", option->name, err.text);
        }
    }
}

TEST(the_table_is_whole)
{
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        assert_non_null(option->name);
        assert_non_null(option->help);
        assert_true(option->kind == OPTION_KIND_FLAG ||
                    option->kind == OPTION_KIND_STOP || option->value);
        assert_true(!option->alone || option->value);
        for (int other = 0; other < id; other++)
            assert_string_not_equal(option->name, option_table[other].name);
    }
}

TEST(names_that_nobody_reads_have_a_nearest_one)
{
    static const struct {
        const char *name;
        const char *nearest;
    } rows[] = {
        {"CTRUN_HANG_TIMOUT", "CTRUN_HANG_TIMEOUT"},
        {"CTRUN_EVENT", "CTRUN_EVENTS"},
        {"CTRUN_NNODES", "PET_NNODES"},
        {"CTRUN_RDZV_ENDPOINT", "PET_RDZV_ENDPOINT"},
        {"CTRUN_SOMETHING_ELSE_ENTIRELY", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *nearest = env_names_nearest(rows[i].name);

        assert_false(env_names_is_known(rows[i].name));
        if (rows[i].nearest)
            assert_string_equal(nearest, rows[i].nearest);
        else
            assert_null(nearest);
    }
    for (int id = 0; id < OPTION_COUNT; id++)
        if (option_table[id].env)
            assert_true(env_names_is_known(option_table[id].env));
    assert_true(env_names_is_known("CTRUN_TOKEN"));
    assert_true(env_names_is_known("CTRUN_LIBRARY")); /* read by import ctrun */
    assert_true(env_names_is_known("CTRUN_ROOT"));    /* set by a module file */
    /* A ctrun that a worker of --survive starts has them. */
    assert_true(env_names_is_known("CTRUN_MAY_SHRINK"));
    assert_true(env_names_is_known("CTRUN_MAY_GROW"));
    assert_true(env_names_is_known("CTRUN_MAY_REFORM"));
}
