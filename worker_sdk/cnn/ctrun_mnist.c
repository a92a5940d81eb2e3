/* SPDX-License-Identifier: Apache-2.0 */
/* ctrun-mnist - the reference trainer: a CNN on MNIST, on one worker or many.
 *
 * SIGTERM ends it at the next step with a checkpoint and status 143, SIGUSR1 (a scheduler's
 * warning) with a checkpoint and status 0: a restarted worker continues from there. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/cnn/options.h"

enum {
    EXIT_USAGE = 2,
    EXIT_TERMINATED = 128 + SIGTERM
};

static volatile sig_atomic_t terminated;

static void on_terminate(int signal)
{
    terminated = signal;
}

/* Called when there is something to save. Until then SIGTERM ends us at once, also where we wait
 * for a peer that has died before it came. */
static void catch_terminate(void)
{
    struct sigaction action = {.sa_handler = on_terminate, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static void complain(const struct ctrun_error *err)
{
    fprintf(stderr, "ctrun-mnist: error[%s]: %s\n", ct_error_name(err->code),
            err->text);
}

int main(int argc, char **argv)
{
    struct cnn_train_options options;
    struct ctrun_error err = {0};
    int rc = cnn_options_parse(&options, argc, argv, &err);

    if (rc == 1) {
        cnn_options_help(stdout);
        return 0;
    }
    if (rc == 2) {
        printf("ctrun-mnist %s\n", ctrun_version());
        return 0;
    }
    if (rc < 0) {
        complain(&err);
        return EXIT_USAGE;
    }
    rc = cnn_train(&options, &terminated, catch_terminate, &err);
    if (rc < 0) {
        const char *file = getenv("TORCHELASTIC_ERROR_FILE");

        if (rc == CTRUN_E_USAGE ||
            (file && *file)) /* else ctrun_fail_worker() prints it */
            complain(&err);
        return rc == CTRUN_E_USAGE ? EXIT_USAGE : ctrun_fail_worker(&err);
    }
    return rc == CNN_TERMINATED ? EXIT_TERMINATED : 0;
}
