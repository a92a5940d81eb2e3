/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/python_process.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/postmortem/elf_symbols.h"
#include "agent/postmortem/module_file.h"
#include "worker_sdk/base/str.h"

enum {
    MAPS_MAX = 65536, /* lines; torch with all its libraries has some 2,000 */
    MINOR_MAX = 99
};

/* Where the start of a file is mapped in the process. */
struct module {
    uint64_t start;
    uint64_t inode;
    int minor; /* the minor version in its name */
    char path[PATH_MAX];
};

static bool read_memory(void *context, uint64_t address, void *dst, size_t length)
{
    const pid_t *pid = context;
    const struct iovec to = {.iov_base = dst, .iov_len = length};
    /* An address of that process. */
    const struct iovec from = {.iov_base = (void *)(uintptr_t)address,
                               .iov_len = length};

    return process_vm_readv(*pid, &to, 1, &from, 1, 0) == (ssize_t)length;
}

/* The minor version of "python3.11", "libpython3.11.so.1.0" and similar names; 0: another name. */
static int minor_of(const char *path)
{
    const char *name = ct_base_name(path);
    long minor;
    char *end;

    if (ct_starts_with(name, "lib"))
        name += 3;
    if (!ct_starts_with(name, "python3."))
        return 0;
    minor = strtol(name + 8, &end, 10);
    return end > name + 8 && minor > 0 && minor <= MINOR_MAX ? (int)minor : 0;
}

/* Parses the line of a mapping that has the file's first bytes; false for other lines. */
static bool parse_line(struct module *out, char *line)
{
    uint64_t start, offset, inode;
    int path = 0;

    if (sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %*x:%*x %" SCNu64 " %n", &start,
               &offset, &inode, &path) < 3 ||
        path == 0 || offset != 0 || line[path] != '/')
        return false;
    line[path + (int)strcspn(line + path, "\n")] = '\0';
    *out = (struct module){
        .start = start, .inode = inode, .minor = minor_of(line + path)};
    return out->minor && ct_copy(out->path, sizeof out->path, line + path) >= 0;
}

static bool is_forbidden(int error)
{
    return error == EACCES || error == EPERM;
}

static int find_runtime(struct python_process *out, const struct module *module)
{
    uint64_t address, base;
    int fd = module_file_open(out->pid, module->path, module->inode);
    const struct elf_source source = {.context = &fd, .read = module_file_read};
    int rc;

    if (fd < 0)
        return fd;
    rc = elf_find_variable(&source, "_PyRuntime", &address, &base);
    close(fd);
    if (rc < 0)
        return rc == -ENOMEM ? rc : -ENOEXEC;
    out->runtime = module->start - base + address;
    return 0;
}

static int find_offsets(struct python_process *out, int minor)
{
    const struct python_offsets *known = python_offsets_find(minor);
    uint8_t runtime[PYTHON_DEBUG_OFFSETS_BYTES];

    if (!read_memory(&out->pid, out->runtime, runtime, sizeof runtime))
        return errno == ESRCH ? -ESRCH : -EPERM;
    if (known)
        out->offsets = *known;
    else if (!python_offsets_read(&out->offsets, runtime, sizeof runtime))
        return -ENOTSUP;
    return 0;
}

int python_process_find(struct python_process *out, pid_t pid)
{
    struct module module;
    char *line = NULL;
    size_t size = 0;
    char path[64];
    int rc = -ENOEXEC;
    FILE *maps;

    *out = (struct python_process){.pid = pid};
    (void)ct_format(path, sizeof path, "/proc/%d/maps", (int)pid);
    if (!(maps = fopen(path, "re")))
        return is_forbidden(errno) ? -EPERM : -ESRCH;
    for (int n = 0; n < MAPS_MAX && rc == -ENOEXEC && getline(&line, &size, maps) > 0;
         n++)
        if (parse_line(&module, line) && (rc = find_runtime(out, &module)) == 0)
            rc = find_offsets(out, module.minor);
    if (rc == -ENOEXEC && ferror(maps))
        rc = -EPERM; /* open() may succeed where read() is refused */
    free(line);
    (void)fclose(maps);
    return rc;
}

int python_process_walk(const struct python_process *process, struct python_room *room,
                        void (*on_thread)(void *context,
                                          const struct python_thread *thread),
                        void *context)
{
    pid_t pid = process->pid;
    const struct python_memory memory = {.context = &pid, .read = read_memory};

    return python_frames_walk(&memory, &process->offsets, process->runtime, room,
                              on_thread, context);
}
