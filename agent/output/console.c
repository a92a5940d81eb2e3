/* SPDX-License-Identifier: Apache-2.0 */
/* O_NONBLOCK belongs to the open file, which we share with the shell and with whoever reads the
 * same terminal: it must not be set there. Terminals and pipes are opened anew through /proc;
 * sockets have MSG_DONTWAIT; files never block for long; for all others (a terminal that we may
 * not open after su) poll() is called first, and a write has at most PIPE_BUF bytes. Readiness
 * comes through an epoll descriptor of our own, since libuv would set the flag. */
#include "agent/output/console.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/output/lines.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum console_kind {
    CONSOLE_FILE,    /* write() does not wait */
    CONSOLE_OWN,     /* opened again, non-blocking */
    CONSOLE_SOCKET,  /* send() with MSG_DONTWAIT */
    CONSOLE_CAREFUL, /* blocking: poll() first, write little */
    CONSOLE_BROKEN,  /* nobody reads: drop the output */
};

enum {
    CONSOLE_MARK_MAX = 1024 /* a longer prefix is cut */
};

struct console {
    enum console_kind kind;
    int fd;      /* what we write to */
    bool is_own; /* close fd */
    bool is_terminal;
    bool is_err;             /* standard error; else standard output */
    bool is_lost;            /* it could be written once */
    struct loop_watch *wait; /* on an epoll descriptor; NULL for files */
    struct ct_list
        ready;        /* sources with something in their queue; the head has the turn */
    size_t turn_left; /* bytes of the head's piece or batch that are not written yet */
    char mark[CONSOLE_MARK_MAX]; /* written before them: a separator and a prefix */
    size_t mark_length;
    size_t mark_at; /* bytes of it that are written */
    uint64_t last;  /* the source of the last byte; 0: none */
    char last_byte;
};

static struct console *standard_error; /* NULL: not open */
static struct console_source messages; /* for it, of this program itself */
static bool is_left_open;              /* its last line, when it was closed */

void console_source_init(struct console_source *source, void (*on_room)(void *context),
                         void *context)
{
    static uint64_t count;

    source->number = ++count;
    ct_list_init(&source->node);
    /* A source stops at its high mark, long before this limit; one piece with its prefix may
     * come on top. */
    ct_buf_init(&source->queue, OUTPUT_QUEUE_HIGH_BYTES + 2 * OUTPUT_PIECE_MAX_BYTES +
                                    OUTPUT_READ_BYTES);
    source->on_room = on_room;
    source->context = context;
}

void console_source_deinit(struct console_source *source)
{
    ct_list_remove(&source->node);
    ct_buf_deinit(&source->queue);
}

bool console_is_shared(void)
{
    struct stat out, err;

    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

static void on_writable(void *context, unsigned events);

static void choose_kind(struct console *console, int fd)
{
    struct stat st;
    char path[40];
    int own;

    console->fd = fd;
    console->is_terminal = isatty(fd);
    console->kind = CONSOLE_FILE;
    if (fstat(fd, &st) < 0) {
        console->kind = CONSOLE_BROKEN; /* the descriptor was closed at our start */
    } else if (S_ISSOCK(st.st_mode)) {
        console->kind = CONSOLE_SOCKET;
    } else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
        (void)ct_format(path, sizeof path, "/proc/self/fd/%d", fd);
        own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        console->kind = own >= 0 ? CONSOLE_OWN : CONSOLE_CAREFUL;
        console->fd = own >= 0 ? own : fd;
        console->is_own = own >= 0;
    }
}

/* The loop reports when fd can be written; /dev/null and files cannot be watched and need not
 * be. */
static int open_wait(struct console *console, struct loop *loop)
{
    struct epoll_event event = {.events = EPOLLOUT};
    int epoll = epoll_create1(EPOLL_CLOEXEC);

    if (epoll < 0)
        return -errno;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, console->fd, &event) < 0) {
        close(epoll);
        return 0;
    }
    console->wait = loop_watch_open(loop, epoll, on_writable, console);
    return console->wait ? 0 : -ENOMEM;
}

/* Nobody waits for room: a message that finds none is lost. */
static void on_room_for_messages(void *context)
{
    (void)context;
}

struct console *console_open(struct loop *loop, int fd)
{
    struct console *console = ct_zalloc(sizeof *console);

    if (!console)
        return NULL;
    ct_list_init(&console->ready);
    console->last_byte = '\n';
    console->is_err = fd == STDERR_FILENO;
    choose_kind(console, fd);
    if (open_wait(console, loop) < 0) {
        console_close(console);
        return NULL;
    }
    if (console->is_err) {
        standard_error = console;
        console_source_init(&messages, on_room_for_messages, NULL);
    }
    return console;
}

static bool is_mid_line(const struct console *console)
{
    return console->last != 0 && console->last_byte != '\n' &&
           console->kind != CONSOLE_BROKEN;
}

void console_close(struct console *console)
{
    if (!console)
        return;
    if (console == standard_error) {
        is_left_open = is_mid_line(console);
        standard_error = NULL;
        console_source_deinit(&messages);
    }
    loop_watch_close(console->wait);
    if (console->is_own)
        close(console->fd);
    free(console);
}

/* Like write(), but never waits: returns -EAGAIN instead. */
static ssize_t write_some(const struct console *console, const void *data,
                          size_t length)
{
    struct pollfd ask = {.fd = console->fd, .events = POLLOUT};
    ssize_t n = 0;

    switch (console->kind) {
    case CONSOLE_BROKEN: return (ssize_t)length;
    case CONSOLE_SOCKET:
        n = send(console->fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        break;
    case CONSOLE_CAREFUL:
        if (poll(&ask, 1, 0) <= 0)
            return -EAGAIN;
        n = write(console->fd, data, length < PIPE_BUF ? length : PIPE_BUF);
        break;
    case CONSOLE_OWN:
    case CONSOLE_FILE: n = write(console->fd, data, length); break;
    }
    return n < 0 ? -errno : n;
}

/* The text between the output of the last source and of the next one: an end for an unfinished
 * line; for a progress bar, on a terminal, the code that clears it, else an end before a message. */
static const char *separator(const struct console *console,
                             const struct console_source *next)
{
    if (console->last == next->number || console->last_byte == '\n')
        return "";
    if (console->last_byte == '\r')
        return console->is_terminal ? "\033[K" : next == &messages ? "\n" : "";
    return "\n";
}

/* Gives the turn to the head. */
static void begin_turn(struct console *console, struct console_source *source)
{
    const char *data = (const char *)ct_buf_data(&source->queue);
    const size_t length = ct_buf_length(&source->queue);
    const bool goes_on = source->is_open && console->last != source->number;

    (void)ct_format(console->mark, sizeof console->mark, "%s%s",
                    separator(console, source),
                    goes_on && source->prefix ? source->prefix : ""); /* cut is fine */
    console->mark_length = strlen(console->mark);
    console->mark_at = 0;
    console->last = source->number;
    console->turn_left = lines_whole(data, length, OUTPUT_TURN_BYTES);
    if (console->turn_left == 0)
        console->turn_left = length; /* a line without an end */
}

/* 0, -EAGAIN, or the error. */
static int write_mark(struct console *console)
{
    while (console->mark_at < console->mark_length) {
        const ssize_t n = write_some(console, console->mark + console->mark_at,
                                     console->mark_length - console->mark_at);

        if (n < 0)
            return (int)n;
        console->mark_at += (size_t)n;
    }
    return 0;
}

/* Writes from the head's queue. 0: continue, -EAGAIN: wait, or the error. */
static int write_turn(struct console *console, struct console_source *source)
{
    const uint8_t *data;
    ssize_t n;
    int rc;

    if (console->turn_left == 0)
        begin_turn(console, source);
    if ((rc = write_mark(console)) < 0)
        return rc;
    data = ct_buf_data(&source->queue);
    n = write_some(console, data, console->turn_left);
    if (n < 0)
        return (int)n;
    if (n > 0) {
        console->last_byte = (char)data[n - 1];
        source->is_open = data[n - 1] != '\n' && data[n - 1] != '\r';
    }
    ct_buf_consume(&source->queue, (size_t)n);
    console->turn_left -= (size_t)n;
    if (console->turn_left > 0)
        return 0;
    ct_list_remove(&source->node); /* to the end of the line, if there is more */
    if (ct_buf_length(&source->queue) > 0)
        ct_list_add(&console->ready, &source->node);
    return 0;
}

static void break_console(struct console *console, const char *why)
{
    console->kind = CONSOLE_BROKEN;
    console->is_lost = true;
    ct_warn("standard %s cannot be written any more: %s",
            console->is_err ? "error" : "output", why);
}

/* Writes until nothing waits or the console is full (-EAGAIN). */
static int write_ready(struct console *console)
{
    while (!ct_list_is_empty(&console->ready)) {
        struct console_source *source = ct_list_entry(console->ready.next,
                                                      struct console_source, node);
        const size_t before = ct_buf_length(&source->queue);
        const int rc = write_turn(console, source);

        if (rc == -EAGAIN)
            return rc;
        if (rc < 0 && rc != -EINTR)
            break_console(console, strerror(-rc));
        if (before > OUTPUT_QUEUE_LOW_BYTES ||
            (before > 0 && ct_buf_length(&source->queue) == 0))
            source->on_room(source->context); /* may push again, or free the source */
    }
    return 0;
}

static void on_writable(void *context, unsigned events)
{
    struct console *console = context;

    (void)events;
    if (write_ready(console) == 0)
        loop_watch_for(console->wait, 0);
}

void console_push(struct console *console, struct console_source *source)
{
    const bool is_idle = ct_list_is_empty(&console->ready);

    if (ct_buf_length(&source->queue) == 0)
        return;
    if (ct_list_is_empty(&source->node))
        ct_list_add(&console->ready, &source->node);
    if (is_idle && write_ready(console) == -EAGAIN && console->wait)
        loop_watch_for(console->wait, LOOP_READ);
}

void console_flush(struct console *console, uint64_t timeout_ms)
{
    struct pollfd ask = {.fd = console->fd, .events = POLLOUT};
    uint64_t read_ms = ct_now_ms();
    char why[64];

    while (write_ready(console) == -EAGAIN) {
        const uint64_t waited_ms = ct_now_ms() - read_ms;
        const int rc = waited_ms < timeout_ms
                           ? poll(&ask, 1, (int)(timeout_ms - waited_ms))
                           : 0;

        if (rc > 0)
            read_ms = ct_now_ms();
        else if (rc < 0 && timeout_ms > OUTPUT_HURRY_MS)
            timeout_ms = OUTPUT_HURRY_MS; /* a signal: somebody waits for the end */
        else if (rc == 0) {
            (void)ct_format(why, sizeof why, "nobody has read it for %u s",
                            (unsigned)((ct_now_ms() - read_ms) / 1000));
            break_console(console, why);
        }
    }
}

bool console_is_lost(const struct console *console)
{
    return console->is_lost;
}

void console_check(struct console *console)
{
    struct pollfd ask = {.fd = console->fd};

    if (console->kind != CONSOLE_BROKEN && poll(&ask, 1, 0) == 1 &&
        (ask.revents & POLLERR))
        break_console(console, strerror(EPIPE));
}

bool console_message(const char *text, size_t length)
{
    struct pollfd ask = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (standard_error && standard_error->kind != CONSOLE_BROKEN) {
        (void)ct_buf_append(&messages.queue, text, length); /* full: it is lost */
        console_push(standard_error, &messages);
        return true;
    }
    if (standard_error && poll(&ask, 1, 0) <= 0)
        return true; /* nobody reads it */
    if (is_left_open)
        (void)!write(STDERR_FILENO, "\n", 1);
    is_left_open = false;
    return false;
}
