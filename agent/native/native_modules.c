/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/native/native_modules.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/postmortem/module_file.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    LINES_MAX = 65536,
    GROW = 256
};

/* ---- /proc/PID/maps ---------------------------------------------------------------------- */

static int find_module(const struct native_modules *modules, const char *id,
                       const char *path)
{
    for (int i = modules->module_count; i-- > 0;)
        if (strcmp(modules->modules[i]->id, id) == 0 &&
            strcmp(modules->modules[i]->path, path) == 0)
            return i;
    return -1;
}

static int add_module(struct native_modules *modules, const struct native_module *like,
                      const char *path)
{
    struct native_module *module = ct_zalloc(sizeof *module);

    if (!module)
        return -ENOMEM;
    *module = *like;
    if (!(module->path = ct_strdup(path))) {
        free(module);
        return -ENOMEM;
    }
    modules->modules[modules->module_count] = module;
    return modules->module_count++;
}

/* Makes room for one more map and one more module. */
static int grow(struct native_modules *modules)
{
    const size_t size = (size_t)modules->map_count + GROW;
    void *grown;

    if (modules->map_count % GROW != 0)
        return 0;
    if (!(grown = ct_realloc_array(modules->maps, size, sizeof *modules->maps)))
        return -ENOMEM;
    modules->maps = grown;
    if (!(grown = ct_realloc_array(modules->modules, size, sizeof(void *))))
        return -ENOMEM;
    modules->modules = grown;
    return 0;
}

static int add_line(struct native_modules *modules, char *line)
{
    struct native_module module = {.fd = -1, .pid = modules->pid};
    struct native_map map;
    char rights[5], device[24];
    int path = 0;

    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %23s %" SCNu64 " %n",
               &map.start, &map.end, rights, &map.offset, device, &module.inode,
               &path) < 6 ||
        path == 0 || rights[2] != 'x')
        return 0;
    line[path + (int)strcspn(line + path, "\n")] = '\0';
    (void)ct_format(module.id, sizeof module.id, "%s:%" PRIu64, device, module.inode);
    module.start = map.start;
    map.module = find_module(modules, module.id, line + path);
    if (grow(modules) < 0 ||
        (map.module < 0 &&
         (map.module = add_module(modules, &module, line + path)) < 0))
        return -ENOMEM;
    modules->maps[modules->map_count++] = map;
    return 0;
}

int native_modules_open(struct native_modules *out, pid_t pid)
{
    char path[64];
    char *line = NULL;
    size_t size = 0;
    int rc = 0;
    FILE *maps;

    *out = (struct native_modules){.pid = pid};
    (void)ct_format(path, sizeof path, "/proc/%d/maps", (int)pid);
    if (!(maps = fopen(path, "re")))
        return errno == EACCES || errno == EPERM ? -EPERM : -ESRCH;
    for (int n = 0; n < LINES_MAX && out->map_count < NATIVE_MAPS_MAX && rc == 0 &&
                    getline(&line, &size, maps) > 0;
         n++)
        rc = add_line(out, line);
    if (rc == 0 && out->map_count == 0)
        rc = ferror(maps) ? -EPERM : -ESRCH; /* open() allows what read() refuses */
    free(line);
    (void)fclose(maps);
    if (rc < 0)
        native_modules_close(out);
    return rc;
}

void native_modules_close(struct native_modules *modules)
{
    for (int i = 0; i < modules->module_count; i++) {
        if (modules->modules[i]->fd >= 0)
            close(modules->modules[i]->fd);
        free(modules->modules[i]->path);
        free(modules->modules[i]);
    }
    free(modules->modules);
    free(modules->maps);
    *modules = (struct native_modules){0};
}

/* ---- Modules ----------------------------------------------------------------------------- */

struct native_module *native_modules_find(const struct native_modules *modules,
                                          uint64_t address, uint64_t *offset)
{
    int low = 0, high = modules->map_count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        const struct native_map *map = &modules->maps[middle];

        if (address < map->start)
            high = middle;
        else if (address >= map->end)
            low = middle + 1;
        else {
            *offset = address - map->start + map->offset;
            return modules->modules[map->module];
        }
    }
    return NULL;
}

/* The kernel's own module (vDSO), which is no file. */
static bool read_memory(void *context, uint64_t offset, void *dst, size_t length)
{
    const struct native_module *module = context;
    const struct iovec to = {.iov_base = dst, .iov_len = length};
    /* An address of that process. */
    const struct iovec from = {.iov_base = (void *)(uintptr_t)(module->start + offset),
                               .iov_len = length};

    return process_vm_readv(module->pid, &to, 1, &from, 1, 0) == (ssize_t)length;
}

bool native_module_use(struct native_module *module)
{
    struct elf_source source = {.context = module, .read = read_memory};

    if (module->is_tried)
        return module->is_open;
    module->is_tried = true;
    if (strcmp(module->path, "[vdso]") != 0) {
        module->fd = module_file_open(module->pid, module->path, module->inode);
        if (module->fd < 0)
            return false;
        source = (struct elf_source){.context = &module->fd, .read = module_file_read};
    }
    module->is_open = cfi_file_open(&module->file, &source) == 0;
    return module->is_open;
}
