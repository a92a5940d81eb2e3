/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "worker_sdk/base/clock.h"

enum {
    BAR_WIDTH = 30,
    DRAW_MS = 100
};

static bool is_draw_due(const struct cnn_report *report, uint64_t step)
{
    return report->bar &&
           (step == report->steps || ct_now_ms() - report->last_draw_ms >= DRAW_MS);
}

static bool is_line_due(const struct cnn_report *report, uint64_t step)
{
    return report->log_interval && !report->bar && step % report->log_interval == 0;
}

bool cnn_report_is_due(const struct cnn_report *report, uint64_t step)
{
    return report->out && (is_draw_due(report, step) || is_line_due(report, step));
}

static void draw(struct cnn_report *report, const struct cnn_progress *at)
{
    char bar[BAR_WIDTH + 1];
    const uint64_t filled = report->steps ? at->step * BAR_WIDTH / report->steps : 0;

    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', filled < BAR_WIDTH ? filled : BAR_WIDTH);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr,
            "\repoch %" PRIu64 "/%" PRIu64 " [%s] %" PRIu64 "/%" PRIu64
            "  loss %.4f  %.0f images/s\033[K",
            at->epoch, report->epochs, bar, at->step, report->steps,
            report->count ? report->loss / (double)report->count : 0.0,
            at->images_per_s);
    fflush(stderr);
    report->last_draw_ms = ct_now_ms();
}

static void clear_bar(const struct cnn_report *report)
{
    if (report->bar)
        fputs("\r\033[K", stderr);
}

void cnn_report_step(struct cnn_report *report, const struct cnn_progress *at,
                     double loss, uint64_t count)
{
    const bool is_due = cnn_report_is_due(report, at->step);
    double mean;

    if (!report->out)
        return;
    report->loss += loss;
    report->count += count;
    if (!is_due)
        return;
    mean = report->count ? report->loss / (double)report->count : 0.0;
    if (report->bar)
        draw(report, at);
    else if (report->json)
        fprintf(report->out,
                "{\"epoch\": %" PRIu64 ", \"step\": %" PRIu64 ", \"loss\": %.9g}\n",
                at->epoch, at->step, mean);
    else
        fprintf(report->out,
                "epoch %" PRIu64 "/%" PRIu64 " step %" PRIu64 "/%" PRIu64
                " loss %.6f %.0f images/s\n",
                at->epoch, report->epochs, at->step, report->steps, mean,
                at->images_per_s);
    fflush(report->out);
    report->loss = 0;
    report->count = 0;
}

void cnn_report_epoch(struct cnn_report *report, const struct cnn_epoch_result *result)
{
    report->loss = 0;
    report->count = 0;
    if (!report->out)
        return;
    clear_bar(report);
    if (report->json)
        fprintf(report->out,
                "{\"epoch\": %" PRIu64 ", \"loss\": %.9g, \"test_accuracy\": %.6g"
                ", \"seconds\": %.3f, \"images_per_s\": %.1f, \"params_digest\": "
                "\"%016" PRIx64 "\"}\n",
                result->epoch, result->loss, result->test_accuracy, result->seconds,
                result->images_per_s, result->digest);
    else
        fprintf(report->out,
                "epoch %" PRIu64 "/%" PRIu64 ": loss %.4f, test accuracy %.2f %%, "
                "%.1f s, %.0f images/s\n",
                result->epoch, report->epochs, result->loss,
                100 * result->test_accuracy, result->seconds, result->images_per_s);
    fflush(report->out);
}

void cnn_report_stop(struct cnn_report *report, const char *why, uint64_t step,
                     uint64_t digest)
{
    if (!report->out)
        return;
    clear_bar(report);
    if (report->json)
        fprintf(report->out,
                "{\"stopped\": \"%s\", \"step\": %" PRIu64
                ", \"params_digest\": \"%016" PRIx64 "\"}\n",
                why, step, digest);
    else
        fprintf(report->out, "stopped after step %" PRIu64 ": %s\n", step, why);
    fflush(report->out);
}

void cnn_report_note(struct cnn_report *report, const char *fmt, ...)
{
    va_list list;

    if (!report->out)
        return;
    clear_bar(report);
    va_start(list, fmt);
    vfprintf(stderr, fmt, list);
    va_end(list);
    fputc('\n', stderr);
}
