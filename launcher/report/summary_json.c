/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/summary_json.h"

#include "launcher/report/fact_label.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

enum {
    FILE_MAX_BYTES = 1024 * 1024 /* sixteen failures with every byte escaped, as many
                                    of earlier rounds, as many bills, starts of ranks */
};

struct page {
    struct ct_writer out;
    bool is_first; /* of its object or list */
};

/* ---- JSON ---------------------------------------------------------------------------- */

/* The writer remembers when something did not fit; it is asked once, at the end. */
static void put(struct page *page, const char *text)
{
    ct_write_text(&page->out, text);
}

static void begin(struct page *page, const char *bracket)
{
    put(page, bracket);
    page->is_first = true;
}

static void end(struct page *page, const char *bracket)
{
    put(page, bracket);
    page->is_first = false;
}

static void next(struct page *page)
{
    put(page, page->is_first ? "" : ",");
    page->is_first = false;
}

static void key(struct page *page, const char *name)
{
    next(page);
    ct_json_write_str(&page->out, name);
    put(page, ":");
}

static void add_text(struct page *page, const char *name, const char *text)
{
    key(page, name);
    if (text)
        ct_json_write_str(&page->out, text);
    else
        put(page, "null");
}

static void add_number(struct page *page, const char *name, int64_t number)
{
    char text[24];

    (void)ct_format(text, sizeof text, "%lld", (long long)number);
    key(page, name);
    put(page, text);
}

/* ---- Failures ------------------------------------------------------------------------ */

static void add_facts(struct page *page, const struct ct_facts *facts)
{
    key(page, "facts");
    begin(page, "[");
    for (int i = 0; i < facts->count; i++) {
        next(page);
        begin(page, "{");
        add_text(page, "label", fact_label(facts->list[i].key));
        add_text(page, "text", ct_facts_text(facts, i));
        end(page, "}");
    }
    end(page, "]");
}

/* As Python has it; null: nobody saw it end. */
static void add_end_code(struct page *page, int code)
{
    if (code)
        add_number(page, "exit_code", code);
    else
        add_text(page, "exit_code", NULL);
}

static void add_failure(struct page *page, const struct ct_failure *failure)
{
    next(page);
    begin(page, "{");
    add_text(page, "cause", ct_cause_name(failure->cause));
    add_text(page, "error",
             failure->cause == CT_CAUSE_EARLY || failure->cause == CT_CAUSE_ENDED
                 ? NULL
                 : ct_error_name(summary_code_of(failure)));
    add_number(page, "code", failure->code);
    add_end_code(page, summary_python_code(failure));
    add_text(page, "host", failure->host);
    add_number(page, "node_rank", failure->node_rank);
    add_number(page, "rank", failure->rank);
    add_number(page, "local_rank", failure->local_rank);
    add_number(page, "pid", failure->pid);
    add_number(page, "generation", (int64_t)failure->generation);
    add_number(page, "restart_count", failure->restart_count);
    add_number(page, "time_ns", (int64_t)failure->wall_ns);
    add_number(page, "uptime_ms", (int64_t)failure->uptime_ms);
    add_number(page, "step", failure->step);
    add_number(page, "later_ms", (int64_t)failure->later_ms);
    add_text(page, "error_file", failure->error_file[0] ? failure->error_file : NULL);
    add_text(page, "exception", failure->exception[0] ? failure->exception : NULL);
    add_text(page, "text", failure->text);
    add_facts(page, &failure->facts);
    end(page, "}");
}

static void add_failures(struct page *page, const struct ct_verdict *verdict)
{
    key(page, "failures");
    begin(page, "[");
    for (int i = 0; i < verdict->failure_count && i < CT_FAILURES_MAX; i++)
        add_failure(page, &verdict->failures[i]);
    end(page, "]");
    add_number(page, "more_failed", verdict->more.failed);
    add_number(page, "more_stopped", verdict->more.stopped);
}

static void add_past(struct page *page, const struct past_failures *past)
{
    key(page, "earlier_failures");
    begin(page, "[");
    for (uint32_t i = 0; past && i < past->count; i++)
        add_failure(page, &past->list[i]->cause);
    end(page, "]");
    add_number(page, "more_earlier", past ? past->left_out : 0);
}

/* ---- Starts and restarts ------------------------------------------------------------- */

static void add_flag(struct page *page, const char *name, bool is_on)
{
    key(page, name);
    put(page, is_on ? "true" : "false");
}

static void add_bill(struct page *page, const struct bills_item *item)
{
    begin(page, "{");
    add_number(page, "generation", (int64_t)item->generation);
    add_number(page, "restart_count", item->restart_count);
    add_number(page, "total_ms", (int64_t)item->sum.total_ms);
    key(page, "parts");
    bill_write_parts(&page->out, &item->sum);
    key(page, "unknown");
    bill_write_phases(&page->out, item->sum.unknown);
    if (item->lost_steps >= 0)
        add_number(page, "lost_steps", item->lost_steps);
    else
        add_text(page, "lost_steps", NULL);
    add_flag(page, "is_whole", item->is_whole);
    add_flag(page, "is_over_budget", item->is_over);
    end(page, "}");
}

/* The starts of the ranks in the first start; null: not known. */
static void add_ranks(struct page *page, const struct bills *bills)
{
    key(page, "start_ranks");
    if (!bills->ranks) {
        put(page, "null");
        return;
    }
    begin(page, "[");
    for (int i = 0; i < bills->rank_count; i++) {
        next(page);
        bill_write_rank(&page->out, &bills->ranks[i]);
    }
    end(page, "]");
}

static void add_bills(struct page *page, const struct bills *bills)
{
    key(page, "start");
    if (bills->has_start)
        add_bill(page, &bills->start);
    else
        put(page, "null");
    add_ranks(page, bills);
    add_number(page, "more_start_ranks", bills->more_ranks);
    key(page, "restarts");
    begin(page, "[");
    for (uint32_t i = 0; i < bills->count && i < BILLS_MAX; i++) {
        next(page);
        add_bill(page, &bills->list[i]);
    }
    end(page, "]");
    add_number(page, "more_restarts",
               bills->count > BILLS_MAX ? bills->count - BILLS_MAX : 0);
}

/* ---- The whole ----------------------------------------------------------------------- */

const char *summary_json_outcome(uint8_t outcome)
{
    static const char *const names[] = {[CT_OUTCOME_SUCCEEDED] = "succeeded",
                                        [CT_OUTCOME_FAILED] = "failed",
                                        [CT_OUTCOME_JOIN_TIMEOUT] = "join_timeout",
                                        [CT_OUTCOME_NODES_LOST] = "nodes_lost",
                                        [CT_OUTCOME_CLOSED] = "closed",
                                        [CT_OUTCOME_CRASH_LOOP] = "crash_loop"};

    return outcome < sizeof names / sizeof *names ? names[outcome] : NULL;
}

static const char *outcome_of(const struct summary_json *json)
{
    const char *name;

    if (json->signal)
        return "signal";
    if (json->error->code && json->error->code != CTRUN_E_BUDGET)
        return "error";
    name = summary_json_outcome(json->summary->verdict->outcome);
    return name ? name : "error";
}

/* The name in the first line of the block; NULL when all is well. */
static const char *error_of(const struct summary_json *json)
{
    const struct ct_verdict *verdict = json->summary->verdict;

    if (json->error->code)
        return ct_error_name(json->error->code);
    if (json->signal || verdict->outcome == CT_OUTCOME_SUCCEEDED)
        return NULL;
    if (verdict->outcome == CT_OUTCOME_CRASH_LOOP)
        return ct_error_name(CTRUN_E_CRASH_LOOP);
    if (verdict->failure_count)
        return ct_error_name(summary_code_of(&verdict->failures[0]));
    switch ((enum ct_outcome)verdict->outcome) {
    case CT_OUTCOME_JOIN_TIMEOUT: return ct_error_name(CTRUN_E_JOIN_TIMEOUT);
    case CT_OUTCOME_NODES_LOST: return ct_error_name(CTRUN_E_PEER_LOST);
    case CT_OUTCOME_CLOSED: return ct_error_name(CTRUN_E_CLOSED);
    case CT_OUTCOME_SUCCEEDED:
    case CT_OUTCOME_CRASH_LOOP:
    case CT_OUTCOME_FAILED: break;
    }
    return ct_error_name(CTRUN_E_EXIT);
}

static void format_page(struct page *page, const struct summary_json *json)
{
    const struct summary *summary = json->summary;
    const struct ct_verdict *verdict = summary->verdict;
    char version[32];

    (void)ct_format(version, sizeof version, "%d.%d.%d", CTRUN_VERSION_MAJOR,
                    CTRUN_VERSION_MINOR, CTRUN_VERSION_PATCH);
    begin(page, "{");
    add_number(page, "version", SUMMARY_JSON_VERSION);
    add_text(page, "ctrun", version);
    add_text(page, "run_id", summary->run_id);
    add_text(page, "program", summary->name);
    add_text(page, "host", json->host);
    add_text(page, "outcome", outcome_of(json));
    add_text(page, "error", error_of(json));
    add_text(page, "message",
             json->error->code ? json->error->text
             : *json->asked    ? json->asked
                               : NULL);
    add_number(page, "exit_code", json->exit_code);
    add_text(page, "exit_code_from", json->is_workers_code ? "worker" : "ctrun");
    add_number(page, "signal", json->signal);
    add_text(page, "reason", json->allocation_ends ? SUMMARY_JSON_ALLOCATION : NULL);
    add_number(page, "generation", (int64_t)verdict->generation);
    add_number(page, "restart_count", verdict->restart_count);
    add_number(page, "max_restarts", summary->max_restarts);
    add_number(page, "requeues", json->earlier->requeues);
    add_text(page, "batch_task", *json->batch_task ? json->batch_task : NULL);
    add_number(page, "total_restarts",
               (int64_t)(verdict->restart_count + json->earlier->restarts));
    add_number(page, "unknown_starts", json->earlier->unknown);
    add_number(page, "time_ns", (int64_t)ct_wall_ns());
    add_number(page, "duration_ms", (int64_t)json->duration_ms);
    add_text(page, "log_dir", summary->log_dir);
    add_failures(page, verdict);
    add_past(page, summary->past);
    add_bills(page, json->bills);
    end(page, "}\n");
}

char *summary_json_format(const struct summary_json *json, size_t *length)
{
    struct page page = {.is_first = true};
    char *text = ct_zalloc(FILE_MAX_BYTES);

    if (!text)
        return NULL;
    ct_writer_init(&page.out, text, FILE_MAX_BYTES);
    format_page(&page, json);
    /* No file rather than a truncated one: a reader must not take a part for the whole. */
    if (ct_write_end(&page.out) < 0) {
        free(text);
        return NULL;
    }
    *length = page.out.length;
    return text;
}
