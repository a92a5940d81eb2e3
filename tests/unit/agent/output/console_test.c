/* SPDX-License-Identifier: Apache-2.0 */
/* What stands between the output of two sources. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "agent/output/console.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/log.h"

enum {
    LINE_BYTES = 200
};

static void on_room(void *context)
{
}

static void append(struct console *console, struct console_source *source,
                   const char *text)
{
    assert_int_equal(ct_buf_append(&source->queue, text, strlen(text)), 0);
    console_push(console, source);
}

/* Writes the text as all that one source has. */
static void push(struct console *console, struct console_source *source,
                 const char *text)
{
    *source = (struct console_source){0};
    console_source_init(source, on_room, NULL);
    append(console, source, text);
    console_source_deinit(source);
}

/* The output of a worker that is started again has the memory of the one before. */
TEST(an_unfinished_line_ends_where_a_new_source_begins)
{
    struct console_source source;
    struct console *console;
    struct loop *loop;
    char text[64] = "";
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    assert_int_equal(loop_create(&loop), 0);
    console = console_open(loop, fds[1]);
    assert_non_null(console);
    push(console, &source, "no end");
    push(console, &source, "a line\n");
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    assert_string_equal(text, "no end\na line\n");
    console_close(console);
    assert_int_equal(loop_destroy(loop), 0);
    close(fds[0]);
    close(fds[1]);
}

static void say(const char *text, bool is_taken)
{
    assert_int_equal(console_message(text, strlen(text)), is_taken);
}

/* Of a line on the real standard error, which is a pipe here. */
TEST(a_line_of_another_writer_goes_between_two_lines)
{
    struct console_source source = {.prefix = "[0]: "};
    const int kept = dup(STDERR_FILENO);
    struct console *console;
    struct loop *loop;
    char text[128] = "";
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    assert_int_equal(loop_create(&loop), 0);
    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    console = console_open(loop, STDERR_FILENO);
    assert_non_null(console);
    say("first\n", true);
    console_source_init(&source, on_room, NULL);
    append(console, &source, "[0]: no ");
    say("second\n", true);
    append(console, &source, "end\n");
    append(console, &source, "50%\r"); /* a progress bar */
    say("third\n", true);
    append(console, &source, "[0]: last");
    console_source_deinit(&source);
    console_close(console);
    say("fourth\n", false);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    assert_string_equal(text,
                        "first\n[0]: no \nsecond\n[0]: end\n50%\r\nthird\n[0]: last\n");
    assert_int_equal(loop_destroy(loop), 0);
    close(kept);
    close(fds[0]);
    close(fds[1]);
}

static void keep_line(void *context, enum ctrun_log_level level, const char *line)
{
    (void)level;
    (void)snprintf(context, LINE_BYTES, "%s", line);
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* A wait that begins again at each signal would have no end. */
static void interrupt_often(bool on)
{
    const struct itimerval every = {{.tv_usec = 10000}, {.tv_usec = 10000}},
                           never = {0};
    const struct sigaction action = {.sa_handler = on_alarm};

    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, on ? &every : &never, NULL), 0);
}

TEST(what_nobody_reads_is_given_up_with_its_reason)
{
    static char big[1024 * 1024];
    char line[LINE_BYTES] = "";
    struct console_source source = {0};
    struct console *console;
    struct loop *loop;
    int fds[2];

    memset(big, 'x', sizeof big - 1);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(loop_create(&loop), 0);
    console = console_open(loop, fds[1]);
    assert_non_null(console);
    console_source_init(&source, on_room, NULL);
    append(console, &source, big);
    ct_log_set_sink(keep_line, line, CTRUN_LOG_WARN);
    interrupt_often(true);
    console_flush(console, 50);
    interrupt_often(false);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_WARN);
    assert_non_null(
        strstr(line, "cannot be written any more: nobody has read it for "));
    assert_true(console_is_lost(console));
    console_source_deinit(&source);
    console_close(console);
    assert_int_equal(loop_destroy(loop), 0);
    close(fds[0]);
    close(fds[1]);
}

static void log_to_console(void *context, enum ctrun_log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)console_message(line, strlen(line));
}

/* The console then logs that it cannot be written, inside of the sink. */
TEST(a_log_line_for_a_reader_that_is_gone_ends)
{
    const int kept = dup(STDERR_FILENO);
    struct console *console;
    struct loop *loop;
    int fds[2];

    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(loop_create(&loop), 0);
    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    console = console_open(loop, STDERR_FILENO);
    assert_non_null(console);
    close(fds[0]);
    ct_log_set_sink(log_to_console, NULL, CTRUN_LOG_WARN);
    alarm(60);
    ct_warn("a line");
    ct_warn("another");
    alarm(0);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_WARN);
    assert_true(console_is_lost(console));
    console_close(console);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(loop_destroy(loop), 0);
    close(kept);
    close(fds[1]);
}
