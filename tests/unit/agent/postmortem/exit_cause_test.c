/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/postmortem/exit_cause.h"
#include "agent/postmortem/oom_counter.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

enum {
    EXITED_3 = 3 << 8,
    DIED_OF_SEGV = SIGSEGV,
    DIED_OF_KILL = SIGKILL
};

static void assert_cause(struct exit_cause_evidence evidence, int cause, int code)
{
    struct ct_failure failure;

    exit_cause_classify(&evidence, &failure);
    assert_int_equal(failure.cause, cause);
    assert_int_equal(failure.code, code);
}

TEST(an_end_by_itself_is_its_own_cause)
{
    assert_cause((struct exit_cause_evidence){.status = 0}, CT_CAUSE_NONE, 0);
    assert_cause((struct exit_cause_evidence){.status = EXITED_3}, CT_CAUSE_EXIT, 3);
    assert_cause((struct exit_cause_evidence){.status = DIED_OF_SEGV}, CT_CAUSE_SIGNAL,
                 SIGSEGV);
}

TEST(an_end_after_our_signal_is_a_consequence)
{
    assert_cause((struct exit_cause_evidence){.status = 0, .stop_signal = SIGTERM},
                 CT_CAUSE_NONE, 0);
    assert_cause(
        (struct exit_cause_evidence){.status = EXITED_3, .stop_signal = SIGTERM},
        CT_CAUSE_STOPPED, SIGTERM);
    assert_cause(
        (struct exit_cause_evidence){.status = DIED_OF_KILL, .stop_signal = SIGTERM},
        CT_CAUSE_STOPPED, SIGKILL);
}

TEST(an_exit_code_of_a_worker_without_a_handler_is_no_consequence)
{
    assert_cause((struct exit_cause_evidence){.status = EXITED_3,
                                              .stop_signal = SIGTERM,
                                              .has_no_handler = true},
                 CT_CAUSE_EXIT, 3);
    assert_cause((struct exit_cause_evidence){.status = SIGTERM,
                                              .stop_signal = SIGTERM,
                                              .has_no_handler = true},
                 CT_CAUSE_STOPPED, SIGTERM);
}

TEST(how_it_ended_is_kept_whatever_the_cause)
{
    static const struct {
        struct exit_cause_evidence evidence;
        int end_code;
    } rows[] = {
        {{.status = 0}, 0},
        {{.status = EXITED_3}, 3},
        {{.status = EXITED_3, .stop_signal = SIGTERM}, 3},
        {{.status = DIED_OF_SEGV}, -SIGSEGV},
        {{.status = DIED_OF_KILL, .stop_signal = SIGTERM}, -SIGKILL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ct_failure failure = {0};

        exit_cause_classify(&rows[i].evidence, &failure);
        assert_int_equal(failure.end_code, rows[i].end_code);
    }
}

TEST(only_a_proven_sigkill_that_is_not_ours_is_for_memory)
{
    assert_cause((struct exit_cause_evidence){.status = DIED_OF_KILL}, CT_CAUSE_SIGNAL,
                 SIGKILL);
    assert_cause(
        (struct exit_cause_evidence){.status = DIED_OF_KILL, .is_oom_proven = true},
        CT_CAUSE_OOM, SIGKILL);
    assert_cause(
        (struct exit_cause_evidence){.status = DIED_OF_SEGV, .is_oom_proven = true},
        CT_CAUSE_SIGNAL, SIGSEGV);
    assert_cause((struct exit_cause_evidence){.status = DIED_OF_KILL,
                                              .stop_signal = SIGKILL,
                                              .is_oom_proven = true},
                 CT_CAUSE_STOPPED, SIGKILL);
    assert_cause((struct exit_cause_evidence){.status = DIED_OF_KILL,
                                              .stop_signal = SIGTERM,
                                              .is_oom_proven = true},
                 CT_CAUSE_OOM, SIGKILL);
}

/* ---- cgroup ------------------------------------------------------------------------------ */

struct tree {
    char root[64];
    char membership[128];
    char counter[256];
};

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void make_tree(struct tree *tree, const char *membership, const char *dir,
                      const char *counter)
{
    char path[192];

    (void)ct_copy(tree->root, sizeof tree->root, "/tmp/ctrun-cgroup-XXXXXX");
    assert_non_null(mkdtemp(tree->root));
    (void)ct_format(tree->membership, sizeof tree->membership, "%s/membership",
                    tree->root);
    write_text(tree->membership, membership);
    (void)ct_format(path, sizeof path, "%s/%s", tree->root, dir);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)ct_format(tree->counter, sizeof tree->counter, "%s/%s", path, counter);
}

static void remove_tree(const struct tree *tree, const char *dir)
{
    char path[192];

    (void)unlink(tree->counter);
    (void)unlink(tree->membership);
    (void)ct_format(path, sizeof path, "%s/%s", tree->root, dir);
    (void)rmdir(path);
    (void)rmdir(tree->root);
}

TEST(a_grown_count_of_cgroup_v2_is_proof)
{
    struct oom_counter cgroup;
    struct tree tree;
    char proof[128];

    make_tree(&tree, "0::/job_7\n", "job_7", "memory.events");
    write_text(tree.counter,
               "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n");
    oom_counter_init(&cgroup, tree.membership, tree.root);
    assert_false(oom_counter_has_oom_killed(&cgroup, proof, sizeof proof));
    write_text(tree.counter, "oom 3\noom_kill 3\n");
    assert_true(oom_counter_has_oom_killed(&cgroup, proof, sizeof proof));
    assert_string_equal(proof, "oom_kill 1 -> 3 in /job_7");
    assert_false(oom_counter_has_oom_killed(&cgroup, proof, sizeof proof));
    remove_tree(&tree, "job_7");
}

TEST(cgroup_v1_has_it_in_another_file)
{
    struct oom_counter cgroup;
    struct tree tree;
    char proof[128];

    make_tree(&tree, "9:name=systemd:/\n4:memory:/\n0::/\n", "memory",
              "memory.oom_control");
    write_text(tree.counter, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    oom_counter_init(&cgroup, tree.membership, tree.root);
    write_text(tree.counter, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    assert_true(oom_counter_has_oom_killed(&cgroup, proof, sizeof proof));
    assert_string_equal(proof, "oom_kill 0 -> 1 in /");
    remove_tree(&tree, "memory");
}

TEST(without_a_count_nothing_is_proven)
{
    struct oom_counter cgroup;
    char proof[128];

    oom_counter_init(&cgroup, "/nonexistent", "/nonexistent");
    assert_false(oom_counter_has_oom_killed(&cgroup, proof, sizeof proof));
}
