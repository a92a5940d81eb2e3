/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/native/native_names.h"

#include "agent/native/cpp_name.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

enum {
    BATCH_MAX = 32,   /* addresses that are looked up in one pass over a symbol table */
    MANGLED_MAX = 512 /* a longer name is cut, and ends with "..." if that matters */
};

/* The slot of this name, or a free slot for it. The table is never full: half of the slots are
 * spare. */
static int find_slot(const struct native_names *names, const char *module,
                     uint64_t offset)
{
    const int size = (int)(sizeof names->slots / sizeof *names->slots);
    int at = (int)((offset * 0x9e3779b97f4a7c15u) >> 40) % size;

    while (names->slots[at].module[0] && (names->slots[at].offset != offset ||
                                          strcmp(names->slots[at].module, module) != 0))
        at = (at + 1) % size;
    return at;
}

static void add(struct native_names *names, const char *module, uint64_t offset,
                char *function)
{
    struct native_name *name = &names->slots[find_slot(names, module, offset)];

    if (name->module[0] || names->count == NATIVE_NAMES_MAX)
        return;
    names->count++;
    (void)ct_copy(name->module, sizeof name->module, module);
    name->offset = offset;
    ct_make_plain(function, false);
    cpp_name_format(name->text, sizeof name->text, function);
}

/* Collects those of places[count] that are in the module of the first one, and not known yet. */
static int gather(const struct native_names *names,
                  const struct native_modules *modules, const uint64_t *places,
                  int count, uint64_t offsets[BATCH_MAX])
{
    const struct native_module *first = NULL;
    int found = 0;

    for (int i = 0; i < count && found < BATCH_MAX; i++) {
        uint64_t offset;
        const struct native_module *module = native_modules_find(modules, places[i],
                                                                 &offset);

        if (!module || (first && module != first) ||
            names->slots[find_slot(names, module->id, offset)].module[0])
            continue;
        first = module;
        offsets[found++] = offset;
    }
    return found;
}

static void look_up(struct native_names *names, struct native_module *module,
                    const uint64_t *offsets, int count)
{
    struct elf_place places[BATCH_MAX];
    char functions[BATCH_MAX][MANGLED_MAX];

    for (int i = 0; i < count; i++) {
        functions[i][0] = '\0';
        places[i] = (struct elf_place){.offset = offsets[i],
                                       .name = functions[i],
                                       .name_size = sizeof functions[i]};
    }
    if (native_module_use(module))
        (void)elf_find_functions(&module->file.source, places, count);
    for (int i = 0; i < count; i++)
        add(names, module->id, offsets[i], functions[i]);
}

void native_names_find(struct native_names *names, const struct native_modules *modules,
                       const uint64_t *places, int count, uint64_t until_ms)
{
    uint64_t offsets[BATCH_MAX];

    for (int i = 0; i < count && names->count < NATIVE_NAMES_MAX; i++) {
        uint64_t offset;
        struct native_module *module = native_modules_find(modules, places[i], &offset);

        if (!module || names->slots[find_slot(names, module->id, offset)].module[0])
            continue;
        if (ct_left_ms(until_ms) == 0)
            return;
        look_up(names, module, offsets,
                gather(names, modules, places + i, count - i, offsets));
    }
}

const char *native_names_get(const struct native_names *names,
                             const struct native_module *module, uint64_t offset)
{
    return names->slots[find_slot(names, module->id, offset)].text;
}
