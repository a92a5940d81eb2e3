/* SPDX-License-Identifier: Apache-2.0 */
/* Output of the training for people and scripts: a progress bar on a terminal, lines elsewhere,
 * JSON lines on request. Only rank 0 has a report; with a NULL `out` everything is silent.
 *
 * Results (epochs) go to standard output; the bar goes to standard error. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cnn_report {
    FILE *out; /* NULL: this rank prints nothing */
    bool json;
    bool bar;              /* draw on standard error */
    uint64_t log_interval; /* steps between lines; 0: none */
    uint64_t epochs;
    uint64_t steps; /* of an epoch */
    uint64_t last_draw_ms;
    double loss; /* since the last line */
    uint64_t count;
};

struct cnn_progress {
    uint64_t epoch; /* from 1 */
    uint64_t step;  /* in this epoch, from 1 */
    double images_per_s;
};

/* True when the loss up to this step will be shown now. */
bool cnn_report_is_due(const struct cnn_report *report, uint64_t step);
/* Adds the loss sum of `count` samples, and shows what is due. */
void cnn_report_step(struct cnn_report *report, const struct cnn_progress *at,
                     double loss, uint64_t count);

struct cnn_epoch_result {
    uint64_t epoch; /* from 1 */
    double loss;    /* mean over the epoch */
    double test_accuracy;
    double seconds; /* of training, without the test */
    double images_per_s;
    uint64_t digest;
};
void cnn_report_epoch(struct cnn_report *report, const struct cnn_epoch_result *result);
/* The training ends before its last epoch is done; why is a few words. */
void cnn_report_stop(struct cnn_report *report, const char *why, uint64_t step,
                     uint64_t digest);
/* Prints a note, for people only. */
__attribute__((format(printf, 2, 3))) void cnn_report_note(struct cnn_report *report,
                                                           const char *fmt, ...);
