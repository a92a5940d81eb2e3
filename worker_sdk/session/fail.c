/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a worker's error file, where torchrun and ctrun look for it; prints the error where no file is asked for.
 *
 * The form is that of torch's @record, so that every launcher shows it:
 *   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS",
 *    "ctrun_error": CODE}}}, where ctrun uses CODE to decide what to do; 0 when none was given.
 * An empty or half-written file would crash torchrun's agent: hence the rename. */
#include <errno.h>

#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/wire/contract.h"

static const char NO_REASON[] = "the worker failed and gave no reason";

/* Both texts, each byte as \u00XX in the worst case, and the JSON around them. */
enum {
    FAIL_JSON_MAX_BYTES = 2 * 6 * (CTRUN_ERROR_TEXT_MAX + 64) + 256
};

/* An error of the program's own may have no code. */
static const char *reason_of(const struct ctrun_error *err)
{
    return err && *err->text ? err->text : NO_REASON;
}

static int fail_format(struct ct_writer *out, const struct ctrun_error *err)
{
    char text[CTRUN_ERROR_TEXT_MAX + 64];
    char seconds[32];
    char code[16];

    if (err && err->code != 0)
        (void)ct_format(text, sizeof text, "%s: %s", ct_error_name(err->code),
                        reason_of(err));
    else
        (void)ct_copy(text, sizeof text, reason_of(err));
    (void)ct_format(seconds, sizeof seconds, "%llu",
                    (unsigned long long)(ct_wall_ns() / 1000000000u));
    ct_write_text(out, "{\"message\": {\"message\": ");
    ct_json_write_str(out, text);
    ct_write_text(out, ", \"extraInfo\": {\"py_callstack\": ");
    ct_json_write_str(out, text);
    ct_write_text(out, ", \"timestamp\": ");
    ct_json_write_str(out, seconds);
    (void)ct_format(code, sizeof code, "%d", err ? err->code : 0);
    ct_write_text(out, ", \"ctrun_error\": ");
    ct_write_text(out, code);
    ct_write_text(out, "}}}\n");
    return ct_write_end(out);
}

static void fail_print(const struct ctrun_error *err)
{
    char text[CTRUN_ERROR_TEXT_MAX];

    (void)ct_copy(text, sizeof text, reason_of(err));
    ct_make_plain(text, false);
    (void)fprintf(stderr, "%s: error[%s]: %s\n", program_invocation_short_name,
                  ct_error_name(err ? err->code : 0), text);
}

int ctrun_fail_worker(const struct ctrun_error *err)
{
    const char *path = getenv(CT_ENV_ERROR_FILE);
    uint8_t json[FAIL_JSON_MAX_BYTES];
    struct ct_writer out;
    int rc;

    if (!path || !*path) {
        fail_print(err);
        return EXIT_FAILURE;
    }
    ct_writer_init(&out, json, sizeof json);
    if ((rc = fail_format(&out, err)) < 0 ||
        (rc = ct_whole_file_replace(path, json, (size_t)rc)) < 0) {
        fail_print(err);
        ct_err("error file not written path=%s why=%s", path, strerror(-rc));
    }
    return EXIT_FAILURE;
}
