/* SPDX-License-Identifier: Apache-2.0 */
/* When workers are stopped, and how: signals, times of grace and patience, the end of the allocation, the
 * exit code. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/config/run_config.h"
#include "launcher/options/exit_style.h"
#include "launcher/options/failure_rules.h"
#include "launcher/options/option.h"

enum {
    CONFIG_SIGNALS_MAX = 64
};

struct stop_config {
    uint64_t grace_ms;
    uint64_t
        signal_grace_ms; /* after a signal to ctrun; from the batch system if known */
    uint64_t survivor_grace_ms; /* after a rank is lost, before the stop */
    uint64_t
        survive_ms;   /* for the others to continue by themselves; 0: they never do */
    bool frees_peers; /* --survive=torch */
    uint32_t survive_replace;        /* lost ranks that are started again, in the run */
    uint64_t delay_ms, delay_max_ms; /* --restart-delay; 0: none */
    uint64_t budget_ms;              /* of a restart; 0: no limit */
    uint64_t hang_timeout_ms;        /* without a step; 0: not watched */
    bool finds_stragglers;
    uint64_t gpu_wait_ms;    /* --gpu-wait; 0: not at all */
    uint64_t exclude_after;  /* --exclude-node-after; 0: never */
    uint64_t min_uptime_ms;  /* a failure before is an early one; 0: none is */
    uint64_t stuck_limit_ms; /* in uninterruptible sleep; 0: not looked at */
    int signals[CONFIG_SIGNALS_MAX];
    size_t signal_count;
    const char *signals_text;   /* as given, for TORCHELASTIC_SIGNALS_TO_HANDLE */
    bool allows_chaos;          /* --allow-chaos */
    bool keeps_signals;         /* --signal-scope=node */
    int64_t end_s;              /* of the job's time, seconds since 1970; 0: unknown */
    uint64_t stop_before_end_s; /* 0: nothing is done before it */
    int end_signal;             /* what is done: this signal to the workers */
    uint64_t end_grace_ms;      /* at most, for them after the signal */
    int requeue_exit; /* 0: none; else the code of a run cut short but saved */
    enum exit_style exit_style;
    struct failure_rules rules; /* --failure-rules; may be empty */
};

/* Texts of `options` are kept. 0 or a code, as config_resolve(). */
int stop_config_resolve(struct stop_config *out, const struct options *options,
                        char *const *env, const struct run_config *run,
                        uint64_t join_timeout_ms, struct ctrun_error *err);

void stop_config_deinit(struct stop_config *config);
