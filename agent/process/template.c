/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/template.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/process/orphans.h"
#include "agent/process/spawn.h"
#include "agent/process/template_source.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/signal_name.h"
#include "worker_sdk/base/str.h"

enum {
    MESSAGE_MAX_BYTES = 512,
    TEMPLATE_LOOK_NS = 1000 * 1000,
};

enum template_state {
    TEMPLATE_STARTING,
    TEMPLATE_READY,
    TEMPLATE_LOST,
    TEMPLATE_REFUSED
};

struct template
{
    enum template_state state;
    const struct template_plan *plan;
    struct loop *loop;
    struct loop_watch *watch; /* the watch of its socket; NULL: there is none */
    struct loop_timer *timer; /* limits the time of the imports */
    pid_t pid;                /* 0: there is no process */
    bool is_closed;           /* the process's end of the socket */
    uint64_t started_ms;
    int losses;
    bool has_learned;
    void (*on_settled)(void *context);
    void *context;
};

/* Puts our text into an interpreter: names of its own, and a __main__ that stays empty. */
static const char boot[] =
    "import sys; ctrun = {'__name__': 'ctrun.template'}; "
    "exec(compile(sys.argv[1], '<ctrun>', 'exec'), ctrun); ctrun['main']()";

static void emit(const struct template *template, const char *why)
{
    static const char *const names[] = {"starting", "ready", "lost", "refused"};

    ct_event_emit("template_state", CT_STR("to", names[template->state]),
                  CT_INT("template_pid", template->pid),
                  CT_INT("duration_ms", ct_now_ms() - template->started_ms),
                  CT_STR("reason", why));
}

/* The only place, besides start(), where the state changes. REFUSED is final. */
static void settle(struct template *template, enum template_state state,
                   const char *why)
{
    const bool was_starting = template->state == TEMPLATE_STARTING;

    if (template->state == TEMPLATE_REFUSED)
        return;
    template->state = state;
    loop_timer_stop(template->timer);
    emit(template, why);
    if (state == TEMPLATE_REFUSED)
        ct_warn("--warm: workers are started by exec: %s", why);
    if (was_starting)
        template->on_settled(template->context);
}

/* Kills the template and the workers that it was about to make, or the template alone when no descriptor is left to
 * find the workers: those end by themselves. It is reaped as every child is. */
static void kill_all(struct template *template)
{
    struct orphans_pass below = {.session = template->pid};

    if (template->pid > 0) {
        (void)orphans_kill(&below, NULL);
        (void)kill(template->pid, SIGKILL);
    }
    loop_watch_close(template->watch);
    template->watch = NULL;
}

static void refuse(struct template *template, const char *why)
{
    kill_all(template);
    settle(template, TEMPLATE_REFUSED, why);
}

/* True: lost for this round only. */
static bool lose(struct template *template, const char *why)
{
    const bool is_last = ++template->losses >= TEMPLATE_LOSSES_MAX;

    settle(template, is_last ? TEMPLATE_REFUSED : TEMPLATE_LOST, why);
    return !is_last;
}

void template_fail_batch(struct template *template, int rc, const char *why)
{
    kill_all(template);
    if (rc != -ETIMEDOUT && rc != -EPIPE)
        settle(template, TEMPLATE_REFUSED, why);
    else if (lose(template, why))
        ct_warn(
            "--warm: workers are started by exec: %s; the next round starts another "
            "template",
            why);
}

static void on_late(void *context)
{
    struct template *template = context;
    char why[64];

    if (template->is_closed)
        (void)ct_format(why, sizeof why, "the template has closed its socket");
    else
        (void)ct_format(why, sizeof why, "the imports took more than %llu s",
                        (unsigned long long)(template->plan->limit_ms / 1000));
    refuse(template, why);
}

/* Reads until the template is ready or reports an obstacle. The end of the socket is no message:
 * SIGCHLD reports it. */
static void on_readable(void *context, unsigned events)
{
    struct template *template = context;
    char text[MESSAGE_MAX_BYTES];
    ssize_t got;

    (void)events;
    got = recv(loop_watch_fd(template->watch), text, sizeof text - 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    loop_watch_for(template->watch, 0);
    if (got == 0) { /* the exit status says more */
        template->is_closed = true;
        loop_timer_set(template->timer, TEMPLATE_END_MS);
        return;
    }
    if (got < 0) {
        refuse(template, strerror(errno));
        return;
    }
    text[got] = '\0';
    ct_make_plain(text, false);
    if (strcmp(text, "R") == 0)
        settle(template, TEMPLATE_READY, "");
    else
        refuse(template, *text == 'N' && text[1]
                             ? text + 1
                             : "the template sent an unknown message");
}

static int start_process(struct template *template, int socket, struct ctrun_error *err)
{
    const struct template_plan *plan = template->plan;
    struct spawn_batch batch = {.max = 1};
    struct spawn spawn = {0};
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char number[16], workers[16];
    const char *const argv[] = {plan->python,    "-u",   "-c",          boot,
                                template_source, number, plan->modules, plan->script,
                                workers,         NULL};
    const struct spawn_request request = {.argv = (char *const *)(uintptr_t)argv,
                                          .env = plan->env,
                                          .in = nothing,
                                          .out = STDERR_FILENO,
                                          .err = -1,
                                          .extra = socket,
                                          .bind = &plan->bind};
    int rc;

    (void)ct_format(number, sizeof number, "%d", socket);
    (void)ct_format(workers, sizeof workers, "%d", plan->workers);
    rc = spawn_start(&spawn, &batch, &request, err);
    spawn_wait(&batch);
    if (rc == 0)
        rc = spawn_check(&spawn, &batch, err);
    if (rc == 0)
        template->pid = spawn_pid(&spawn, &batch);
    spawn_end(&batch);
    if (nothing >= 0)
        close(nothing);
    return rc;
}

/* The watch owns our end of the socket, the child the other end. A failure may call on_settled
 * at once, from within template_create() and template_revive(). */
static void start(struct template *template)
{
    static const int on = 1;
    struct ctrun_error err = {0};
    int fds[2];

    template->state = TEMPLATE_STARTING;
    template->is_closed = false;
    template->started_ms = ct_now_ms();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
        refuse(template, strerror(errno));
        return;
    }
    (void)setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    if (!(template->watch = loop_watch_open(template->loop, fds[0], on_readable,
                                            template)))
        (void)ct_fail(&err, -ENOMEM, "out of memory");
    else
        (void)start_process(template, fds[1], &err);
    close(fds[1]);
    if (err.code < 0) {
        refuse(template, err.text);
        return;
    }
    emit(template, "");
    loop_watch_for(template->watch, LOOP_READ);
    loop_timer_set(template->timer, template->plan->limit_ms);
}

struct template *template_create(struct loop *loop, const struct template_plan *plan,
                                 void (*on_settled)(void *context), void *context)
{
    struct template *template = ct_zalloc(sizeof *template);

    if (!template)
        return NULL;
    template->loop = loop;
    template->plan = plan;
    template->on_settled = on_settled;
    template->context = context;
    if (!(template->timer = loop_timer_open(loop, on_late, template))) {
        free(template);
        return NULL;
    }
    start(template);
    return template;
}

/* One that hangs in the kernel is left to the guard, which reports it. */
static void await_end(pid_t pid)
{
    static const struct timespec pause = {.tv_nsec = TEMPLATE_LOOK_NS};
    const uint64_t deadline_ms = ct_deadline_ms(TEMPLATE_END_MS);

    while (waitpid(pid, NULL, WNOHANG) == 0 && ct_left_ms(deadline_ms) > 0)
        (void)nanosleep(&pause, NULL);
}

void template_destroy(struct template *template)
{
    if (!template)
        return;
    kill_all(template);
    if (template->pid > 0)
        await_end(template->pid);
    loop_timer_close(template->timer);
    free(template);
}

void template_revive(struct template *template)
{
    if (template->state == TEMPLATE_LOST && template->pid == 0)
        start(template);
}

bool template_is_starting(const struct template *template)
{
    return template && template->state == TEMPLATE_STARTING;
}

int template_socket(const struct template *template)
{
    return template && template->state == TEMPLATE_READY
               ? loop_watch_fd(template->watch)
               : -1;
}

/* Why template_learn() has ended it. */
static bool take_obstacle(const struct template *template, char why[MESSAGE_MAX_BYTES])
{
    const ssize_t got = recv(loop_watch_fd(template->watch), why, MESSAGE_MAX_BYTES - 1,
                             MSG_DONTWAIT);

    if (got < 2 || *why != 'N')
        return false;
    memmove(why, why + 1, (size_t)got - 1);
    why[got - 1] = '\0';
    ct_make_plain(why, false);
    return true;
}

bool template_on_end(struct template *template, pid_t pid, int status)
{
    char name[CT_SIGNAL_NAME_MAX];
    char why[MESSAGE_MAX_BYTES];

    if (!template || pid <= 0 || template->pid != pid)
        return false;
    /* The message that says why it ends may still be unread. */
    if (template->state == TEMPLATE_STARTING && template->watch)
        on_readable(template, LOOP_READ);
    template->pid = 0;
    if (template->state == TEMPLATE_READY && take_obstacle(template, why))
        ct_warn("--warm=auto: no worker can be forked after its imports, and the next "
                "round starts a template without them: %s",
                why);
    else if (WIFSIGNALED(status))
        (void)ct_format(why, sizeof why, "the template died of %s",
                        ct_signal_format(name, WTERMSIG(status)));
    else
        (void)ct_format(why, sizeof why, "the template ended with code %d",
                        WEXITSTATUS(status));
    kill_all(template);
    if (template->state == TEMPLATE_READY)
        (void)lose(template, why);
    else if (template->state != TEMPLATE_LOST) /* a batch failed: reported then */
        settle(template, TEMPLATE_REFUSED, why);
    return true;
}

void template_learn(struct template *template, const char *names)
{
    static const char prefix[] = "IMPORT ";
    struct iovec parts[] = {{(void *)(uintptr_t)prefix, sizeof prefix - 1},
                            {(void *)(uintptr_t)names, strlen(names)}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    const int fd = template_socket(template);

    if (fd < 0 || !template->plan->learns || template->has_learned)
        return;
    template->has_learned = true;
    if (sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        ct_info("--warm=auto: the template does not get the names of modules: %s",
                strerror(errno));
}

void template_keep(const struct template *template, struct reap_keep *keep)
{
    keep->count = template && template->pid > 0;
    keep->pids[0] = keep->count ? template->pid : 0;
}
