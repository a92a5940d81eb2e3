/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl explain: applies the rules for a failed worker's last output to each line of a log. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/error_file/json.h"
#include "agent/postmortem/failure_hints.h"
#include "launcher/ctl/ctl.h"
#include "launcher/options/failure_rules.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    LINE_MAX_BYTES = 8192, /* each piece of a longer line is checked alone */
    SHOWN_MAX_BYTES = 300,
    CODE_FIRST = -20000, /* our codes begin below it */
    CODES_MAX = 100
};

static const struct ctl_option options[] = {
    {.name = "failure-rules",
     .value = "FILE",
     .env = "CTRUN_FAILURE_RULES",
     .help = "your own rules, used before the built-in ones; see ctrun(1)"},
    CTL_JSON,
    {0}};

/* What one rule found. */
struct finding {
    uint64_t count;
    uint64_t first, last; /* line numbers, from 1 */
    struct failure_hint hint;
    char text[SHOWN_MAX_BYTES]; /* the first line found */
};

struct log {
    const char *name;
    FILE *file;
    uint64_t lines;
    struct finding *by_number; /* failure_hints_numbers() entries */
    struct finding **order;    /* those found, in the order of printing */
    int found;
};

static void take_line(struct log *log, const char *line)
{
    struct failure_hint hint;
    struct finding *finding;

    if (!failure_hints_find_in_line(line, &hint))
        return;
    finding = &log->by_number[hint.number];
    finding->last = log->lines;
    if (finding->count++ > 0)
        return;
    finding->first = log->lines;
    finding->hint = hint;
    (void)ct_copy(finding->text, sizeof finding->text, line); /* cut is fine */
    finding->text[strcspn(finding->text, "\r")] = '\0';
    ct_make_plain(finding->text, false);
    ct_make_plain(finding->hint.likely, false);
    log->order[log->found++] = finding;
}

/* Reads the next line, or piece of a line, without its '\n'; a NUL becomes a blank. False at the
 * end of the file. */
static bool read_piece(FILE *file, char dst[LINE_MAX_BYTES], bool *is_end)
{
    size_t length = 0;
    int c = EOF;

    while (length + 1 < LINE_MAX_BYTES && (c = getc_unlocked(file)) != EOF && c != '\n')
        dst[length++] = (char)(c ? c : ' ');
    dst[length] = '\0';
    *is_end = c == '\n';
    return length > 0 || c == '\n';
}

static int read_log(struct log *log, struct ctrun_error *err)
{
    char line[LINE_MAX_BYTES];
    bool is_start = true;
    bool is_end;

    while (read_piece(log->file, line, &is_end)) {
        log->lines += is_start;
        take_line(log, line);
        is_start = is_end;
    }
    return ferror(log->file)
               ? ct_fail(err, -errno, "%s: %s", log->name, strerror(errno))
               : 0;
}

/* In the order of their first line; findings that are mostly consequences come last. */
static int compare(const void *a, const void *b)
{
    const struct finding *x = *(struct finding *const *)a;
    const struct finding *y = *(struct finding *const *)b;

    if (x->hint.is_consequence != y->hint.is_consequence)
        return x->hint.is_consequence ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static void print_text(const struct log *log)
{
    for (int i = 0; i < log->found; i++) {
        const struct finding *finding = log->order[i];

        printf("%s:%llu: %s\n  likely     : %s\n", log->name,
               (unsigned long long)finding->first, finding->text, finding->hint.likely);
        if (finding->hint.remedy)
            printf("  do         : %s\n", finding->hint.remedy);
        if (finding->count > 1)
            printf("  again      : %llu more line%s, the last is %llu\n",
                   (unsigned long long)finding->count - 1,
                   finding->count > 2 ? "s" : "", (unsigned long long)finding->last);
    }
    if (log->found == 0)
        printf("%s: no known error in %llu line%s\n", log->name,
               (unsigned long long)log->lines, log->lines == 1 ? "" : "s");
}

static void print_json(const struct log *log)
{
    fputs("{\"file\":", stdout);
    json_print_text(stdout, log->name);
    printf(",\"lines\":%llu,\"findings\":[", (unsigned long long)log->lines);
    for (int i = 0; i < log->found; i++) {
        const struct finding *finding = log->order[i];

        printf("%s{\"line\":%llu,\"last_line\":%llu,\"count\":%llu,\"text\":",
               i ? "," : "", (unsigned long long)finding->first,
               (unsigned long long)finding->last, (unsigned long long)finding->count);
        json_print_text(stdout, finding->text);
        fputs(",\"likely\":", stdout);
        json_print_text(stdout, finding->hint.likely);
        fputs(",\"do\":", stdout);
        if (finding->hint.remedy)
            json_print_text(stdout, finding->hint.remedy);
        else
            fputs("null", stdout);
        fputc('}', stdout);
    }
    fputs("]}\n", stdout);
}

static int explain(struct log *log, struct ctrun_error *err)
{
    const size_t numbers = (size_t)failure_hints_numbers();
    int rc;

    if (!(log->by_number = ct_zalloc_array(numbers, sizeof *log->by_number)) ||
        !(log->order = ct_zalloc_array(numbers, sizeof(struct finding *))))
        return ct_fail(err, -ENOMEM, "out of memory");
    if ((rc = read_log(log, err)) == 0)
        qsort(log->order, (size_t)log->found, sizeof(struct finding *), compare);
    return rc;
}

/* NULL: see `err`. Refuses character devices except terminals: /dev/zero has no end. */
static FILE *open_log(const char *path, struct ctrun_error *err)
{
    FILE *file = fopen(path, "re");
    struct stat info;

    if (!file) {
        (void)ct_fail(err, -errno, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(fileno(file), &info) == 0 && S_ISCHR(info.st_mode) &&
        !isatty(fileno(file))) {
        (void)fclose(file); /* was only read */
        (void)ct_fail(err, CTRUN_E_USAGE, "%s: a device, not a log", path);
        return NULL;
    }
    return file;
}

/* "E_HANG" in place of a file: what the code means. */
static bool explain_code(const char *word)
{
    const char *unknown = ctrun_strerror(CODE_FIRST - CODES_MAX);

    for (int code = CODE_FIRST; code > CODE_FIRST - CODES_MAX; code--)
        if (strcmp(ct_error_name(code), word) == 0 && ctrun_strerror(code) != unknown) {
            printf("%s: %s\n  read       : man ctrun-errors, under %s\n", word,
                   ctrun_strerror(code), word);
            return true;
        }
    return false;
}

static int run(const struct ctl_call *call)
{
    const char *rules_path = ctl_value(call, "failure-rules");
    const bool is_stdin = strcmp(call->words[0], "-") == 0;
    static struct failure_rules rules;
    struct log log = {.name = is_stdin ? "stdin" : call->words[0]};
    struct ctrun_error err;
    int rc = 0;

    if (access(call->words[0], F_OK) < 0 && explain_code(call->words[0]))
        return CT_EXIT_OK;
    if (rules_path && *rules_path)
        rc = failure_rules_read(&rules, rules_path, &err);
    failure_hints_use(rules.list, rules.count);
    if (rc == 0 && !(log.file = is_stdin ? stdin : open_log(log.name, &err)))
        rc = err.code;
    if (rc == 0 && (rc = explain(&log, &err)) == 0) {
        if (ctl_value(call, "json"))
            print_json(&log);
        else
            print_text(&log);
    }
    if (log.file && !is_stdin)
        (void)fclose(log.file); /* was only read */
    free(log.by_number);
    free(log.order);
    failure_rules_deinit(&rules);
    if (rc < 0)
        return ctl_fail(&err);
    return log.found > 0 ? CT_EXIT_OK : CT_EXIT_FAILURE;
}

const struct ctl_verb ctl_explain = {
    .name = "explain",
    .words = "LOG|E_CODE",
    .word_min = 1,
    .word_max = 1,
    .help = "print what the lines of a log, or a code of ctrun, most likely mean\n"
            "LOG is a file, or - for standard input: a worker's log, NCCL's, the "
            "kernel's. Its lines\n"
            "are compared with the failure messages that ctrun knows, and with your "
            "own rules\n"
            "(--failure-rules). For each rule the output has the first line that "
            "matches; messages\n"
            "that mostly follow from another failure come last. Exit code 1 when no "
            "line matches.",
    .options = options,
    .run = run,
};
