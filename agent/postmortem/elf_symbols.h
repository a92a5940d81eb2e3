/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that places in an ELF file are in, from .symtab, or .dynsym where that is
 * stripped. Reads in pieces and believes nothing: every size is checked against a limit of ours.
 * 64-bit files of this machine's byte order. Pure but for the reader that it is given. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_source {
    void *context;
    /* Exactly `length` bytes from `offset` on; false when they are not there. */
    bool (*read)(void *context, uint64_t offset, void *dst, size_t length);
};

struct elf_place {
    uint64_t offset;  /* asked for: in the file */
    uint64_t address; /* found: as the file counts addresses; 0: in no segment */
    char *name;       /* the caller's, name_size bytes; empty: no function found */
    size_t name_size;
    uint64_t start; /* of that function */
};

/* 0, -ENOEXEC when this is no such file, -ENOMEM. What is found of some places stays. */
int elf_find_functions(const struct elf_source *source, struct elf_place *places,
                       int count);

/* A variable by its name, of fewer than 64 bytes. *address, as the file counts addresses; *base is
 * that of the file's first byte. 0, -ENOEXEC when this is no such file, -ENOENT, -ENOMEM. */
int elf_find_variable(const struct elf_source *source, const char *name,
                      uint64_t *address, uint64_t *base);
