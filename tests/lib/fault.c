/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD that makes one call of a program fail:
 *
 *     FAULT=KIND:N   the N-th call of KIND; KIND is memory, open, read, write or socket
 *     FAULT=at:KIND:PROGRAM:OFFSET...  the first call of KIND whose innermost callers these are
 *     FAULT=signal:N the agent gets SIGTERM before its N-th call of open; nothing fails
 *     FAULT=list     none: the file lists each group of callers once: KIND PROGRAM OFFSET...
 *     FAULT_FILE     that list, or a file that is made when the call fails, with its callers;
 *                    FAULT_FILE.crash is made when a process of the program crashes
 *
 * Only calls from the program's own code count, in it and in processes that it forks; calls of
 * libraries do not, nor do programs that it starts. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#pragma GCC visibility push(default)

enum kind {
    MEMORY,
    OPEN,
    READ,
    WRITE,
    SOCKET,
    KINDS,
};

enum {
    CALLERS_MAX = 24,
    SEEN_MAX = 1 << 14,
};

static const char *const names[KINDS] = {"memory", "open", "read", "write", "socket"};
static const int errors[KINDS] = {ENOMEM, EMFILE, EIO, ENOSPC, ENOBUFS};

/* Shared by all processes that the program forks. */
struct shared {
    atomic_long left; /* calls until the one that fails */
    atomic_ullong seen[SEEN_MAX];
};

static enum {
    OFF,
    COUNT,
    SIGNAL,
    AT,
    LIST
} mode;
static enum kind chosen;
static uintptr_t chosen_callers[CALLERS_MAX]; /* AT: innermost first */
static int chosen_count;
static struct shared *shared;
static char file[4096];
static uintptr_t load, text_begin, text_end; /* of the program */

/* It starts a ctrun, which loads this library, too. */
static bool is_relay(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "--relay") == 0;
}

/* dlsym() itself may call calloc(). The first exists under a sanitizer. */
__attribute__((weak)) void *__interceptor_calloc(size_t count, size_t size);
void *__libc_calloc(size_t count, size_t size);

static void on_crash(int signal)
{
    char path[sizeof file + 8];
    int fd;

    (void)snprintf(path, sizeof path, "%s.crash", file);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY, 0600);
    if (fd >= 0) {
        void *callers[CALLERS_MAX];

        backtrace_symbols_fd(callers, backtrace(callers, CALLERS_MAX), fd);
    }
    (void)raise(signal); /* the default action follows when this returns */
}

static void watch_crashes(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    const struct sigaction action = {.sa_handler = on_crash,
                                     .sa_flags = (int)SA_RESETHAND};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)sigaction(signals[i], &action, NULL); /* fails on bad numbers only */
}

static int find_program(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    (void)context;
    load = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];

        if (part->p_type == PT_LOAD && (part->p_flags & PF_X)) {
            text_begin = load + part->p_vaddr;
            text_end = text_begin + part->p_memsz;
        }
    }
    return 1; /* the first is the program */
}

static enum kind kind_of(const char *words)
{
    enum kind kind = 0;

    while (kind < KINDS - 1 && strncmp(names[kind], words, strlen(names[kind])) != 0)
        kind++;
    return kind;
}

/* KIND:PROGRAM:OFFSET:... False when PROGRAM is another one. */
static bool choose_callers(const char *words)
{
    const char *program = strchrnul(words, ':') + 1;
    const size_t length = strcspn(program, ":");
    const char *next = program + length;
    char *end;

    if (strlen(program_invocation_short_name) != length ||
        strncmp(program, program_invocation_short_name, length) != 0)
        return false;
    chosen = kind_of(words);
    for (; *next == ':' && chosen_count < CALLERS_MAX; next = end)
        chosen_callers[chosen_count++] = strtoull(next + 1, &end, 16);
    return true;
}

__attribute__((constructor)) static void begin(int argc, char **argv)
{
    const char *fault = getenv("FAULT");
    const char *path = getenv("FAULT_FILE");
    void *callers[CALLERS_MAX];

    /* A shell that starts ctrun must leave the environment as it is. */
    if (!fault || !path || strncmp(program_invocation_short_name, "ctrun", 5) != 0)
        return;
    (void)snprintf(file, sizeof file, "%s", path);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    (void)dl_iterate_phdr(find_program, NULL);
    (void)backtrace(callers, CALLERS_MAX); /* loads what it needs */
    if (strcmp(fault, "list") == 0) {
        mode = LIST;
    } else if (strncmp(fault, "at:", 3) == 0) {
        mode = choose_callers(fault + 3) ? AT : OFF;
    } else {
        mode = strncmp(fault, "signal:", 7) == 0 ? SIGNAL : COUNT;
        chosen = mode == SIGNAL ? OPEN : kind_of(fault);
        atomic_store(&shared->left, strtol(strchrnul(fault, ':') + 1, NULL, 10));
    }
    if (!__interceptor_calloc)
        watch_crashes();
    if (is_relay(argc, argv))
        return;
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("FAULT");
    (void)unsetenv("FAULT_FILE");
}

/* The callers as offsets in the program, innermost first. */
struct callers {
    uintptr_t offset[CALLERS_MAX];
    int count;
    uint64_t hash;
};

static void hash_add(uint64_t *hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3U;
}

static struct callers callers_get(enum kind kind)
{
    struct callers callers = {.hash = 0xcbf29ce484222325U};
    void *frames[CALLERS_MAX];
    const int count = backtrace(frames, CALLERS_MAX);

    for (int i = 0; i < count; i++)
        if ((uintptr_t)frames[i] >= text_begin && (uintptr_t)frames[i] < text_end)
            callers.offset[callers.count++] = (uintptr_t)frames[i] - load;
    hash_add(&callers.hash, &kind, sizeof kind);
    hash_add(&callers.hash, callers.offset,
             sizeof callers.offset[0] * (size_t)callers.count);
    return callers;
}

/* False when the file must be new and another process has made it. */
static bool tell(enum kind kind, const struct callers *callers, int flags)
{
    char line[64 + 20 * CALLERS_MAX];
    int length = snprintf(line, sizeof line, "%s %s", names[kind],
                          program_invocation_short_name);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, file,
                                flags | O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0)
        return false;
    for (int i = 0; i < callers->count; i++)
        length += snprintf(line + length, sizeof line - (size_t)length, " %lx",
                           (unsigned long)callers->offset[i]);
    line[length++] = '\n';
    (void)syscall(SYS_write, fd, line, (size_t)length);
    (void)syscall(SYS_close, fd);
    return true;
}

static bool is_new(uint64_t hash)
{
    for (size_t i = hash % SEEN_MAX;; i = (i + 1) % SEEN_MAX) {
        unsigned long long old = 0;

        if (atomic_compare_exchange_strong(&shared->seen[i], &old, hash))
            return true;
        if (old == hash)
            return false;
    }
}

static bool is_chosen_by(const struct callers *callers)
{
    return callers->count >= chosen_count &&
           memcmp(callers->offset, chosen_callers,
                  sizeof chosen_callers[0] * (size_t)chosen_count) == 0;
}

static bool has_name(pid_t pid, const char *name)
{
    char path[64];
    char found[32] = "";
    int fd;

    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    if (fd >= 0) {
        (void)syscall(SYS_read, fd, found, sizeof found - 1);
        (void)syscall(SYS_close, fd);
    }
    return strncmp(found, name, strlen(name)) == 0;
}

/* The agent itself, not a child of it that has not replaced its program yet. */
static bool is_agent(void)
{
    return has_name(getpid(), "ctrun-agent") && !has_name(getppid(), "ctrun-agent");
}

static bool is_chosen(enum kind kind)
{
    struct callers callers;

    if (mode != LIST && kind != chosen)
        return false;
    if (mode == SIGNAL && !is_agent())
        return false;
    if ((mode == COUNT || mode == SIGNAL) && atomic_fetch_sub(&shared->left, 1) != 1)
        return false;
    callers = callers_get(kind);
    if (mode == LIST) {
        if (is_new(callers.hash))
            (void)tell(kind, &callers, O_APPEND);
        return false;
    }
    if (mode == SIGNAL && tell(kind, &callers, O_EXCL))
        (void)kill(getpid(), SIGTERM);
    return mode != SIGNAL && (mode == COUNT || is_chosen_by(&callers)) &&
           tell(kind, &callers, O_EXCL);
}

static bool fails(enum kind kind, const void *caller)
{
    const uintptr_t from = (uintptr_t)caller;
    const int before = errno;
    bool yes;

    if (mode == OFF || from < text_begin || from >= text_end)
        return false;
    yes = is_chosen(kind);
    errno = yes ? errors[kind] : before;
    return yes;
}

/* A pipe does not fail with these errors. */
static bool is_pipe(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
}

#define FAILS(kind) fails(kind, __builtin_return_address(0))
#define REAL(name)                                                                     \
    static __typeof__(&name) real;                                                     \
    if (!real)                                                                         \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

void *calloc(size_t count, size_t size)
{
    if (FAILS(MEMORY))
        return NULL;
    return __interceptor_calloc ? __interceptor_calloc(count, size)
                                : __libc_calloc(count, size);
}

void *reallocarray(void *old, size_t count, size_t size)
{
    REAL(reallocarray);
    return FAILS(MEMORY) ? NULL : real(old, count, size);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (FAILS(MEMORY))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                   void *context)
{
    REAL(pthread_create);
    return FAILS(MEMORY) ? EAGAIN : real(thread, how, run, context);
}

pid_t fork(void)
{
    REAL(fork);
    return FAILS(MEMORY) ? -1 : real();
}

int open(const char *path, int flags, ...)
{
    va_list args;
    mode_t mode_bits;

    va_start(args, flags);
    mode_bits = va_arg(args, mode_t); /* undefined without O_CREAT, and not used then */
    va_end(args);
    return FAILS(OPEN) ? -1
                       : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode_bits);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list args;
    mode_t mode_bits;

    va_start(args, flags);
    mode_bits = va_arg(args, mode_t);
    va_end(args);
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode_bits);
}

FILE *fopen(const char *path, const char *how)
{
    REAL(fopen);
    return FAILS(OPEN) ? NULL : real(path, how);
}

DIR *opendir(const char *path)
{
    REAL(opendir);
    return FAILS(OPEN) ? NULL : real(path);
}

DIR *fdopendir(int fd)
{
    REAL(fdopendir);
    return FAILS(OPEN) ? NULL : real(fd);
}

int mkdir(const char *path, mode_t bits)
{
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_mkdir, path, bits);
}

int pipe2(int fds[2], int flags)
{
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_pipe2, fds, flags);
}

int eventfd(unsigned value, int flags)
{
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_eventfd2, value, flags);
}

int epoll_create1(int flags)
{
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

int timerfd_create(int clock, int flags)
{
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_timerfd_create, clock, flags);
}

int signalfd(int fd, const sigset_t *set, int flags)
{
    REAL(signalfd);
    return FAILS(OPEN) ? -1 : real(fd, set, flags);
}

int inotify_init1(int flags)
{
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_inotify_init1, flags);
}

int memfd_create(const char *name, unsigned flags)
{
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

ssize_t read(int fd, void *data, size_t size)
{
    REAL(read);
    return !is_pipe(fd) && FAILS(READ) ? -1 : real(fd, data, size);
}

ssize_t pread(int fd, void *data, size_t size, off_t at)
{
    REAL(pread);
    return FAILS(READ) ? -1 : real(fd, data, size, at);
}

ssize_t readlink(const char *path, char *data, size_t size)
{
    REAL(readlink);
    return FAILS(READ) ? -1 : real(path, data, size);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    REAL(recv);
    return FAILS(READ) ? -1 : real(fd, data, size, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    REAL(recvmsg);
    return FAILS(READ) ? -1 : real(fd, message, flags);
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    return !is_pipe(fd) && FAILS(WRITE) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    REAL(pwrite);
    return FAILS(WRITE) ? -1 : real(fd, data, size, at);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    REAL(send);
    return FAILS(WRITE) ? -1 : real(fd, data, size, flags);
}

ssize_t sendto(int fd, const void *data, size_t size, int flags,
               const struct sockaddr *addr, socklen_t length)
{
    REAL(sendto);
    return FAILS(WRITE) ? -1 : real(fd, data, size, flags, addr, length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(sendmsg);
    return FAILS(WRITE) ? -1 : real(fd, message, flags);
}

int fflush(FILE *stream)
{
    REAL(fflush);
    return FAILS(WRITE) ? EOF : real(stream);
}

int socket(int family, int type, int protocol)
{
    return FAILS(SOCKET) ? -1 : (int)syscall(SYS_socket, family, type, protocol);
}

int socketpair(int family, int type, int protocol, int fds[2])
{
    return FAILS(SOCKET) ? -1
                         : (int)syscall(SYS_socketpair, family, type, protocol, fds);
}

int bind(int fd, const struct sockaddr *addr, socklen_t length)
{
    REAL(bind);
    return FAILS(SOCKET) ? -1 : real(fd, addr, length);
}

int connect(int fd, const struct sockaddr *addr, socklen_t length)
{
    REAL(connect);
    return FAILS(SOCKET) ? -1 : real(fd, addr, length);
}

int accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags)
{
    REAL(accept4);
    return FAILS(SOCKET) ? -1 : real(fd, addr, length, flags);
}
