/* SPDX-License-Identifier: Apache-2.0 */
/* The journal in a file. What a restarted server does with it is in tests/server/test_journal.py. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/journal/journal_file.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"

static bool has_logged_complete;

static void look_for_complete(void *context, enum ctrun_log_level level,
                              const char *line)
{
    has_logged_complete |= strstr(line, "complete again") != NULL;
}

TEST(a_file_that_lacks_a_batch_for_want_of_memory_is_complete_with_the_next_whole_one)
{
    char folder[] = "/tmp/ctrun-journal-XXXXXX", path[64];
    const uint8_t batch[] = "x";
    struct journal_file *file;
    struct journal_book book;
    const struct journal_sink *sink;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/ctrund.journal", folder);
    journal_book_init(&book);
    assert_int_equal(journal_file_open(&file, folder, &book, 0, NULL), 0);
    sink = journal_file_sink(file);
    ct_log_set_sink(look_for_complete, NULL, CTRUN_LOG_INFO);
    has_logged_complete = false;
    for (size_t n = 1; n < 4; n++) {
        ct_alloc_fail_at(n);
        assert_int_equal(
            sink->store(sink->context, "r", JOURNAL_WHOLE, batch, sizeof batch), 0);
        ct_alloc_fail_at(0);
    }
    assert_false(has_logged_complete);
    assert_int_equal(
        sink->store(sink->context, "s", JOURNAL_WHOLE, batch, sizeof batch), 0);
    assert_false(has_logged_complete);
    assert_int_equal(
        sink->store(sink->context, "r", JOURNAL_WHOLE, batch, sizeof batch), 0);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    assert_true(has_logged_complete);
    journal_file_close(file);
    journal_book_deinit(&book);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

TEST(only_a_retry_writes_what_could_not_be_written)
{
    char folder[] = "/tmp/ctrun-journal-XXXXXX", path[64];
    const uint8_t batch[] = "x";
    struct journal_file *file;
    struct journal_book book;
    const struct journal_sink *sink;
    struct rlimit limit, none;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/ctrund.journal", folder);
    journal_book_init(&book);
    assert_int_equal(journal_file_open(&file, folder, &book, 0, NULL), 0);
    sink = journal_file_sink(file);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    none = limit;
    none.rlim_cur = 1;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(
        sink->store(sink->context, "r", JOURNAL_WHOLE, batch, sizeof batch), 0);
    sink->retry(sink->context);
    assert_non_null(sink->why_broken(sink->context));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_non_null(sink->why_broken(sink->context));
    sink->retry(sink->context);
    assert_null(sink->why_broken(sink->context));
    journal_file_close(file);
    journal_book_deinit(&book);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}
