/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts before and after: what migrate changes, what it leaves, and the diff of both. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launcher/migrate.h"
#include "launcher/shell_script.h"

enum {
    OUT_MAX = 1 << 16
};

static void migrate_to(const char *text, struct migrate *migrate, struct ct_buf *out)
{
    struct ctrun_error err = {0};

    if (migrate_read(migrate, text, strlen(text), &err) < 0)
        fail_msg("'%s': %s", text, err.text);
    ct_buf_init(out, OUT_MAX);
    assert_int_equal(text_edits_apply(&migrate->edits, text, 0, strlen(text), out), 0);
    assert_int_equal(ct_buf_append(out, "", 1), 0);
}

static void each_script_becomes_this_one(void **state)
{
    static const struct {
        const char *before;
        const char *after; /* NULL: the same */
        bool has_left;
    } rows[] = {
        /* The launcher's word alone. */
        {"torchrun x.py", "ctrun x.py", false},
        {"torchrun", "ctrun", false},
        {"  torchrun  --standalone\tx.py # torchrun",
         "  ctrun  --standalone\tx.py # torchrun", false},
        {"A=1 B='x y' torchrun x.py;torchrun y.py|cat",
         "A=1 B='x y' ctrun x.py;ctrun y.py|cat", false},
        {"if torchrun a; then torchrun b; else ! torchrun c; fi",
         "if ctrun a; then ctrun b; else ! ctrun c; fi", false},
        {"srun -J torchrun --output /log/torchrun torchrun x.py",
         "srun -J torchrun --output /log/torchrun ctrun x.py", true},
        {"srun --job-name torchrun ./run.sh", NULL, true},
        {"exec torchrun x.py >log 2>&1", "exec ctrun x.py >log 2>&1", false},
        {"timeout -k 9 3h nice -n 5 torchrun x.py",
         "timeout -k 9 3h nice -n 5 ctrun x.py", false},
        {"taskset 0xff torchrun x.py", "taskset 0xff ctrun x.py", false},
        {"(cd x && torchrun x.py) & wait", "(cd x && ctrun x.py) & wait", false},
        {"f() { torchrun \"$@\"; }", "f() { ctrun \"$@\"; }", false},
        {"case $1 in a|b) torchrun x.py;; esac", "case $1 in a|b) ctrun x.py;; esac",
         false},
        {"python3 -m torch.distributed.run -m pkg.mod", "ctrun -m pkg.mod", false},
        {"python -u -m torch.distributed.run x.py", "ctrun x.py", false},
        /* torch.distributed.launch. */
        {"python -m torch.distributed.launch x.py --use_env",
         "ctrun-launch x.py --use_env", false},
        {"python -m torch.distributed.launch \\\n  --use_env \\\n  x.py",
         "ctrun \\\n  x.py", false},
        {"torchrun --use_env x.py", NULL, true},
        /* Another interpreter. */
        {"/o/bin/python3.10 -m torch.distributed.run x.py",
         "env PYTHON_EXEC=/o/bin/python3.10 ctrun x.py", false},
        {"srun \"$V/bin/torchrun\" --standalone x.py",
         "srun env PYTHON_EXEC=\"$V/bin/python\" ctrun --standalone x.py", false},
        {"'/o p/bin/torchrun' x.py", "env PYTHON_EXEC='/o p/bin/python' ctrun x.py",
         false},
        {"PY=python3.9\n$PY -m torch.distributed.run x.py",
         "PY=python3.9\nenv PYTHON_EXEC=$PY ctrun x.py", false},
        {"PY='python -O'\n$PY -m torch.distributed.run x.py", NULL, true},
        {"$PY -m torch.distributed.run x.py", NULL, true},
        /* In a step of Slurm. */
        {"srun torchrun --nnodes=2 --rdzv_id=$SLURM_JOBID --rdzv_backend c10d "
         "--rdzv_endpoint=\"$(hostname):1 x\" x.py -h",
         "srun ctrun --nnodes=2 x.py -h", false},
        {"srun torchrun --nnodes=2 --rdzv-id=mine --rdzv-endpoint=$H x.py",
         "srun ctrun --nnodes=2 --rdzv-id=mine x.py", false},
        {"srun -N2 -n 4 --label torchrun --nnodes 2 --node-rank $SLURM_NODEID "
         "--master-addr $M --master-port=1 -r3 \"$D/x.py\" $A",
         "srun -N2 -n 4 --label ctrun --nnodes 2 -r3 \"$D/x.py\" $A", false},
        {"torchrun --nnodes 2 --node_rank=${SLURM_PROCID} --master_addr=$M x.py",
         "ctrun --nnodes 2 x.py", false},
        {"srun bash -c \"torchrun --nnodes=2 --node_rank=\\$SLURM_PROCID "
         "--master_addr=$M x.py\"",
         "srun bash -c \"ctrun --nnodes=2 x.py\"", false},
        {"S=\"train.py\"\nsrun torchrun --nnodes=2 --rdzv-endpoint=h $S $A",
         "S=\"train.py\"\nsrun ctrun --nnodes=2 $S $A", false},
        {"srun torchrun 2>e --rdzv-id=$RANDOM --rdzv-endpoint >o h:1 \\\n  2>&1 x.py",
         "srun ctrun 2>e >o \\\n  2>&1 x.py", false},
        {"srun torchrun --nnodes 2 --rdzv-endpoint=h:1>o x.py",
         "srun ctrun --nnodes 2 >o x.py", false},
        {"for i in 1; do x; done\nsrun torchrun --nnodes=2 --rdzv-endpoint=h x.py &",
         "for i in 1; do x; done\nsrun ctrun --nnodes=2 x.py &", false},
        {"for i in 1; do srun torchrun --nnodes=2 --rdzv-endpoint=h x.py && y; done",
         "for i in 1; do srun ctrun --nnodes=2 x.py && y; done", false},
        /* Where the options stay. */
        {"S=$X\nS=a.py\nsrun torchrun --nnodes=2 --rdzv-endpoint=h $S",
         "S=$X\nS=a.py\nsrun ctrun --nnodes=2 --rdzv-endpoint=h $S", false},
        {"torchrun --nnodes 2 --node_rank=$R --master_addr=$M x.py",
         "ctrun --nnodes 2 --node_rank=$R --master_addr=$M x.py", false},
        {"srun torchrun --nnodes=2 --rdzv-endpoint=h $ARGS x.py",
         "srun ctrun --nnodes=2 --rdzv-endpoint=h $ARGS x.py", false},
        {"srun torchrun --nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=h:1 x.py",
         "srun ctrun --nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=h:1 x.py", false},
        {"srun torchrun --rdzv-conf=is_host=1 --nnodes=2 --rdzv-endpoint=h:1 x.py",
         "srun ctrun --rdzv-conf=is_host=1 --nnodes=2 --rdzv-endpoint=h:1 x.py", false},
        {"for i in 0 1; do srun torchrun --nnodes=2 --rdzv-endpoint=h x.py & done",
         "for i in 0 1; do srun ctrun --nnodes=2 --rdzv-endpoint=h x.py & done", false},
        {"srun -w n1 torchrun --nnodes=2 --rdzv-endpoint=h x.py",
         "srun -w n1 ctrun --nnodes=2 --rdzv-endpoint=h x.py", false},
        {"srun --nodes 1 torchrun --nnodes=2 --rdzv-endpoint=h x.py",
         "srun --nodes 1 ctrun --nnodes=2 --rdzv-endpoint=h x.py", false},
        {"srun ssh h 'torchrun --nnodes=2 --rdzv-endpoint=h x.py'",
         "srun ssh h 'ctrun --nnodes=2 --rdzv-endpoint=h x.py'", false},
        {"ssh -p 22 h torchrun --node_rank=1 x.py",
         "ssh -p 22 h ctrun --node_rank=1 x.py", false},
        /* Not understood. */
        {"torchrun --bogus x.py", NULL, true},
        {"torchrun --nnodes", NULL, true},
        {"torchrun --nnodes --standalone x.py", NULL, true},
        {"torchrun --standalone=1 x.py", NULL, true},
        {"torchrun --print-config x.py", NULL, true}, /* ours, not torchrun's */
        {"torchrun --logs-specs=a x.py", NULL, true},
        {"torchrun --nproc-per-node=xpu x.py", NULL, true},
        {"srun --container-name=c torchrun x.py", NULL, true},
        {"docker run i torchrun x.py", NULL, true},
        {"sudo torchrun x.py", NULL, true},
        {"x=$(torchrun x.py)", NULL, true},
        {"ssh h \"torchrun \\\"x\\\"\"", NULL, true},
        {"cat <<-'E'\ntorchrun\n\tE\necho", NULL, true},
        {"L=torchrun; $L x.py", NULL, true},
        {"L=/v/bin/torchrun\n$L x.py", NULL, true},
        {"srun --chdir=/torchrun x.sh", NULL, true},
        {"torchrun() { x; }", NULL, true},
        {"if type torchrun; then :; fi", NULL, false},
        /* Nothing to do. */
        {"echo torchrun; which torchrun; ./multinode_torchrun.py torchrun.md", NULL,
         false},
        {"# torchrun x\n: torchrun", NULL, false},
        {"cat my.torchrun", NULL, false},
        {"", NULL, false},
        /* The exports. */
        {"export MASTER_ADDR=$(a | b) # why\nMASTER_PORT=1\nexport MASTER_PORT\n"
         "srun torchrun --nnodes=2 --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT x.py\n",
         "# why\nsrun ctrun --nnodes=2 x.py\n", false},
        {"export MASTER_ADDR=a \\\n  MASTER_PORT=1\ntorchrun x.py", "ctrun x.py",
         false},
        {"export MASTER_ADDR=a\ntorchrun x.py\necho $MASTER_ADDR",
         "export MASTER_ADDR=a\nctrun x.py\necho $MASTER_ADDR", false},
        {"export MASTER_ADDR=a\ntorchrun x.py\necho $MY_MASTER_ADDR",
         "ctrun x.py\necho $MY_MASTER_ADDR", false},
        {"export MASTER_ADDR=a X=b\ntorchrun x.py",
         "export MASTER_ADDR=a X=b\nctrun x.py", false},
        {"export MASTER_ADDR=a\ntorchrun x.py\npython y.py",
         "export MASTER_ADDR=a\nctrun x.py\npython y.py", false},
        {"if x; then\nexport MASTER_ADDR=a\nfi\ntorchrun x.py",
         "if x; then\nexport MASTER_ADDR=a\nfi\nctrun x.py", false},
        {"export MASTER_ADDR=a; torchrun x.py", "export MASTER_ADDR=a; ctrun x.py",
         false},
        {"export MASTER_ADDR=a\ntorchrun x.py\ntorchrun --bogus y.py",
         "export MASTER_ADDR=a\nctrun x.py\ntorchrun --bogus y.py", true},
        {"export MASTER_ADDR=a\npython x.py", NULL, false},
        {"true && \\\nexport MASTER_ADDR=a\ntorchrun x.py",
         "true && \\\nexport MASTER_ADDR=a\nctrun x.py", false},
        {"export MASTER_ADDR=a\ntorchrun --node-rank=1 x.py",
         "export MASTER_ADDR=a\nctrun --node-rank=1 x.py", false},
        {"export MASTER_ADDR=a\n. ./e\ntorchrun x.py",
         "export MASTER_ADDR=a\n. ./e\nctrun x.py", false},
        {". ./e\nexport MASTER_ADDR=a\ntorchrun x.py", ". ./e\nctrun x.py", false},
        {"export MASTER_ADDR=a\n$CMD\ntorchrun x.py",
         "export MASTER_ADDR=a\n$CMD\nctrun x.py", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *after = rows[i].after ? rows[i].after : rows[i].before;
        struct migrate migrate;
        struct ct_buf out;

        migrate_to(rows[i].before, &migrate, &out);
        if (strcmp((const char *)ct_buf_data(&out), after) != 0)
            fail_msg("'%s'\nbecame '%s'\nnot '%s'", rows[i].before,
                     (const char *)ct_buf_data(&out), after);
        if (migrate_has_left(&migrate) != rows[i].has_left)
            fail_msg("'%s': left: %d", rows[i].before, !rows[i].has_left);
        ct_buf_deinit(&out);
        migrate_deinit(&migrate);
    }
}

static void notes_come_by_line_and_a_variable_is_named_once(void **state)
{
    struct migrate migrate;
    struct ct_buf out;

    (void)state;
    migrate_to("export MASTER_ADDR=a\nH=b\n"
               "srun torchrun --nnodes=2 --master-addr=$H --rdzv-endpoint=$H x.py\n",
               &migrate, &out);
    assert_int_equal(migrate.note_count, 5);
    for (size_t i = 0; i < migrate.note_count; i++)
        assert_int_equal(migrate.notes[i].line, i < 2 ? i + 1 : 3);
    assert_int_equal(migrate.notes[1].kind, MIGRATE_HINT);
    assert_string_equal(migrate.notes[1].what, "H");
    ct_buf_deinit(&out);
    migrate_deinit(&migrate);
}

static void what_does_not_end_is_refused(void **state)
{
    static const char *const rows[] = {
        "torchrun 'x", "torchrun \"x",      "torchrun $(x",           "torchrun ${x",
        "torchrun `x", "cat <<E\ntorchrun", "torchrun $(echo \"$(x)", "a=(torchrun",
        "cat <<",      "torchrun <<E"};
    struct ctrun_error err;
    struct migrate migrate;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(migrate_read(&migrate, rows[i], strlen(rows[i]), &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, "no end of"));
        migrate_deinit(&migrate);
    }
}

/* The words of each command, "[a b][c]". */
static void words_and_commands_are_found_as_a_shell_finds_them(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        {"a b;c", "[a|b][c]"},
        {"a \\\n b#c #d\ne", "[a|b#c][e]"},
        {"a 'b ;c' \"d $(e \"f g\")\" $(h;i)", "[a|'b ;c'|\"d $(e \"f g\")\"|$(h;i)]"},
        {"a >b 2>&1 c <<<d &>e 3<f g", "[a|c|g]"},
        {"a 2 >b", "[a|2]"},
        {"x=(1 2) y=${z:-a b} `b c` w", "[x=(1 2)|y=${z:-a b}|`b c`|w]"},
        {"diff <(a b) >(c)", "[diff|<(a b)|>(c)]"},
        {"cat <<E; b\nx y\nE\nc", "[cat][b][c]"},
        {"cat <<A <<'B'\n1\nA\n2\nB\nc", "[cat][c]"},
        {"(( i << 2 )); a", "[a]"},
        {"((i++)) && a || b", "[a][b]"},
        {"a & b |& c", "[a][b][c]"},
        {"a $(b # it's\nc) d", "[a|$(b # it's\nc)|d]"},
        {"echo $'it\\'s' $((1 << 2)) $# \\; \\'",
         "[echo|$'it\\'s'|$((1 << 2))|$#|\\;|\\']"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct shell_script script;
        char found[256] = "";
        size_t n = 0;

        assert_int_equal(
            shell_script_read(&script, rows[i].text, 0, strlen(rows[i].text), NULL), 0);
        for (size_t c = 0; c < script.command_count; c++)
            for (size_t w = 0; w < script.commands[c].count; w++) {
                const struct shell_range word =
                    script.words[script.commands[c].first + w];

                n += (size_t)snprintf(found + n, sizeof found - n, "%s%.*s%s",
                                      w ? "|" : "[", (int)(word.end - word.start),
                                      rows[i].text + word.start,
                                      w + 1 == script.commands[c].count ? "]" : "");
            }
        if (strcmp(found, rows[i].words) != 0)
            fail_msg("'%s': %s", rows[i].text, found);
        shell_script_deinit(&script);
    }
}

static void a_diff_has_three_lines_around_each_change(void **state)
{
    static const char text[] = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15";
    static const char expected[] = "--- f\n+++ f\n"
                                   "@@ -1,5 +1,4 @@\n 1\n-2\n 3\n 4\n 5\n"
                                   "@@ -10,6 +9,7 @@\n 10\n 11\n 12\n-13\n+a\n+b\n 14\n"
                                   "-15\n\\ No newline at end of file\n"
                                   "+15c\n\\ No newline at end of file\n";
    struct text_edits edits = {0};
    struct ct_buf out;

    (void)state;
    ct_buf_init(&out, OUT_MAX);
    assert_int_equal(text_edits_add(&edits, strlen(text) - 1, strlen(text), "5c"), 0);
    assert_int_equal(text_edits_add(&edits, 2, 4, ""), 0);
    assert_int_equal(text_edits_add(&edits, 27, 29, "a\nb"), 0);
    assert_int_equal(text_edits_sort(&edits), 0);
    assert_int_equal(text_edits_diff(&edits, "f", text, strlen(text), &out), 0);
    assert_int_equal(ct_buf_append(&out, "", 1), 0);
    assert_string_equal((const char *)ct_buf_data(&out), expected);
    ct_buf_deinit(&out);
    assert_int_equal(text_edits_add(&edits, 3, 5, ""), 0);
    assert_int_equal(text_edits_sort(&edits), -EINVAL); /* overlaps 2..4 */
    text_edits_deinit(&edits);
}

static void lines_of_a_change_that_stay_are_no_part_of_it(void **state)
{
    static const struct {
        size_t start;
        size_t end;
        const char *text;
        const char *expected;
    } rows[] = {
        {0, 6, "1\nx\n3\n", "@@ -1,3 +1,3 @@\n 1\n-2\n+x\n 3\n"},
        {0, 6, "", "@@ -1,3 +0,0 @@\n-1\n-2\n-3\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text_edits edits = {0};
        struct ct_buf out;

        ct_buf_init(&out, OUT_MAX);
        assert_int_equal(
            text_edits_add(&edits, rows[i].start, rows[i].end, rows[i].text), 0);
        assert_int_equal(text_edits_diff(&edits, "f", "1\n2\n3\n", 6, &out), 0);
        assert_int_equal(ct_buf_append(&out, "", 1), 0);
        assert_string_equal((const char *)ct_buf_data(&out) + strlen("--- f\n+++ f\n"),
                            rows[i].expected);
        text_edits_deinit(&edits);
        ct_buf_deinit(&out);
    }
}

static void a_change_that_changes_nothing_is_no_diff(void **state)
{
    struct text_edits edits = {0};
    struct ct_buf out;

    (void)state;
    ct_buf_init(&out, OUT_MAX);
    assert_int_equal(text_edits_add(&edits, 0, 1, "a"), 0);
    assert_int_equal(text_edits_diff(&edits, "f", "a\nb\n", 4, &out), 0);
    assert_int_equal(ct_buf_length(&out), 0);
    text_edits_deinit(&edits);
    ct_buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_script_becomes_this_one),
        cmocka_unit_test(notes_come_by_line_and_a_variable_is_named_once),
        cmocka_unit_test(what_does_not_end_is_refused),
        cmocka_unit_test(words_and_commands_are_found_as_a_shell_finds_them),
        cmocka_unit_test(a_diff_has_three_lines_around_each_change),
        cmocka_unit_test(lines_of_a_change_that_stay_are_no_part_of_it),
        cmocka_unit_test(a_change_that_changes_nothing_is_no_diff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
