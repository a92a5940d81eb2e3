/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl: shows and controls the runs of this machine, and checks the machine itself. */

#include <errno.h>
#include <signal.h>

#include "launcher/ctl/ctl.h"
#include "launcher/options/habits.h"
#include "launcher/report/stack_limit.h"
#include "worker_sdk/base/std_streams.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_verb *const verbs[] = {
    &ctl_status, &ctl_signal, &ctl_stop,    &ctl_restart, &ctl_reload, &ctl_resize,
    &ctl_drain,  &ctl_logs,   &ctl_kv,      &ctl_why,     &ctl_stacks, &ctl_explain,
    &ctl_chaos,  &ctl_doctor, &ctl_install, NULL};

enum {
    VERB_COUNT = sizeof verbs / sizeof *verbs - 1
};

static void print_usage(FILE *out)
{
    fputs("usage: ctrunctl VERB [options]\n\nShows and controls the runs of ctrun on "
          "this "
          "machine.\n\n",
          out);
    for (int i = 0; i < VERB_COUNT; i++)
        fprintf(out, "  %-7s %-12s %.*s\n", verbs[i]->name, verbs[i]->words,
                (int)strcspn(verbs[i]->help, "\n"), verbs[i]->help);
    fputs("\nctrunctl VERB --help has more; --print-completion bash|zsh|fish; "
          "--version. See ctrunctl(1).\n",
          out);
}

static int refuse_verb(const char *word)
{
    const char *names[VERB_COUNT + 1] = {0};
    const char *habit = habits_verb(word);
    const char *near;

    for (int i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i]->name;
    if (habit) {
        fprintf(stderr, "ctrunctl: error[E_USAGE]: no verb %s; use ctrunctl %s\n", word,
                habit);
        return CT_EXIT_USAGE;
    }
    near = ctl_nearest(word, names);
    fprintf(stderr, "ctrunctl: error[E_USAGE]: no verb %s%s%s%s\n", word,
            near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    if (!near)
        print_usage(stderr);
    return CT_EXIT_USAGE;
}

static int run_verb(const struct ctl_verb *verb, int argc, char **argv)
{
    struct ctrun_error err;
    struct ctl_call call;
    int code = CT_EXIT_OK;

    if (ctl_parse(&call, verb, argc, argv, &err) < 0) {
        code = ctl_fail(&err);
        fprintf(stderr, "ctrunctl: ctrunctl %s --help has more\n", verb->name);
        return code;
    }
    if (call.wants_help)
        ctl_print_help(stdout, verb);
    else if (stack_limit_check("ctrunctl", &err) < 0)
        code = ctl_fail(&err);
    else
        code = verb->run(&call);
    return code;
}

/* Returns `code`, or an error if the output could not be written. */
static int end_output(int code)
{
    const int rc = fflush(stdout) == 0 ? 0 : -errno;
    struct ctrun_error err;

    if (rc == 0 && !ferror(stdout))
        return code;
    (void)ct_fail(&err, rc < 0 ? rc : -EIO, "standard output: %s",
                  rc < 0 ? strerror(-rc) : "not all of it could be written");
    return ctl_fail(&err);
}

int ctl_main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "--help";

    ct_std_streams_fill();
    (void)signal(SIGPIPE, SIG_DFL); /* end quietly when the reader quits */
    if (argc < 2) {
        print_usage(stderr);
        return CT_EXIT_USAGE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
        strcmp(word, "help") == 0) {
        print_usage(stdout);
        return end_output(CT_EXIT_OK);
    }
    if (strcmp(word, "--version") == 0) {
        printf("ctrunctl %s\n", ctrun_version());
        return end_output(CT_EXIT_OK);
    }
    if (strcmp(word, "--print-completion") == 0)
        return end_output(ctl_completion_print(verbs, argv[2]));
    for (int i = 0; i < VERB_COUNT; i++)
        if (strcmp(word, verbs[i]->name) == 0)
            return end_output(run_verb(verbs[i], argc - 2, argv + 2));
    return refuse_verb(word);
}
