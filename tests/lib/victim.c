/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that does what its arguments say, one word after the other, and then exits with 0:
 *
 *     victim ignore TERM touch ready hang
 *     victim @1 exit 3 @all hang              local rank 1 exits, the others hang
 *     victim @r0 die KILL @all write again    in the first round only
 *
 *   @N, @rM, @NrM, @all   the words that follow are for local rank N, for restart count M, for
 *                         both, for all
 *   exit CODE, die SIG, hang, spin (computes for ever), sleep MS
 *   ignore SIG         SIG is the name without SIG
 *   on SIG CODE        from now on SIG ends it with CODE; `on SIG touch:FILE` makes a file
 *   write TEXT, err TEXT   \n, \r and \e in TEXT are what they look like
 *   flood BYTES        lines of 80 bytes on stdout, BYTES in all
 *   pour RATE BYTES    the same at RATE bytes a second
 *   long BYTES         one line of that length
 *   child              forks one that hangs, in our session
 *   group              the same in a process group of its own
 *   orphan             double-forks one into a session of its own that ignores all signals
 *   hydra              the same, and it forks itself anew and ends, again and again
 *   holder             the same in our session and group: it holds our pipes, TERM ends it
 *   eat BYTES          takes memory and uses it
 *   touch FILE, await FILE   FILE may hold %r for the local rank
 *   errfile TEXT       writes TEXT to TORCHELASTIC_ERROR_FILE
 *   env NAME           writes NAME=value and a newline to stdout; `fds` the open descriptors
 *   ask                reads a line from stdin and writes it to stdout
 *   meet               waits for ever, as in a collective that the others do not enter
 *   step N, stopped    reports the step to the agent; waits until the agent asks to stop
 *   poll               asks once whether it should stop
 *   metric NAME VALUE  reports a number to the agent */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/agent_socket.h"
#include "worker_sdk/client/progress.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

struct victim {
    struct ct_agent_socket agent;
    bool has_agent;
    char **words; /* what is left */
    const char *rank;
    const char *restart;
};

static volatile sig_atomic_t exit_code;
static char touch_on_signal[512];

static void die_of(const char *why)
{
    dprintf(STDERR_FILENO, "victim: %s: %s\n", why, strerror(errno));
    _exit(99);
}

static const char *word(struct victim *victim)
{
    if (!*victim->words)
        die_of("a word is missing");
    return *victim->words++;
}

static long number(struct victim *victim)
{
    return strtol(word(victim), NULL, 10);
}

static int signal_number(const char *name)
{
    for (int i = 1; i < NSIG; i++)
        if (ct_signal_name(i) && strcmp(ct_signal_name(i), name) == 0)
            return i;
    die_of(name);
    return 0;
}

static void put(int fd, const char *data, size_t length)
{
    while (length > 0) {
        const ssize_t n = write(fd, data, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            _exit(98);
        data += n;
        length -= (size_t)n;
    }
}

static void put_text(int fd, const char *text)
{
    char out[4096];
    size_t length = 0;

    for (; *text && length < sizeof out; text++) {
        if (text[0] == '\\' && text[1] && strchr("nre", text[1])) {
            out[length++] = *++text == 'n' ? '\n' : *text == 'r' ? '\r' : '\033';
            continue;
        }
        out[length++] = *text;
    }
    put(fd, out, length);
}

static const char *path_of(const struct victim *victim, const char *text)
{
    static char path[512];
    const char *mark = strstr(text, "%r");

    if (!mark)
        return text;
    (void)ct_format(path, sizeof path, "%.*s%s%s", (int)(mark - text), text,
                    victim->rank, mark + 2);
    return path;
}

static void touch(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

    if (fd < 0)
        die_of(path);
    close(fd);
}

static void nap(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};

    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static _Noreturn void hang(void)
{
    for (;;)
        pause();
}

static void meet(void)
{
    ct_progress_begin_wait();
    hang();
}

static void on_signal(int signal)
{
    (void)signal;
    if (touch_on_signal[0])
        touch(touch_on_signal);
    else
        _exit(exit_code);
}

static void catch (struct victim *victim)
{
    const int signal = signal_number(word(victim));
    const char *what = word(victim);
    struct sigaction action = {.sa_handler = on_signal};

    if (ct_starts_with(what, "touch:"))
        (void)ct_copy(touch_on_signal, sizeof touch_on_signal,
                      path_of(victim, what + strlen("touch:")));
    else
        exit_code = (int)strtol(what, NULL, 10);
    (void)sigaction(signal, &action, NULL);
}

static void ignore_all(void)
{
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_IGN);
}

static void fork_child(bool has_own_group)
{
    const pid_t pid = fork();

    if (pid < 0)
        die_of("fork");
    if (pid > 0)
        return;
    if (has_own_group)
        (void)setpgid(0, 0);
    hang();
}

static void fork_orphan(bool is_daemon)
{
    const pid_t pid = fork();
    int status;

    if (pid < 0)
        die_of("fork");
    if (pid > 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        return;
    }
    if (is_daemon) {
        (void)setsid();
        ignore_all();
    }
    if (fork() != 0)
        _exit(0);
    hang();
}

/* Its pid changes before another process can use it; for a minute at most. */
static void fork_hydra(void)
{
    const uint64_t end_ms = ct_now_ms() + 60000;
    const pid_t pid = fork();

    if (pid < 0)
        die_of("fork");
    if (pid > 0)
        return;
    (void)setsid();
    ignore_all();
    while (ct_now_ms() < end_ms)
        if (fork() > 0)
            _exit(0);
    _exit(0);
}

/* rate 0: as fast as it goes. */
static void flood(long bytes, long rate)
{
    static char lines[80 * 512];
    const uint64_t began_ms = ct_now_ms();
    uint64_t due_ms;

    for (size_t i = 0; i < sizeof lines; i++)
        lines[i] = i % 80 == 79 ? '\n' : (char)('a' + i / 80 % 26);
    for (long done = 0; done < bytes; done += (long)sizeof lines) {
        put(STDOUT_FILENO, lines,
            bytes - done < (long)sizeof lines ? (size_t)(bytes - done) : sizeof lines);
        due_ms = rate > 0 ? began_ms + (uint64_t)done * 1000 / (uint64_t)rate : 0;
        if (due_ms > ct_now_ms())
            nap((long)(due_ms - ct_now_ms()));
    }
}

static void pour(struct victim *victim)
{
    const long rate = number(victim);

    flood(number(victim), rate);
}

static void write_long_line(long bytes)
{
    for (; bytes > 0; bytes--)
        put(STDOUT_FILENO, "x", 1);
    put(STDOUT_FILENO, "\n", 1);
}

static void eat(size_t bytes)
{
    volatile char *memory = malloc(bytes);

    for (size_t i = 0; memory && i < bytes; i += 4096)
        memory[i] = 1;
}

static void write_error_file(const char *text)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    FILE *file = path ? fopen(path, "we") : NULL;

    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        die_of("error file");
}

static void write_fds(void)
{
    char out[64];

    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0) {
            const int n = ct_format(out, sizeof out, "fd=%d\n", fd);

            put(STDOUT_FILENO, out, (size_t)n);
        }
}

static void write_env(const char *name)
{
    char out[1024];
    const char *value = getenv(name);
    const int n = ct_format(out, sizeof out, "%s=%s\n", name,
                            value ? value : "<unset>");

    put(STDOUT_FILENO, out, (size_t)n);
}

static void answer(void)
{
    char line[256];
    const ssize_t n = read(STDIN_FILENO, line, sizeof line);

    if (n > 0)
        put(STDOUT_FILENO, line, (size_t)n);
}

static void await(const char *path)
{
    while (access(path, F_OK) < 0)
        nap(2);
}

static struct ct_agent_socket *agent(struct victim *victim)
{
    const char *generation = getenv(CT_ENV_GENERATION);

    if (!victim->has_agent)
        ct_agent_socket_init(&victim->agent, getenv(CT_ENV_AGENT_SOCKET),
                             (int)strtol(getenv(CT_ENV_RANK), NULL, 10),
                             generation ? strtoull(generation, NULL, 10) : 0);
    victim->has_agent = true;
    return &victim->agent;
}

static void tell_metric(struct victim *victim)
{
    const char *name = word(victim);

    if (ct_agent_socket_metric(agent(victim), name, strtod(word(victim), NULL)) < 0)
        die_of(name);
}

static void await_stop(struct victim *victim)
{
    while (!ct_agent_socket_should_stop(agent(victim)))
        nap(2);
}

static _Noreturn void spin(void)
{
    for (volatile unsigned i = 0;; i++)
        ;
}

static void die(int number_)
{
    const struct rlimit none = {0};

    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(number_, SIG_DFL);
    (void)raise(number_);
}

/* True when the words that follow this mark are for us: a rank, a restart count, or both. */
static bool is_for_us(const struct victim *victim, const char *mark)
{
    const char *at = mark + 1;
    char *end;

    if (strcmp(mark, "@all") == 0)
        return true;
    if (*at != 'r') {
        if (strtol(at, &end, 10) != strtol(victim->rank, NULL, 10))
            return false;
        at = end;
    }
    return *at == '\0' || strcmp(at + 1, victim->restart) == 0;
}

static void skip(struct victim *victim)
{
    while (*victim->words && **victim->words != '@')
        victim->words++;
}

static void act_on_process(struct victim *victim, const char *verb)
{
    if (strcmp(verb, "exit") == 0)
        _exit((int)number(victim));
    else if (strcmp(verb, "die") == 0)
        die(signal_number(word(victim)));
    else if (strcmp(verb, "spin") == 0)
        spin();
    else if (strcmp(verb, "hang") == 0)
        hang();
    else if (strcmp(verb, "meet") == 0)
        meet();
    else if (strcmp(verb, "sleep") == 0)
        nap(number(victim));
    else if (strcmp(verb, "ignore") == 0)
        (void)signal(signal_number(word(victim)), SIG_IGN);
    else if (strcmp(verb, "on") == 0)
        catch (victim);
    else if (strcmp(verb, "eat") == 0)
        eat((size_t)number(victim));
    else if (strcmp(verb, "child") == 0)
        fork_child(false);
    else if (strcmp(verb, "group") == 0)
        fork_child(true);
    else if (strcmp(verb, "orphan") == 0)
        fork_orphan(true);
    else if (strcmp(verb, "hydra") == 0)
        fork_hydra();
    else if (strcmp(verb, "holder") == 0)
        fork_orphan(false);
    else
        die_of(verb);
}

static void act(struct victim *victim, const char *verb)
{
    if (*verb == '@' && !is_for_us(victim, verb))
        skip(victim);
    else if (*verb == '@')
        return;
    else if (strcmp(verb, "write") == 0)
        put_text(STDOUT_FILENO, word(victim));
    else if (strcmp(verb, "err") == 0)
        put_text(STDERR_FILENO, word(victim));
    else if (strcmp(verb, "flood") == 0)
        flood(number(victim), 0);
    else if (strcmp(verb, "pour") == 0)
        pour(victim);
    else if (strcmp(verb, "long") == 0)
        write_long_line(number(victim));
    else if (strcmp(verb, "touch") == 0)
        touch(path_of(victim, word(victim)));
    else if (strcmp(verb, "await") == 0)
        await(path_of(victim, word(victim)));
    else if (strcmp(verb, "errfile") == 0)
        write_error_file(word(victim));
    else if (strcmp(verb, "env") == 0)
        write_env(word(victim));
    else if (strcmp(verb, "fds") == 0)
        write_fds();
    else if (strcmp(verb, "ask") == 0)
        answer();
    else if (strcmp(verb, "step") == 0)
        ct_agent_socket_step(agent(victim), (uint64_t)number(victim));
    else if (strcmp(verb, "metric") == 0)
        tell_metric(victim);
    else if (strcmp(verb, "poll") == 0)
        (void)ct_agent_socket_should_stop(agent(victim));
    else if (strcmp(verb, "stopped") == 0)
        await_stop(victim);
    else
        act_on_process(victim, verb);
}

int main(int argc, char **argv)
{
    struct victim victim = {.words = argv + 1};
    const char *rank = getenv("LOCAL_RANK");
    const char *restart = getenv("TORCHELASTIC_RESTART_COUNT");

    (void)argc;
    victim.rank = rank ? rank : "0";
    victim.restart = restart ? restart : "0";
    while (*victim.words)
        act(&victim, word(&victim));
    if (victim.has_agent)
        ct_agent_socket_deinit(&victim.agent);
    return 0;
}
