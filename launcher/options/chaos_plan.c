/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/chaos_plan.h"

#include <errno.h>
#include <signal.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/signal_name.h"
#include "worker_sdk/base/str.h"

enum {
    LINE_MAX_BYTES = 256,
    TIME_MAX_MS = 7 * 24 * 3600 * 1000,
    EVERY_MIN_MS = 10,
    WORDS_MAX = 12,
};

enum { /* the keys of a fault; all but `signal` are required */
    TAKES_RANK = 1u << 0,
    TAKES_NODE = 1u << 1,
    TAKES_SIGNAL = 1u << 2,
    TAKES_FOR = 1u << 3,
    TAKES_BY = 1u << 4,
    TAKES_TO = 1u << 5,
};

static const struct {
    const char *name;
    unsigned takes;
    enum ct_fault_kind kind;
} kinds[] = {
    {"kill", TAKES_RANK | TAKES_SIGNAL, CT_FAULT_KILL},
    {"stop", TAKES_RANK | TAKES_FOR, CT_FAULT_STOP},
    {"cut", TAKES_NODE | TAKES_FOR, CT_FAULT_CUT},
    {"slow", TAKES_NODE | TAKES_BY | TAKES_FOR, CT_FAULT_SLOW},
    {"full", TAKES_NODE | TAKES_FOR, CT_FAULT_FULL},
    {"sever", TAKES_RANK, CT_FAULT_SEVER},
    {"quota", TAKES_NODE | TAKES_FOR, CT_FAULT_QUOTA},
    {"throttle", TAKES_NODE | TAKES_TO | TAKES_FOR, CT_FAULT_THROTTLE},
};

/* By bit of `takes`. */
static const char *const keys[] = {"rank", "node", "signal", "for", "by", "to"};

enum {
    KIND_COUNT = sizeof kinds / sizeof *kinds,
    KEY_COUNT = sizeof keys / sizeof *keys
};

/* ---- One line ---------------------------------------------------------------------------- */

static int parse_time(const char *text, uint64_t min_ms, uint64_t max_ms, uint64_t *out,
                      struct ctrun_error *err)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 3600 * 1000}};
    const size_t digits = strspn(text, "0123456789");
    char number[24];
    uint64_t value;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text + digits, units[i].unit) != 0 ||
            ct_format(number, sizeof number, "%.*s", (int)digits, text) < 0 ||
            ct_parse_u64(number, 0, max_ms / units[i].ms, &value) < 0)
            continue;
        *out = value * units[i].ms;
        if (*out >= min_ms)
            return 0;
    }
    return ct_fail(
        err, CTRUN_E_USAGE,
        "'%.40s': want a time from %llums to %llum, such as 500ms, 10s or 2m", text,
        (unsigned long long)min_ms, (unsigned long long)max_ms / 60000);
}

/* "10s", or "10s..20s". */
static int parse_when(char *text, uint64_t min_ms, struct chaos_line *line,
                      struct ctrun_error *err)
{
    char *dots = strstr(text, "..");
    int rc;

    if (dots)
        *dots = '\0';
    if ((rc = parse_time(text, min_ms, TIME_MAX_MS, &line->from_ms, err)) < 0)
        return rc;
    line->to_ms = line->from_ms;
    if (dots && (rc = parse_time(dots + 2, min_ms, TIME_MAX_MS, &line->to_ms, err)) < 0)
        return rc;
    return line->to_ms >= line->from_ms
               ? 0
               : ct_fail(err, CTRUN_E_USAGE, "%s..%s: the end is before the beginning",
                         text, dots + 2);
}

static int parse_target(const char *value, struct chaos_line *line,
                        struct ctrun_error *err)
{
    uint64_t target = 0;

    line->is_any = strcmp(value, "any") == 0;
    if (!line->is_any && ct_parse_u64(value, 0, INT32_MAX, &target) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "'%.40s': want a number from 0 on, or any",
                       value);
    line->fault.target = line->is_any ? -1 : (int32_t)target;
    return 0;
}

/* Refuses signals that stop a process: nothing would continue the process. */
static int parse_signal(const char *value, struct ct_fault *fault,
                        struct ctrun_error *err)
{
    const int signal = ct_signal_parse(value);

    if (signal < 0)
        return ct_fail(err, CTRUN_E_USAGE, "signal=%.40s: there is no such signal",
                       value);
    if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN ||
        signal == SIGTTOU)
        return ct_fail(err, CTRUN_E_USAGE,
                       "signal=%.40s stops the process and nothing continues it: want "
                       "stop rank=N for=TIME",
                       value);
    fault->signal = signal;
    return 0;
}

/* "10M": bytes a second; K, M and G are powers of 1024. */
static int parse_rate(const char *text, struct ct_fault *fault, struct ctrun_error *err)
{
    static const char units[] = "KMG";
    const size_t digits = strspn(text, "0123456789");
    const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    char number[24];
    uint64_t value;

    if ((text[digits] && (!unit || text[digits + 1])) ||
        ct_format(number, sizeof number, "%.*s", (int)digits, text) < 0 ||
        ct_parse_u64(number, 1, CT_FAULT_RATE_MAX >> shift, &value) < 0 ||
        value << shift < CT_FAULT_RATE_MIN)
        return ct_fail(err, CTRUN_E_USAGE,
                       "'%.40s': want bytes a second from 1K to 1G, such as 500K or "
                       "10M",
                       text);
    fault->by = (uint32_t)(value << shift);
    return 0;
}

static int take_value(unsigned key, const char *value, struct chaos_line *line,
                      struct ctrun_error *err)
{
    uint64_t ms = 0;
    int rc;

    if (key & (TAKES_RANK | TAKES_NODE))
        return parse_target(value, line, err);
    if (key == TAKES_SIGNAL)
        return parse_signal(value, &line->fault, err);
    if (key == TAKES_TO)
        return parse_rate(value, &line->fault, err);
    rc = parse_time(value, 1,
                    key == TAKES_FOR ? CT_FAULT_FOR_MAX_MS : CT_FAULT_BY_MAX_MS, &ms,
                    err);
    if (key == TAKES_FOR)
        line->fault.for_ms = (uint32_t)ms;
    else
        line->fault.by = (uint32_t)ms;
    return rc;
}

static int take_word(char *word, int kind, unsigned *given, struct chaos_line *line,
                     struct ctrun_error *err)
{
    char *equals = strchr(word, '=');
    int key = 0;

    if (equals)
        *equals = '\0';
    while (key < KEY_COUNT && strcmp(word, keys[key]) != 0)
        key++;
    if (!equals && key < KEY_COUNT && kinds[kind].takes & 1u << key)
        return ct_fail(err, CTRUN_E_USAGE, "'%.40s': want %s=...", word, word);
    if (!equals || key == KEY_COUNT || !(kinds[kind].takes & 1u << key))
        return ct_fail(err, CTRUN_E_USAGE, "%s does not take '%.40s'", kinds[kind].name,
                       word);
    if (*given & 1u << key)
        return ct_fail(err, CTRUN_E_USAGE, "%s= is given twice", word);
    *given |= 1u << key;
    return take_value(1u << key, equals + 1, line, err);
}

/* words[0] is at or every. */
static int parse_fault(char **words, int count, struct chaos_line *line,
                       struct ctrun_error *err)
{
    unsigned given = 0;
    int kind = 0, rc;

    line->repeats = strcmp(words[0], "every") == 0;
    if (count < 3)
        return ct_fail(err, CTRUN_E_USAGE, "want %s TIME FAULT ...", words[0]);
    if ((rc = parse_when(words[1], line->repeats ? EVERY_MIN_MS : 0, line, err)) < 0)
        return rc;
    while (kind < KIND_COUNT && strcmp(words[2], kinds[kind].name) != 0)
        kind++;
    if (kind == KIND_COUNT)
        return ct_fail(err, CTRUN_E_USAGE,
                       "no fault '%.40s': kill, stop, cut, slow, full, sever, quota or "
                       "throttle",
                       words[2]);
    line->fault.kind = (uint8_t)kinds[kind].kind;
    line->fault.signal = kinds[kind].kind == CT_FAULT_KILL ? SIGKILL : 0;
    for (int i = 3; i < count && rc == 0; i++)
        rc = take_word(words[i], kind, &given, line, err);
    for (int key = 0; key < KEY_COUNT && rc == 0; key++)
        if (kinds[kind].takes & ~(given | TAKES_SIGNAL) & 1u << key)
            rc = ct_fail(err, CTRUN_E_USAGE, "%s needs %s=", kinds[kind].name,
                         keys[key]);
    return rc;
}

/* A line with one value: seed or end. */
static int parse_setting(struct chaos_plan *plan, char **words, int count,
                         struct ctrun_error *err)
{
    const bool is_seed = strcmp(words[0], "seed") == 0;

    if (count != 2)
        return ct_fail(err, CTRUN_E_USAGE, "want %s %s", words[0],
                       is_seed ? "NUMBER" : "TIME");
    if (!is_seed)
        return parse_time(words[1], 1, TIME_MAX_MS, &plan->end_ms, err);
    return ct_parse_u64(words[1], 0, UINT64_MAX, &plan->seed) < 0
               ? ct_fail(err, CTRUN_E_USAGE, "seed %.40s: not a number", words[1])
               : 0;
}

static int split(char *line, char *words[WORDS_MAX])
{
    int count = 0;
    char *at = line;

    line[strcspn(line, "#")] = '\0';
    while (*(at += strspn(at, " \t\r")) != '\0' && count < WORDS_MAX) {
        words[count++] = at;
        at += strcspn(at, " \t\r");
        if (*at)
            *at++ = '\0';
    }
    return *at ? -E2BIG : count;
}

static int parse_line(struct chaos_plan *plan, char *text, int number,
                      struct ctrun_error *err)
{
    char *words[WORDS_MAX];
    const int count = split(text, words);
    int rc;

    if (count < 0)
        return ct_fail(err, CTRUN_E_USAGE, "more than %d words", WORDS_MAX);
    if (count == 0)
        return 0;
    if (strcmp(words[0], "seed") == 0 || strcmp(words[0], "end") == 0)
        return parse_setting(plan, words, count, err);
    if (strcmp(words[0], "at") != 0 && strcmp(words[0], "every") != 0)
        return ct_fail(err, CTRUN_E_USAGE, "'%.40s': want at, every, seed or end",
                       words[0]);
    if (plan->count == CHAOS_PLAN_LINES_MAX)
        return ct_fail(err, CTRUN_E_USAGE, "more than %d faults", CHAOS_PLAN_LINES_MAX);
    plan->lines[plan->count].fault.line = (uint32_t)number;
    if ((rc = parse_fault(words, count, &plan->lines[plan->count], err)) == 0)
        plan->count++;
    return rc;
}

static bool is_plain(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

/* ---- The whole plan ---------------------------------------------------------------------- */

static int check_end(const struct chaos_plan *plan, int *number,
                     struct ctrun_error *err)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->lines[i].repeats && plan->end_ms == 0) {
            *number = (int)plan->lines[i].fault.line;
            return ct_fail(err, CTRUN_E_USAGE,
                           "every: the plan has no end; add a line such as: end 10m");
        }
    return plan->count > 0 ? 0 : ct_fail(err, CTRUN_E_USAGE, "the plan has no fault");
}

int chaos_plan_parse(struct chaos_plan *out, const char *text, size_t length,
                     const char *name, struct ctrun_error *err)
{
    const char *const end = text + length;
    char line[LINE_MAX_BYTES];
    int number = 0, rc = 0;

    memset(out, 0, sizeof *out);
    while (text < end && rc == 0) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t part = (size_t)((newline ? newline : end) - text);

        number++;
        if (part >= sizeof line || !is_plain(text, part)) {
            rc = ct_fail(err, CTRUN_E_USAGE,
                         "the line is longer than %d bytes, or has control characters",
                         LINE_MAX_BYTES - 1);
            break;
        }
        memcpy(line, text, part);
        line[part] = '\0';
        rc = parse_line(out, line, number, err);
        text = newline ? newline + 1 : end;
    }
    if (rc == 0)
        rc = check_end(out, &number, err);
    if (rc < 0)
        ct_wrap(err, "%.300s:%d", name, number);
    return rc;
}

/* ---- The schedule ------------------------------------------------------------------------ */

/* splitmix64: public domain, Sebastiano Vigna. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t draw_between(uint64_t *state, uint64_t from, uint64_t to)
{
    return from + draw(state) % (to - from + 1);
}

struct schedule {
    struct chaos_step *steps;
    size_t count;
};

static int add(struct schedule *schedule, uint64_t at_ms, const struct ct_fault *fault,
               struct ctrun_error *err)
{
    if (schedule->count == CHAOS_PLAN_STEPS_MAX)
        return ct_fail(err, CTRUN_E_USAGE, "more than %d faults up to the end",
                       CHAOS_PLAN_STEPS_MAX);
    schedule->steps[schedule->count++] = (struct chaos_step){at_ms, *fault};
    return 0;
}

static int add_line(struct schedule *schedule, const struct chaos_plan *plan,
                    const struct chaos_line *line, uint32_t size,
                    struct ctrun_error *err)
{
    uint64_t state = plan->seed ^ line->fault.line * 0xd1342543de82ef95u;
    struct ct_fault fault = line->fault;
    const char *what = ct_fault_is_of_rank(&fault) ? "rank" : "node";
    uint64_t at_ms = 0;
    int rc;

    if (!line->is_any && (uint32_t)fault.target >= size)
        return ct_fail(err, CTRUN_E_USAGE, "%s=%d: the world has %ss 0 to %u", what,
                       fault.target, what, size - 1);
    do {
        at_ms += draw_between(&state, line->from_ms, line->to_ms);
        if (plan->end_ms > 0 && at_ms > plan->end_ms)
            return 0;
        if (line->is_any)
            fault.target = (int32_t)(draw(&state) % size);
        rc = add(schedule, at_ms, &fault, err);
    } while (rc == 0 && line->repeats);
    return rc;
}

static int compare(const void *a, const void *b)
{
    const struct chaos_step *x = a, *y = b;

    if (x->at_ms != y->at_ms)
        return x->at_ms < y->at_ms ? -1 : 1;
    return x->fault.line < y->fault.line ? -1 : x->fault.line > y->fault.line;
}

int chaos_plan_schedule(struct chaos_step **out, const struct chaos_plan *plan,
                        const char *name, uint32_t ranks, uint32_t nodes,
                        struct ctrun_error *err)
{
    struct schedule schedule = {
        .steps = ct_zalloc_array(CHAOS_PLAN_STEPS_MAX, sizeof *schedule.steps)};
    int rc = 0;

    *out = NULL;
    if (!schedule.steps)
        return ct_fail(err, -ENOMEM, "out of memory");
    for (int i = 0; i < plan->count && rc == 0; i++) {
        const struct chaos_line *line = &plan->lines[i];

        rc = add_line(&schedule, plan, line,
                      ct_fault_is_of_rank(&line->fault) ? ranks : nodes, err);
        if (rc < 0)
            ct_wrap(err, "%.300s:%u", name, line->fault.line);
    }
    if (rc < 0) {
        free(schedule.steps);
        return rc;
    }
    qsort(schedule.steps, schedule.count, sizeof *schedule.steps, compare);
    *out = schedule.steps;
    return (int)schedule.count;
}

void chaos_plan_format(char dst[CHAOS_STEP_TEXT_MAX], const struct ct_fault *fault)
{
    const char *name = "?", *signal = ct_signal_name(fault->signal);
    char more[64] = "";

    for (int i = 0; i < KIND_COUNT; i++)
        if (kinds[i].kind == fault->kind)
            name = kinds[i].name;
    if (fault->kind == CT_FAULT_KILL && signal)
        (void)ct_format(more, sizeof more, " signal=%s", signal);
    else if (fault->kind == CT_FAULT_KILL)
        (void)ct_format(more, sizeof more, " signal=%d", fault->signal);
    if (fault->kind == CT_FAULT_THROTTLE)
        (void)ct_format(more, sizeof more, " to=%u", fault->by);
    else if (fault->by > 0)
        (void)ct_format(more, sizeof more, " by=%ums", fault->by);
    if (fault->for_ms > 0)
        (void)ct_append(more, sizeof more, " for=%ums", fault->for_ms);
    (void)ct_format(dst, CHAOS_STEP_TEXT_MAX, "%s %s=%d%s", name,
                    ct_fault_is_of_rank(fault) ? "rank" : "node", fault->target, more);
}
