/* SPDX-License-Identifier: Apache-2.0 */
/* The C frames of our own processes: one that sleeps and is not stopped, one that runs and is
 * stopped, one that is traced already, one in a signal handler. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/native/native_stack.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    WAIT_MS = 20000
};

static volatile int *ready; /* shared; the child is where its stack is to be read */
static volatile uint64_t turns;

/* No tail calls, and functions that keep their names. */
static __attribute__((noinline)) int stand_still(int n)
{
    *ready = 1;
    pause();
    return n + 1;
}

static __attribute__((noinline)) int stand_below(int n)
{
    return stand_still(n + 1) * 2;
}

static __attribute__((noinline)) int run_round(int n)
{
    *ready = 1;
    for (;;)
        turns += (uint64_t)n;
    return n;
}

static __attribute__((noinline)) int run_below(int n)
{
    return run_round(n + 1) * 2;
}

#if defined(__x86_64__)
/* At the end of a function: it has popped a register that its frame still looks for in memory. */
void spin_popped(volatile int *is_there);
__asm__(".text\n.type spin_popped, @function\nspin_popped:\n.cfi_startproc\n"
        "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\n"
        "pop %rbp\n.cfi_def_cfa_offset 8\nmovl $1, (%rdi)\n1: jmp 1b\n"
        ".cfi_endproc\n.size spin_popped, .-spin_popped\n");

static __attribute__((noinline)) int run_popped(int n)
{
    spin_popped(ready);
    return n + 1;
}
#endif

static void on_signal(int signal)
{
    (void)stand_below(signal);
}

static __attribute__((noinline)) int interrupt(int n)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return n + 1;
}

static int end_child(void **state)
{
    if (*state) {
        const pid_t pid = *(pid_t *)*state;

        kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    return 0;
}

static bool is_ready(pid_t pid, bool sleeps)
{
    char path[64], stat[512];
    const char *state;

    (void)ct_format(path, sizeof path, "/proc/%d/stat", (int)pid);
    (void)ct_small_file_read(stat, sizeof stat, path);
    state = strrchr(stat, ')');
    return *ready && state && (!sleeps || state[2] == 'S');
}

static pid_t start(void **state, int (*body)(int), bool sleeps)
{
    static pid_t pid;
    const uint64_t until_ms = ct_deadline_ms(WAIT_MS);

    *ready = 0;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(body(1));
    *state = &pid;
    while (!is_ready(pid, sleeps))
        assert_true(ct_left_ms(until_ms) > 0);
    return pid;
}

/* The number of the frame, from the innermost; -1: no frame has this name. */
static int find(const struct native_room *room, const char *name)
{
    const struct native_thread *thread = &room->threads[0];
    char text[256];

    for (int i = 0; i < thread->count; i++) {
        native_stack_format(text, sizeof text, room, thread->places[i]);
        if (ct_starts_with(text, name) && text[strlen(name)] == ' ')
            return i;
    }
    return -1;
}

/* Reads again until the process could be stopped, if it must be: on a busy machine it may get no
 * CPU for long. */
static struct native_room *read_stack(pid_t pid)
{
    const uint64_t until_ms = ct_deadline_ms(WAIT_MS);
    static struct native_room room;

    do {
        native_stack_forget(&room);
        memset(&room, 0, sizeof room);
        room.until_ms = until_ms;
        assert_int_equal(native_stack_read(&room, pid), 0);
    } while (room.threads[0].error == -ETIMEDOUT && ct_left_ms(until_ms) > 0);
    assert_true(room.count >= 1); /* the thread sanitizer adds a thread */
    assert_ptr_equal(native_stack_find(&room, pid), &room.threads[0]);
    assert_null(native_stack_find(&room, getpid()));
    return &room;
}

static void check_frames(const struct native_room *room, const char *inner,
                         const char *outer)
{
    const int first = find(room, inner);

    assert_true(first >= 0);
    assert_int_equal(find(room, outer), first + 1);
    assert_true(find(room, "main") > first);
    assert_int_equal(room->threads[0].end, NATIVE_WHOLE);
}

TEST_AROUND(one_that_sleeps_is_read_to_its_end, NULL, end_child)
{
    struct native_room *room = read_stack(start(state, stand_below, true));

    check_frames(room, "stand_still", "stand_below");
    native_stack_forget(room);
}

/* The process was not scheduled in between. */
static bool is_same_turn(const char *before, const char *after)
{
    return strcmp(strstr(before, "voluntary_ctxt_switches"),
                  strstr(after, "voluntary_ctxt_switches")) == 0;
}

TEST_AROUND(one_that_sleeps_is_not_stopped, NULL, end_child)
{
    static struct native_copy copy;
    const pid_t pid = start(state, stand_below, true);
    const uint64_t until_ms = ct_deadline_ms(WAIT_MS);
    char path[64], before[4096], after[4096];

    (void)ct_format(path, sizeof path, "/proc/%d/status", (int)pid);
    do { /* it may still be about to sleep */
        assert_true(ct_small_file_read(before, sizeof before, path) > 0);
        assert_int_equal(native_copy_asleep(&copy, pid, pid), 0);
        assert_true(ct_small_file_read(after, sizeof after, path) > 0);
    } while (!is_same_turn(before, after) && ct_left_ms(until_ms) > 0);
    assert_true(is_same_turn(before, after));
}

TEST_AROUND(one_that_runs_is_stopped_and_goes_on, NULL, end_child)
{
    static struct native_copy copy;
    const pid_t pid = start(state, run_below, false);
    struct native_room *room;
    char path[64], stat[512];

    assert_int_equal(native_copy_asleep(&copy, pid, pid), -EAGAIN);
    room = read_stack(pid);
    check_frames(room, "run_round", "run_below");
    native_stack_forget(room);
    (void)ct_format(path, sizeof path, "/proc/%d/stat", (int)pid);
    assert_true(ct_small_file_read(stat, sizeof stat, path) > 0);
    assert_int_equal(strrchr(stat, ')')[2], 'R');
}

TEST_AROUND(registers_that_were_popped_are_found, NULL, end_child)
{
#if defined(__x86_64__)
    check_frames(read_stack(start(state, run_popped, false)), "spin_popped",
                 "run_popped");
#else
    skip();
#endif
}

TEST_AROUND(frames_below_the_handler_of_a_signal_are_found, NULL, end_child)
{
    struct native_room *room = read_stack(start(state, interrupt, true));

    check_frames(room, "stand_still", "stand_below");
    assert_true(find(room, "interrupt") > find(room, "on_signal"));
    native_stack_forget(room);
}

TEST_AROUND(one_that_is_traced_already_is_refused, NULL, end_child)
{
    static struct native_copy copy;
    const pid_t pid = start(state, run_below, false);

    assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    assert_int_equal(native_copy_stopped(&copy, pid, pid), -EPERM);
}

TEST_AROUND(there_is_no_such_process, NULL, end_child)
{
    static struct native_room room;
    const pid_t pid = start(state, stand_below, true);

    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    *state = NULL;
    assert_int_equal(native_stack_read(&room, pid), -ESRCH);
    native_stack_forget(&room);
}

int main(void)
{
    ready = mmap(NULL, sizeof *ready, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
#if !defined(__x86_64__)
    printf("skipped: no C frames are read on this processor\n");
    return 0;
#endif
    return ready == MAP_FAILED ? 1 : test_run(NULL, NULL);
}
