/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

/* A text to append to; bad once something did not fit. */
struct text {
    char *at;
    size_t size, used;
    bool is_bad;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text,
                                                      const char *fmt, ...)
{
    va_list list;
    int length;

    va_start(list, fmt);
    length = vsnprintf(text->at + text->used, text->size - text->used, fmt, list);
    va_end(list);
    if (length < 0 || (size_t)length >= text->size - text->used)
        text->is_bad = true;
    else
        text->used += (size_t)length;
}

static void add_bucket_bytes(struct text *text, const struct ct_layout *layout)
{
    for (size_t b = 0; b < layout->bucket_count; b++)
        add(text, "%s%zu", b ? ", " : "", layout->buckets[b].bytes);
}

/* ---- A step ------------------------------------------------------------------------------ */

int ct_stats_init(struct ct_stats *stats, const struct ct_layout *layout)
{
    struct text text = {.at = stats->first_buckets,
                        .size = sizeof stats->first_buckets};

    stats->ready = ct_zalloc_array(layout->slot_count, sizeof *stats->ready);
    stats->ready_last = ct_zalloc_array(layout->slot_count, sizeof *stats->ready);
    add_bucket_bytes(&text, layout); /* a list that is too long ends early */
    return stats->ready && stats->ready_last ? 0 : -ENOMEM;
}

void ct_stats_deinit(struct ct_stats *stats)
{
    free(stats->ready);
    free(stats->ready_last);
    *stats = (struct ct_stats){.iterations = 0};
}

void ct_stats_begin_backward(struct ct_stats *stats)
{
    stats->backward_ns = ct_now_ns();
    stats->grads_ns = stats->comm_ns = 0;
    stats->ready_count = 0;
}

void ct_stats_on_ready(struct ct_stats *stats, const struct ct_layout *layout, size_t s)
{
    stats->grads_ns = ct_now_ns();
    if (stats->ready_count < layout->slot_count)
        /* bounded: with a static graph a parameter may be ready more than once in a step */
        stats->ready[stats->ready_count++] = layout->slots[s].param;
}

static uint64_t span(uint64_t from, uint64_t to)
{
    return from && to > from ? to - from : 0;
}

/* Swaps the two arrays of ready gradients, so that the running step never writes to the order of
 * the last one. The average is of whole numbers and rounds down at each step. */
void ct_stats_end_step(struct ct_stats *stats, bool is_waited)
{
    size_t *ready = stats->ready;

    stats->starts[CT_TIME_FORWARD] = stats->forward_ns;
    stats->ends[CT_TIME_FORWARD] = stats->backward_ns;
    stats->starts[CT_TIME_BACKWARD] = stats->backward_ns;
    stats->starts[CT_TIME_COMM] = stats->starts[CT_TIME_OVERLAP] = stats->comm_ns;
    stats->ends[CT_TIME_BACKWARD] = stats->ends[CT_TIME_OVERLAP] = stats->grads_ns;
    stats->ends[CT_TIME_COMM] = is_waited && stats->comm_ns ? ct_now_ns() : 0;
    stats->samples++;
    for (int t = 0; t < CT_TIMES; t++) {
        stats->last[t] = span(stats->starts[t], stats->ends[t]);
        stats->average[t] = (stats->last[t] +
                             stats->average[t] * (stats->samples - 1)) /
                            stats->samples;
    }
    stats->ready = stats->ready_last;
    stats->ready_last = ready;
    stats->ready_last_count = stats->ready_count;
    stats->ready_count = 0;
}

/* ---- torch's names ----------------------------------------------------------------------- */

static void add_params(struct text *text, const struct ct_stats_facts *facts)
{
    static const char *const names[] = {[CTRUN_F16] = "c10::Half",
                                        [CTRUN_BF16] = "c10::BFloat16",
                                        [CTRUN_F32] = "float",
                                        [CTRUN_F64] = "double"};
    const struct ct_layout *layout = facts->layout;
    bool has[CTRUN_I8 + 1] = {false};
    size_t bytes = 0;

    for (size_t s = 0; s < layout->slot_count; s++)
        bytes += layout->slots[s].bytes;
    add(text, ", \"num_parameter_tensors\": %zu, \"total_parameter_size_bytes\": %zu",
        layout->slot_count, bytes);
    add(text, ", \"dtypes\": \"");
    for (size_t s = 0, n = 0; s < layout->slot_count; s++) {
        const enum ctrun_dtype dtype = layout->slots[s].dtype;

        if (!has[dtype])
            add(text, "%s%s", n++ ? ", " : "", names[dtype]);
        has[dtype] = true;
    }
    add(text, "\"");
}

static void add_options(struct text *text, const struct ct_stats_facts *facts)
{
    const struct ctrun_ddp_options *options = facts->options;
    bool has_buffers = false;

    for (size_t p = 0; p < facts->param_count; p++)
        has_buffers = has_buffers || facts->params[p].is_buffer;
    add(text, ", \"backend_name\": \"%s\"", facts->is_device ? "nccl" : "host");
    add(text, ", \"broadcast_buffers\": %d", has_buffers);
    /* what torch says of a module on one device without such layers */
    add(text, ", \"is_multi_device_module\": 0, \"has_sync_bn\": 0");
    add(text, ", \"bucket_cap_bytes\": %zu", options->bucket_cap_bytes);
    add(text, ", \"find_unused_parameters\": %d, \"static_graph\": %d",
        options->find_unused, options->static_graph);
    add(text, ", \"gradient_as_bucket_view\": 1, \"join_uneven_inputs\": %d",
        facts->is_joining);
    if (options->hook || options->powersgd || options->reduce_dtype != CTRUN_F32)
        add(text, ", \"comm_hook\": \"%s\"",
            options->hook                        ? "hook"
            : options->powersgd                  ? "powersgd"
            : options->reduce_dtype == CTRUN_F16 ? "fp16_compress"
                                                 : "bf16_compress");
}

static void add_buckets(struct text *text, const struct ct_stats *stats,
                        const struct ct_stats_facts *facts)
{
    const struct ct_bucket_plan *plan = &facts->layout->plan;

    add(text, ", \"bucket_sizes\": \"%s\", \"has_rebuilt_buckets\": %d",
        stats->first_buckets, facts->has_rebuilt);
    if (facts->has_rebuilt) {
        add(text, ", \"rebuilt_bucket_sizes\": \"");
        add_bucket_bytes(text, facts->layout);
        add(text, "\", \"rebuilt_per_bucket_param_indices\": \"");
        for (size_t b = 0; b < plan->count; b++)
            for (size_t i = plan->starts[b]; i < plan->starts[b + 1]; i++)
                add(text, "%s%zu",
                    i > plan->starts[b] ? " "
                    : b                 ? ", "
                                        : "",
                    facts->layout->slots[plan->members[i]].param);
        add(text, "\"");
    }
    add(text, ", \"prev_iteration_grad_ready_order_indices\": \"");
    for (size_t i = 0; i < stats->ready_last_count; i++)
        add(text, "%s%zu", i ? ", " : "", stats->ready_last[i]);
    add(text, "\"");
}

int ct_stats_format(const struct ct_stats *stats, const struct ct_stats_facts *facts,
                    char *out, size_t size)
{
    static const char *const names[] = {
        [CT_TIME_FORWARD] = "forward_compute_time",
        [CT_TIME_BACKWARD] = "backward_compute_time",
        [CT_TIME_COMM] = "backward_comm_time",
        [CT_TIME_OVERLAP] = "backward_compute_comm_overlap_time"};
    static const bool has_start[CT_TIMES] = {
        [CT_TIME_FORWARD] = true, [CT_TIME_BACKWARD] = true, [CT_TIME_COMM] = true};
    static const bool has_end[CT_TIMES] = {
        [CT_TIME_BACKWARD] = true, [CT_TIME_COMM] = true};
    struct text text = {.at = out, .size = size, .is_bad = size == 0};

    add(&text, "{\"world_size\": %d, \"rank\": %d, \"iteration\": %" PRIu64,
        facts->world_size, facts->rank, stats->iterations);
    add_params(&text, facts);
    add_options(&text, facts);
    add_buckets(&text, stats, facts);
    for (int t = 0; t < CT_TIMES; t++)
        add(&text, ", \"%s\": %" PRIu64 ", \"avg_%s\": %" PRIu64, names[t],
            stats->last[t], names[t], stats->average[t]);
    for (int t = 0; t < CT_TIMES; t++) {
        if (has_start[t])
            add(&text, ", \"%s_start\": %" PRIu64, names[t], stats->starts[t]);
        if (has_end[t])
            add(&text, ", \"%s_end\": %" PRIu64, names[t], stats->ends[t]);
    }
    add(&text, "}");
    return text.is_bad ? -ENOSPC : (int)text.used;
}
