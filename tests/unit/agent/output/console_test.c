/* SPDX-License-Identifier: Apache-2.0 */
/* What stands between the output of two sources. */
#include <string.h>
#include <unistd.h>

#include "agent/output/console.h"
#include "tests/lib/test.h"

static void on_room(void *context)
{
}

/* Writes the text as all that one source has. */
static void push(struct console *console, struct console_source *source,
                 const char *text)
{
    *source = (struct console_source){0};
    console_source_init(source, on_room, NULL);
    assert_int_equal(ct_buf_append(&source->queue, text, strlen(text)), 0);
    console_push(console, source);
    console_source_deinit(source);
}

/* The output of a worker that is started again has the memory of the one before. */
static void an_unfinished_line_ends_where_a_new_source_begins(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unfinished_line_ends_where_a_new_source_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
