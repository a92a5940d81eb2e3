/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl chaos: sends the faults of a plan to the agents, each at its time. A lasting fault ends by a timer of its
 * agent; when ctrunctl is interrupted it ends all of them at once. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/error_file/json.h"
#include "launcher/ctl/ctl_run.h"
#include "launcher/options/chaos_plan.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/wire/contract.h"

enum {
    LOOK_MS = 500 /* how often it checks that the run is live */
};

static const struct ctl_option options[] = {
    {.name = "dry-run", .help = "print the schedule; nothing is done"},
    {.name = "seed", .value = "N", .help = "use this seed, not the plan's"},
    {.name = "ranks",
     .value = "N",
     .help = "with --dry-run: a world of N ranks; default: the run's world"},
    {.name = "nodes", .value = "N", .help = "with --dry-run: on N nodes"},
    CTL_OF_RUN};

struct chaos {
    const struct ctl_call *call;
    const char *name; /* of the plan */
    struct chaos_plan plan;
    struct chaos_step *steps; /* owned */
    int count;
    int failed; /* faults that could not be injected */
};

static int read_plan(struct chaos *chaos, struct ctrun_error *err)
{
    const char *seed = ctl_value(chaos->call, "seed");
    size_t length;
    char *text;
    int rc = ct_whole_file_read(chaos->name, CHAOS_PLAN_FILE_MAX_BYTES, &text, &length,
                                NULL);

    if (rc < 0)
        return ct_fail(err, CTRUN_E_USAGE, "%.300s: %s", chaos->name,
                       rc == -EBADMSG ? "not a regular file" : strerror(-rc));
    rc = chaos_plan_parse(&chaos->plan, text, length, chaos->name, err);
    free(text);
    if (rc == 0 && seed && ct_parse_u64(seed, 0, UINT64_MAX, &chaos->plan.seed) < 0)
        rc = ct_fail(err, CTRUN_E_USAGE, "--seed %s: not a number", seed);
    return rc;
}

static int make_schedule(struct chaos *chaos, unsigned ranks, unsigned nodes,
                         struct ctrun_error *err)
{
    if (ranks == 0 || nodes == 0)
        return ct_fail(err, -ESRCH, "no round of this run has begun yet");
    chaos->count = chaos_plan_schedule(&chaos->steps, &chaos->plan, chaos->name, ranks,
                                       nodes, err);
    return chaos->count;
}

/* ---- Output ------------------------------------------------------------------------------ */

/* Prints one fault. `why`: the reason why it was not injected; NULL: it was, or will be. */
static void print_step(const struct chaos *chaos, const struct chaos_step *step,
                       const char *why)
{
    const bool is_dry = ctl_value(chaos->call, "dry-run");
    char text[CHAOS_STEP_TEXT_MAX];

    chaos_plan_format(text, &step->fault);
    if (!ctl_value(chaos->call, "json")) {
        printf("%6llu.%03llu s  %s:%u: %s%s%s\n",
               (unsigned long long)step->at_ms / 1000,
               (unsigned long long)step->at_ms % 1000, chaos->name, step->fault.line,
               text, why ? ": not done: " : "", why ? why : "");
    } else {
        printf("{\"at_ms\":%llu,\"line\":%u,\"fault\":",
               (unsigned long long)step->at_ms, step->fault.line);
        json_print_text(stdout, text);
        if (!is_dry)
            printf(",\"done\":%s,\"why\":", why ? "false" : "true");
        if (!is_dry)
            json_print_text(stdout, why ? why : "");
        fputs("}\n", stdout);
    }
    fflush(stdout);
}

static int show(struct chaos *chaos, struct ctrun_error *err)
{
    struct ctl_runs runs = {0};
    int ranks, nodes;
    int rc = ctl_number(chaos->call, "ranks", &ranks, err);

    if (rc < 0 || (rc = ctl_number(chaos->call, "nodes", &nodes, err)) < 0)
        return rc;
    if (ranks == 0 || nodes == 0)
        return ct_fail(err, CTRUN_E_USAGE, "--ranks and --nodes must be at least 1");
    if (ranks < 0 && (rc = ctl_runs_find_one(&runs, chaos->call, err)) >= 0) {
        ranks = (int)runs.list[0].status.world_size;
        nodes = nodes < 0 ? (int)runs.list[0].status.nodes : nodes;
    }
    ctl_runs_deinit(&runs);
    if (rc >= 0)
        rc = make_schedule(chaos, (unsigned)ranks, nodes < 0 ? 1 : (unsigned)nodes,
                           err);
    for (int i = 0; i < rc; i++)
        print_step(chaos, &chaos->steps[i], NULL);
    return rc;
}

/* ---- Injection --------------------------------------------------------------------------- */

static int ask(const struct ctl_run *run, const struct ct_fault *fault,
               struct ctrun_error *err)
{
    struct ct_ctl_request request = {.verb = CT_CTL_CHAOS,
                                     .rank = -1,
                                     .command_count = 1,
                                     .fault_count = 1,
                                     .fault = {*fault}};
    char text[CHAOS_STEP_TEXT_MAX];
    struct ct_buf answer;
    int rc;

    chaos_plan_format(text, fault);
    (void)ct_copy(request.command[0].text, sizeof request.command[0].text, text);
    ct_buf_init(&answer, 4096);
    rc = ctl_run_ask(run, &request, &answer, err);
    ct_buf_deinit(&answer);
    return rc;
}

/* Ends all lasting faults. Also used as the first request, because it fails if the run was
 * started without --allow-chaos. */
static int end_all(const struct ctl_run *run, struct ctrun_error *err)
{
    return ask(run, &(struct ct_fault){.kind = CT_FAULT_END, .target = -1}, err);
}

/* True when the socket of the run is gone or nothing listens there. */
static bool has_ended(const struct ctl_run *run)
{
    struct ctrun_error err;
    const int dir = ctl_dir_open(run->dir, false, &err);
    int fd;

    if (dir < 0)
        return dir == -ENOENT;
    fd = ctl_dir_connect(dir, run->name, SOCK_STREAM);
    close(dir);
    if (fd >= 0)
        close(fd);
    return fd == -ENOENT || fd == -ECONNREFUSED;
}

/* Waits until `until_ms`. Returns the signal that ended the wait, 0, or -ESRCH: the run has
 * ended. */
static int wait_until(const struct ctl_run *run, int signals, uint64_t until_ms)
{
    struct signalfd_siginfo info;
    struct pollfd ready = {.fd = signals, .events = POLLIN};

    do {
        const int left_ms = ct_left_ms(until_ms);

        if (poll(&ready, 1, left_ms < LOOK_MS ? left_ms : LOOK_MS) > 0 &&
            read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            return (int)info.ssi_signo;
        if (has_ended(run))
            return -ESRCH;
    } while (ct_left_ms(until_ms) > 0);
    return 0;
}

static int print_ended(const struct chaos *chaos, const struct ctl_run *run, int left)
{
    fprintf(stderr, "ctrunctl: run %s has ended; %d of %d faults were not injected\n",
            run->status.run_id, left, chaos->count);
    return 0;
}

/* Injects all faults and waits until the last one has ended. Returns the signal that ended the
 * wait, 0, or a code. */
static int inject(struct chaos *chaos, const struct ctl_run *run, int signals,
                  struct ctrun_error *err)
{
    const uint64_t start_ms = ct_now_ms();
    uint64_t over_ms = 0;
    int rc = 0;

    for (int i = 0; i < chaos->count; i++) {
        const struct chaos_step *step = &chaos->steps[i];

        if ((rc = wait_until(run, signals, start_ms + step->at_ms)) > 0)
            return rc;
        if (rc == 0)
            rc = ask(run, &step->fault, err);
        if (rc < 0 && has_ended(run))
            return print_ended(chaos, run, chaos->count - i);
        chaos->failed += rc < 0;
        print_step(chaos, step, rc < 0 ? err->text : NULL);
        if (rc == 0 && step->at_ms + step->fault.for_ms > over_ms)
            over_ms = step->at_ms + step->fault.for_ms;
    }
    rc = wait_until(run, signals, start_ms + over_ms);
    return rc > 0 ? rc : 0;
}

/* Signals are blocked and read from a descriptor, so that none is lost between two waits. */
static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -1
                                                  : signalfd(-1, &set, SFD_CLOEXEC);
}

static int do_plan(struct chaos *chaos, int *code, struct ctrun_error *err)
{
    struct ctl_runs runs;
    const int signals = open_signals();
    int rc = ctl_runs_find_one(&runs, chaos->call, err);

    if (rc >= 0 && signals < 0)
        rc = ct_fail(err, -errno, "signals: %s", strerror(errno));
    if (rc >= 0)
        rc = make_schedule(chaos, runs.list[0].status.world_size,
                           runs.list[0].status.nodes, err);
    if (rc >= 0 && (rc = end_all(&runs.list[0], err)) == 0 &&
        (rc = inject(chaos, &runs.list[0], signals, err)) > 0) {
        *code = 128 + rc;
        rc = end_all(&runs.list[0], err);
        rc = rc < 0 && has_ended(&runs.list[0]) ? 0 : rc;
    }
    if (signals >= 0)
        close(signals);
    ctl_runs_deinit(&runs);
    return rc;
}

static int run(const struct ctl_call *call)
{
    static struct chaos chaos;
    struct ctrun_error err;
    int code = CT_EXIT_OK;
    int rc;

    chaos = (struct chaos){.call = call, .name = call->words[0]};
    rc = read_plan(&chaos, &err);
    if (rc == 0)
        rc = ctl_value(call, "dry-run") ? show(&chaos, &err)
                                        : do_plan(&chaos, &code, &err);
    free(chaos.steps);
    if (rc < 0)
        return ctl_fail(&err);
    return code == CT_EXIT_OK && chaos.failed > 0 ? CT_EXIT_FAILURE : code;
}

const struct ctl_verb ctl_chaos = {
    .name = "chaos",
    .words = "PLAN",
    .word_min = 1,
    .word_max = 1,
    .help =
        "inject the faults of a plan into a run that has --allow-chaos\n"
        "PLAN is a file; each line is one of\n"
        "  seed N | end TIME\n"
        "  at TIME|every TIME kill rank=N|any [signal=NAME]\n"
        "  at TIME|every TIME stop rank=N|any for=TIME\n"
        "  at TIME|every TIME cut  node=N|any for=TIME\n"
        "  at TIME|every TIME slow node=N|any by=TIME for=TIME\n"
        "  at TIME|every TIME full node=N|any for=TIME\n"
        "  at TIME|every TIME quota node=N|any for=TIME\n"
        "  at TIME|every TIME throttle node=N|any to=RATE for=TIME\n"
        "  at TIME|every TIME sever rank=N|any\n"
        "TIME is 500ms, 10s or 2m; after at and every also from..to. The "
        "same plan, seed\n"
        "and world make the same schedule. Ctrl-C ends all lasting faults. Exit code 1 "
        "when a fault\n"
        "could not be injected.",
    .options = options,
    .run = run,
};
