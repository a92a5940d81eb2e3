/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/code_pages.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first object is the program; the others are libraries. */
static int drop_object(struct dl_phdr_info *info, size_t size, void *with_libraries)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const size_t from = (info->dlpi_addr + part->p_vaddr) & ~(page - 1);
        const size_t to = info->dlpi_addr + part->p_vaddr + part->p_memsz;

        if (part->p_type == PT_LOAD && !(part->p_flags & PF_W))
            (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
    return *(const bool *)with_libraries ? 0 : 1;
}

void code_pages_drop(bool with_libraries)
{
    (void)dl_iterate_phdr(drop_object, &with_libraries);
}
